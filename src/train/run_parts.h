// What a run works with: workers, programs, text and rows, in the order in which they need each
// other.
#pragma once

#include <filesystem>
#include <optional>

#include "data/samples.h"
#include "train/job.h"
#include "train/read_ahead.h"
#include "train/run_config.h"
#include "train/text_data.h"
#include "train/trainer.h"

namespace myriad {

// The members are made from the first to the last and go from the last to the first, and each place
// in this order has its reason:
// - The job works on the pool, so the pool outlives it.
// - The job is made before the text: a layout that cannot be is refused before a folder is made and
//   before any text is read.
// - The rows are cut from the text.
// - The thread of `ahead` reads the rows while a step runs. It is last because its end waits for
// the
//   thread, so everything that the thread reads still stands.
struct RunParts {
  // Throws Error if the run cannot be. Only `folder` itself is made of what will lie in it.
  RunParts(const RunConfig& config, const std::filesystem::path& folder,
           const TrainOptions& options);
  RunParts(const RunParts&) = delete;
  RunParts& operator=(const RunParts&) = delete;

  // Begins to make the batches of the steps `first` to the last, which ahead->next() then gives.
  // `config` outlives these parts.
  void read_ahead(const RunConfig& config, int64_t first);

  Pool pool;
  Job job;
  TextData text;
  MixedSamples samples;
  HeldOutRows held_out;
  std::optional<ReadAhead> ahead;  // from read_ahead() on
};

}  // namespace myriad
