#include "passes/relay.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "ir/builder.h"

namespace myriad {

namespace {

// Of k distinct experts of E chosen at random, on how many nodes do they lie: for each node 1 - the
// chance that none lies there, on average over all groups that share the experts.
double expected_nodes(const Plan& plan, double experts, double choices) {
  const OwnerNodes shape{plan.ep, plan.etp, plan.ranks_per_node};
  const int group = plan.ep * plan.etp;
  std::map<int, double> expected;  // by where on its node a group begins
  double sum = 0;
  for (int rank = 0; rank < plan.ranks(); rank += group) {
    const auto [at, fresh] = expected.try_emplace(rank % plan.ranks_per_node, 0);
    const OwnerNodes nodes = shape.around(rank);
    for (int64_t n = 0; fresh && n < nodes.nodes(); ++n) {
      const double here =
          experts * static_cast<double>(nodes.first_owner(n + 1) - nodes.first_owner(n)) / plan.ep;
      double none = 1;
      for (double i = 0; i < choices; ++i)
        none *= std::max(0.0, (experts - here - i) / (experts - i));
      at->second += 1 - none;
    }
    sum += at->second;
  }
  return sum * group / plan.ranks();
}

}  // namespace

void relay(Piece& piece, const Plan& plan) {
  Body out;
  Builder b(piece.graph, out);
  int leads = -1;
  for (Op& op : piece.forward.ops) {
    b.part = op.part;
    const int now = op.row == Row::dispatch || op.row == Row::combine ? op.ins[1] : -1;
    const Attrs attrs = now < 0 ? Attrs{}
                                : Attrs{.experts = op.size.at('e'),
                                        .parts = plan.ep,
                                        .inner = plan.etp,
                                        .ranks_per_node = plan.ranks_per_node};
    if (op.row == Row::dispatch) {
      leads = b.op1(Row::leads, {now}, "bsj->bsj",
                    {.names = {"idl"}, .sizes = {}, .attrs = attrs, .dtypes = {DType::i32}});
      const auto experts = static_cast<double>(op.size.at('e')),
                 choices = static_cast<double>(op.size.at('j'));
      piece.graph[leads].density = expected_nodes(plan, experts, choices) / choices;
      const int x = b.op1(Row::dispatch, {op.ins[0], leads}, "bsd,bsj->ebsd",
                          {.names = {"xl"}, .sizes = op.size, .attrs = {}, .dtypes = {}});
      op.row = Row::spread;
      op.ins = {x, leads, now};
      op.in_types = {op.in_types[0], op.in_types[1], op.in_types[1]};
      op.in_labels = {"ebsd", "bsj", "bsj"};
      op.attrs = attrs;
    } else if (op.row == Row::combine) {
      const int y = b.op1(Row::collapse, {op.ins[0], leads, now}, "ebsd,bsj,bsj->ebsd",
                          {.names = {"yl"}, .sizes = {}, .attrs = attrs, .dtypes = {}});
      op.ins = {y, leads};
    }
    out.ops.push_back(std::move(op));
  }
  piece.forward.ops = std::move(out.ops);
}

}  // namespace myriad
