// Why a step takes as long as it does, and what changes would bring, each found by simulating it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/predict.h"

namespace myriad {

// Something that costs time beyond the products themselves, or that makes the run impossible.
struct Cause {
  std::string text;
  double seconds;      // of the step
  bool fatal = false;  // does not fit
};

struct Change {
  std::string what;
  double step_seconds = 0;
  double gain = 0;  // share of the time a token that is saved; negative: slower
  bool fits = true;
  std::string refused;  // why it cannot be; then the rest says nothing
};

struct Explanation {
  Simulation simulation;
  std::vector<Cause> causes;    // the dearest first; what does not fit before all
  std::vector<Change> changes;  // the best first, the refused last
};

Explanation explain(const PlannedRun& run, const Cluster& cluster,
                    const PredictOptions& options = {});

std::string to_text(const Explanation& explanation);
nlohmann::json to_json(const Explanation& explanation);

}  // namespace myriad
