#include <algorithm>
#include <cmath>

#include "passes/bodies.h"

namespace myriad {

namespace {

int64_t largest_part(const Mesh& mesh, int64_t n, AtomList cut) {
  const int64_t parts = mesh.parts(cut);
  return (n + parts - 1) / parts;
}

// How tokens are cut over the ranks that do not share experts.
Cuts cuts_of_tokens(const Lowering& l) {
  const Mesh& mesh = l.program.mesh;
  const Rules rules("*: b=edp_d s=edp_s", mesh, aliases_of(l.plan, mesh));
  return rules(Value{.name = "x", .labels = "bs", .sizes = {1, 1}}).cuts;
}

// How many routed rows an owner of experts takes a round: expert_rows_bound times an even share
// of the largest part; under node_relay all of one token at least, so that no token is parted.
int64_t bound_of(const Lowering& l, const Cuts& cuts, const Op& op, int64_t rows) {
  const Plan& plan = l.plan;
  const Mesh& mesh = l.program.mesh;
  const double even =
      static_cast<double>(largest_part(mesh, rows, cuts[0]) *
                          largest_part(mesh, op.size.at('s'), cuts[1]) * op.size.at('j')) /
      plan.ep;
  const int64_t of_a_token =
      op.attrs.ranks_per_node > 0
          ? std::min(op.size.at('j'), (op.attrs.experts + plan.ep - 1) / plan.ep)
          : 1;
  const double share = even * (plan.ep == 1 ? 1 : plan.expert_rows_bound);
  return std::max(of_a_token, static_cast<int64_t>(std::ceil(share)));
}

}  // namespace

void bound_rounds(Lowering& l) {
  for (auto& [rows, variant] : l.pieces.variants) {
    for (Piece& piece : variant.pieces.pieces) {
      if (piece.loop_part < 0) continue;
      const Cuts cuts = cuts_of_tokens(l);
      for (Op& op : piece.forward.ops) {
        if (op.row != Row::window && op.row != Row::rounds) continue;
        op.attrs.parts = l.plan.ep;
        op.attrs.inner = l.plan.etp;
        op.attrs.ranks_per_node =
            l.plan.dispatch == Dispatch::node_relay ? l.plan.ranks_per_node : 0;
        op.attrs.bound = bound_of(l, cuts, op, rows);
      }
    }
  }
}

}  // namespace myriad
