// Random wanted layouts: whatever cuts are asked of values and states, the result must be the same.
// The best finder of faults in passes/: it reaches moves and pending sums that no sensible plan
// asks for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "verify/trial.h"

namespace myriad {

// Cuts of the named values and states over all atoms of the mesh but "pp", by seed and name alone:
// 30 % have no wish, each atom cuts some dim with probability 0.6, half of the wishes let nothing
// stay pending. Integer values too, but for the choices of experts, which all ranks know.
std::function<Want(const Value&)> random_wanted(uint64_t seed, const Mesh& mesh);

struct RandomLayout {
  uint64_t seed;
  std::string name;    // "seed 7, tied: dp 2 x tp 3 x pp 2, ..."
  std::string tensor;  // the worst, or what went wrong
  double error = 0;
  bool ok = false;
};

constexpr double kRandomLayoutBound = 1e-9;

// Variant, mesh (2 to max_ranks ranks), stages, micro-batches and wanted layouts of each seed in
// [first, first + count) against one rank, errors as of verify_layouts; predicted counts must equal
// measured ones. Several at once; in order of seeds.
std::vector<RandomLayout> verify_random_layouts(uint64_t first, int count, int max_ranks = 12,
                                                int workers = 0);

}  // namespace myriad
