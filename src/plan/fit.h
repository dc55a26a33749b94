// Constants of a cluster found by coordinate descent on an error that the caller defines.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cluster/cluster.h"

namespace myriad {

// A constant, or several of one shape, that a factor scales.
struct Knob {
  std::string key;
  double least, most;  // of the factor
  std::function<void(Cluster&, double)> scale;
};

// Scales `cluster` to where `loss` is least, knob by knob in ever smaller steps, and returns the
// factor of each.
std::vector<double> descend(const std::vector<Knob>& knobs, Cluster& cluster,
                            const std::function<double(const Cluster&)>& loss);

}  // namespace myriad
