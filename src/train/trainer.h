// The training run, from the text to the folder it leaves: metrics.jsonl, config.yaml,
// summary.json, samples.jsonl, tokenizer.json, config.json, model.safetensors and checkpoints.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/env.h"
#include "cluster/cluster.h"
#include "train/report.h"
#include "train/run_config.h"

namespace myriad {

struct Passage {
  std::string prompt, text;  // whole UTF-8 characters
};

struct RunSummary {
  std::string folder;
  StepProfile predicted, measured;  // of the last step
  std::vector<int64_t>
      planned_peak_bytes;  // by rank: of expert models what any routing stays below
  int64_t steps = 0;       // done
  int64_t steps_compared = 0, steps_different = 0;
  std::string first_difference;  // of the first step that differed
  double loss = 0;               // of the last step
  double heldout_bits_per_byte = -1, gzip_bits_per_byte = -1, zstd_bits_per_byte = -1;
  double mfu = 0, peak_flops_per_s = 0, tokens_per_second = 0;
  double step_seconds = 0, evaluate_seconds = 0, data_wait_seconds = 0, seconds = 0;
  std::vector<Passage> passages;
  nlohmann::json plan;  // train/plan_json.h
  nlohmann::json data;  // TextData::to_json
  double bubble = -1;   // of the last timed step, replayed (train/timeline.h)
  double predicted_step_seconds = -1,
         predicted_bubble = -1;         // before the first step; -1: not asked
  double median_step_seconds = -1;      // by the clock, of all steps
  std::string stopped;                  // why the run ended before its last step; empty: it did not
  int64_t saved = 0, saves_failed = 0;  // checkpoints
  bool interrupted = false;             // asked to stop; no more than the checkpoint was written
  bool ok() const { return stopped.empty() && steps_different == 0; }
};

// As summary.json has it.
nlohmann::json to_json(const RunSummary& summary);

struct TrainOptions {
  Console console;
  double peak_seconds = 1;            // to measure the local peak
  std::function<Cluster()> machine;   // this one as a cluster: prices the step before it is run
  Rewrite rewrite;                    // tests: changes the executor's copy of the program
  std::filesystem::path resume;       // checkpoint to go on from; empty: from the start
  std::vector<std::string> allow;     // keys that may differ from the checkpoint's
  std::function<bool()> interrupted;  // asked after every step; true: save and leave
  Env* env = nullptr;                 // tests: how checkpoints change the disk
};

// Throws Error before any work if the run cannot be (no corpus, a folder that cannot be written or
// holds checkpoints that nobody asked to go on from, another run than the checkpoint's), Failure
// for a full disk or a stalled step. A non-finite loss or norm ends the run with `stopped`, which
// names the first bad tensor.
RunSummary train(const RunConfig& config, const std::filesystem::path& folder,
                 const TrainOptions& options = {});

}  // namespace myriad
