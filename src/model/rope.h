// Rotary tables: a pair i of a head turns by position x frequencies[i] radians; cos and sin are
// multiplied by mscale.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace myriad {

struct RopeTable {
  std::vector<double> frequencies;  // [head_dim / 2], radians a position
  double mscale = 1;
};

// head_dim is even. `sequence` is the length of the whole sequence, never of a part of it; only
// telechat reads it.
RopeTable rope_table(const RopeConfig& rope, int64_t head_dim, int64_t sequence);

}  // namespace myriad
