// Splits the forward and the backward body of each piece into the bodies that run: one for each
// part of a piece (a piece without a loop has one part), and decides what the backward pass
// recomputes. Either a backward body clones the forward ops that it needs (all, or those that are
// cheaper than keeping their results), or, in pieces with a loop, the forward parts run once more
// before the backward ones: a loop's results are sums over rounds, which no clone in another body
// could make.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "passes/bodies.h"
#include "passes/differentiate.h"

namespace myriad {

namespace {

// The ops of one part; without those that count where the part only runs once more.
Body ops_of(const Body& body, int part, bool count) {
  Body b;
  for (const Op& op : body.ops) {
    if (op.part == part && (count || op.row != Row::accum)) b.ops.push_back(op);
  }
  return b;
}

std::vector<BodyPart> parts_of(const Piece& piece, Recompute how, bool forward_only) {
  std::vector<BodyPart> parts;
  int last = 0;
  for (const Op& op : piece.forward.ops) last = std::max(last, op.part);
  const auto add = [&](Body body, BodyRole role, int part, const char* name) {
    body.name = piece.name + name + (last > 0 ? fmt::format(".{}", part) : "");
    if (!body.ops.empty()) parts.push_back({std::move(body), role, part == piece.loop_part});
  };
  for (int p = 0; p <= last; ++p)
    add(ops_of(piece.forward, p, true), BodyRole::forward, p, ".forward");
  if (forward_only) return parts;
  if (how == Recompute::full && last > 0) {
    for (int p = 0; p <= last; ++p)
      add(ops_of(piece.forward, p, false), BodyRole::recompute, p, ".again");
  }
  std::set<int> kept = dear_outputs(piece.forward);
  for (int p = last; p >= 0; --p) {
    Body b = ops_of(piece.backward, p, true);
    const Body forward = ops_of(piece.forward, p, true);
    // A round keeps nothing: its backward makes it again.
    if (p == piece.loop_part || (how == Recompute::full && last == 0)) {
      b = recompute(forward, b);
    } else if (how == Recompute::selective) {
      b = recompute(forward, b, kept);
    }
    for (int value : inputs_of(b)) kept.insert(value);  // there in any case
    for (int o : piece.backward.outputs) {
      for (const Op& op : b.ops) {
        if (std::find(op.outs.begin(), op.outs.end(), o) != op.outs.end()) b.outputs.push_back(o);
      }
    }
    add(std::move(b), BodyRole::backward, p, ".backward");
  }
  return parts;
}

}  // namespace

void split_bodies(Lowering& l) {
  auto& variants = l.pieces.variants;
  for (auto& [rows, v] : variants) {
    const Pieces& p = v.pieces;
    v.parts.resize(p.pieces.size());
    for (size_t i = 0; i < p.pieces.size(); ++i) {
      const Piece& piece = p.pieces[i];
      if (piece.forward.ops.empty()) continue;
      const int index = static_cast<int>(i);
      const bool layer = index != p.units.front() && index != p.units.back();
      v.parts[i] =
          parts_of(piece, layer ? l.plan.recompute : Recompute::none, l.options.forward_only);
      if (variants.size() == 1) continue;
      for (BodyPart& part : v.parts[i]) part.body.name += fmt::format("/{}", rows);
    }
  }
}

}  // namespace myriad
