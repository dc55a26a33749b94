// How unevenly tokens choose experts, for a machine that only prices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace myriad {

// The share of all choices that each expert gets, one list for each layer; no list at all means
// that all experts get the same.
struct ExpertLoad {
  std::vector<std::vector<double>> layers;
  bool even() const { return layers.empty(); }
};

// Reads "even" or "zipf:S". In the latter the i-th most popular expert gets a share in proportion
// to 1 / i^S, with S of 0 or more; which expert that is, is drawn from a fixed seed. Throws Error
// naming what is legal.
ExpertLoad parse_load(const std::string& text, int64_t experts);

// How many times its even share of the choices the busiest of `owners` owners of the experts takes;
// the mean over layers. Owner p has experts [p E / n, (p + 1) E / n).
double busiest(const ExpertLoad& load, int64_t experts, int64_t owners);

}  // namespace myriad
