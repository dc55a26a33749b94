// The lowered bodies of a program: every piece for every number of rows that a micro-batch has, and
// the optimizer's.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "passes/lower.h"

namespace myriad {

// Lowered bodies of all pieces for one number of rows in a micro-batch.
struct LoweredVariant {
  Pieces pieces;
  std::vector<std::shared_ptr<Graph>> graphs;  // by piece
  // By piece: indices into Program::bodies in the order they run. again: the forward parts without
  // what they count, run before the backward ones (recomputation of pieces with a loop; other
  // pieces clone ops into the backward body instead).
  std::vector<std::vector<int>> forward, again, backward;
};

struct OptimizerBodies {
  std::vector<int> settle, square, update;  // by piece, -1: nothing to do
  int settle_other = -1, sum = -1;          // of the tied piece
};

struct LoweredPieces {
  std::map<int64_t, LoweredVariant> variants;  // by rows
  OptimizerBodies optimizer;
  int finish = -1;
  const LoweredVariant& first() const { return variants.begin()->second; }
};

// Fills in the program's mesh, stages and bodies.
LoweredPieces lower_pieces(const Emit& emit, const Plan& plan, const LowerOptions& options,
                           Program& program);

}  // namespace myriad
