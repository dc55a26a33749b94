// How a run resumes from a checkpoint.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/env.h"
#include "train/job.h"
#include "train/run_config.h"
#include "train/run_folder.h"
#include "train/text_data.h"

namespace myriad {

// Throws Error if the folder holds checkpoints of a run that nobody asked to go on with. `resume`:
// the checkpoint to go on from, or empty.
void refuse_another_run(const std::filesystem::path& folder, const std::filesystem::path& resume);

struct Resumed {
  int64_t steps = 0;  // done
  int64_t first = 1;  // the step to go on with
  RunLines lines;     // of the steps done
};

// Restores the job from the checkpoint `from`. If the run resumes in its own folder, what it left
// there after the checkpoint is set aside. Nothing is written before the checkpoint is found to be
// whole and of this run; keys in `allowed` may differ. Throws Error or Failure.
Resumed resume_run(Env& env, Job& job, const RunConfig& config, const TextData& text,
                   const std::filesystem::path& folder, const std::filesystem::path& from,
                   const std::vector<std::string>& allowed);

}  // namespace myriad
