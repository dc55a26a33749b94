// What a run is, for those who read its folder afterwards.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "train/job.h"
#include "train/run_config.h"

namespace myriad {

// {"name", "layout", "ranks", "stages", "workers", "parameters", "tokens_per_step",
// "sequence_length", "steps",
//  "memory": by rank what holds memory at the peak, in bytes}
nlohmann::json plan_json(const RunConfig& config, Job& job, int workers);

}  // namespace myriad
