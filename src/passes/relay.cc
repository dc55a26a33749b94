#include "passes/relay.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ir/builder.h"

namespace myriad {

namespace {

// Of k distinct experts of E chosen at random, on how many of n nodes do they lie: n (1 - the
// chance that none lies on a given one).
double expected_nodes(double nodes, double experts, double choices) {
  double none = 1;
  for (double i = 0; i < choices; ++i)
    none *= std::max(0.0, (experts - experts / nodes - i) / (experts - i));
  return nodes * (1 - none);
}

}  // namespace

void relay(Piece& piece, int nodes) {
  Body out;
  Builder b(piece.graph, out);
  int leads = -1;
  for (Op& op : piece.forward.ops) {
    b.part = op.part;
    const int now = op.row == Row::dispatch || op.row == Row::combine ? op.ins[1] : -1;
    const Attrs attrs = now < 0 ? Attrs{} : Attrs{.parts = nodes, .experts = op.size.at('e')};
    if (op.row == Row::dispatch) {
      leads = b.op1(Row::leads, {now}, "bsj->bsj",
                    {.names = {"idl"}, .sizes = {}, .attrs = attrs, .dtypes = {DType::i32}});
      const auto experts = static_cast<double>(op.size.at('e')),
                 choices = static_cast<double>(op.size.at('j'));
      piece.graph[leads].density = expected_nodes(nodes, experts, choices) / choices;
      const int x = b.op1(Row::dispatch, {op.ins[0], leads}, "bsd,bsj->ebsd",
                          {.names = {"xl"}, .sizes = op.size, .attrs = {}, .dtypes = {}});
      op.row = Row::spread;
      op.ins = {x, leads, now};
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
