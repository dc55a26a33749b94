// How unevenly tokens choose experts, for a machine that only prices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace myriad {

// The share of all choices that each expert gets; several lists: of several layers. None: even.
struct ExpertLoad {
  std::vector<std::vector<double>> layers;
  bool even() const { return layers.empty(); }
};

// "even"; "zipf:S": the i-th most loved expert gets a share in proportion to 1 / i^S, S of 0 or
// more, which expert that is being drawn from a fixed seed. Throws Error naming what is legal.
ExpertLoad parse_load(const std::string& text, int64_t experts);

// Choices that the busiest of so many owners of the experts takes, over an even share: the mean
// over layers. Owner p has experts [p E / n, (p + 1) E / n).
double busiest(const ExpertLoad& load, int64_t experts, int64_t owners);

}  // namespace myriad
