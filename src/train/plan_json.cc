#include "train/plan_json.h"

#include <nlohmann/json.hpp>

#include "train/report.h"

namespace myriad {

nlohmann::json plan_json(const RunConfig& c, Job& job, int workers) {
  nlohmann::json memory = nlohmann::json::array();
  for (const MemoryPlan& m : job.train().memory) {
    memory.push_back({{"parameters", m.at_peak.parameters},
                      {"gradients", m.at_peak.gradients},
                      {"moments", m.at_peak.moments},
                      {"activations", m.at_peak.activations},
                      {"communication", m.at_peak.communication},
                      {"workspace", m.at_peak.workspace}});
  }
  return {{"name", c.name},
          {"layout", show(c.plan)},
          {"ranks", c.plan.ranks()},
          {"stages", c.plan.pp},
          {"workers", workers},
          {"dtype", text_of(c.train.dtype)},
          {"products", products_text(c.train.dtype)},
          {"parameters", parameter_count(c.model)},
          {"tokens_per_step", c.train.tokens_per_step},
          {"sequence_length", c.train.sequence_length},
          {"steps", c.train.steps},
          {"memory", memory}};
}

}  // namespace myriad
