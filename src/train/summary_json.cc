// A run's summary as summary.json has it, which is also what the commands print with --json.
// Figures that were not asked for, or that are not finite, are null, because JSON has no NaN. Read
// RunSummary in train/trainer.h first: it says what each figure means.
#include <cmath>

#include "train/trainer.h"

namespace myriad {

using nlohmann::json;

namespace {

json to_json(const StepProfile& p) {
  json collectives = json::object();
  for (const auto& [kind, count] : p.collectives)
    collectives[kind] = {{"bytes", count.bytes},
                         {"messages", count.messages},
                         {"between_nodes_bytes", count.between_nodes_bytes},
                         {"between_nodes_rows", count.between_nodes_rows}};
  return {{"flops", static_cast<int64_t>(p.flops)},
          {"collectives", collectives},
          {"peak_bytes", p.peak_bytes}};
}

json number(double x) { return std::isfinite(x) ? json(x) : json(nullptr); }
json known(double x) { return x < 0 ? json(nullptr) : number(x); }

}  // namespace

json to_json(const RunSummary& s) {
  json passages = json::array();
  for (const Passage& p : s.passages) passages.push_back({{"prompt", p.prompt}, {"text", p.text}});
  json predicted = to_json(s.predicted);
  predicted["planned_peak_bytes"] = s.planned_peak_bytes;
  predicted["step_seconds"] = known(s.predicted_step_seconds);
  predicted["bubble"] = known(s.predicted_bubble);
  json measured = to_json(s.measured);
  measured["step_seconds"] = known(s.median_step_seconds);
  measured["bubble"] = known(s.bubble);
  json out = {{"plan", s.plan},
              {"data", s.data},
              {"predicted", predicted},
              {"measured", measured},
              {"steps_compared", s.steps_compared},
              {"steps_different", s.steps_different},
              {"heldout_bits_per_byte", known(s.heldout_bits_per_byte)},
              {"gzip_bits_per_byte", known(s.gzip_bits_per_byte)},
              {"zstd_bits_per_byte", known(s.zstd_bits_per_byte)},
              {"mfu", number(s.mfu)},
              {"peak_flops_per_s", s.peak_flops_per_s},
              {"tokens_per_second", number(s.tokens_per_second)},
              {"steps", s.steps},
              {"loss", number(s.loss)},
              {"seconds", s.seconds},
              {"step_seconds", s.step_seconds},
              {"evaluate_seconds", s.evaluate_seconds},
              {"data_wait_seconds", s.data_wait_seconds},
              {"passages", passages},
              {"checkpoints_saved", s.saved},
              {"checkpoints_failed", s.saves_failed},
              {"folder", s.folder}};
  if (!s.first_difference.empty()) out["first_difference"] = s.first_difference;
  if (!s.stopped.empty()) out["stopped"] = s.stopped;
  return out;
}

}  // namespace myriad
