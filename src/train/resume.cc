// Takes up a run where a checkpoint left it. A run can resume in its own folder or in another one:
// in its own folder, later checkpoints are set aside first, because the steps that made them are
// done again. The lines of metrics and samples up to the checkpoint come along, so that the files
// of the run read as if it had never stopped. Read train/checkpoint.h first.
#include "train/resume.h"

#include "base/error.h"
#include "data/files.h"
#include "train/checkpoint.h"

namespace myriad {

namespace fs = std::filesystem;

namespace {

bool is_folder_of(const fs::path& checkpoint, const fs::path& folder) {
  return fs::exists(folder) && fs::equivalent(run_of(checkpoint), folder);
}

}  // namespace

void refuse_another_run(const fs::path& folder, const fs::path& resume) {
  const bool resumes = !resume.empty() && is_folder_of(resume, folder);
  if (const std::vector<Checkpoint> old = checkpoints_of(folder); !old.empty() && !resumes) {
    throw Error(
        fmt::format("holds a run saved at step {}", old.back().step), folder,
        fmt::format("--resume {} goes on with it; --out names another folder", folder.string()));
  }
}

Resumed resume_run(Env& env, Job& job, const RunConfig& config, const TextData& text,
                   const fs::path& folder, const fs::path& from,
                   const std::vector<std::string>& allowed) {
  const Manifest saved = read_manifest(from);
  check_same_run(saved, manifest_of(config, text, saved.step), allowed);
  restore_run(job, from);
  const fs::path run = run_of(from);
  if (is_folder_of(from, folder)) {
    if (const Outcome o = set_later_aside(env, run, saved.step); !o.ok()) throw Failure(o.reason);
  }
  const auto lines = [&](const char* name) {
    return fs::exists(run / name) ? metrics_up_to(read_file(run / name), saved.step) : "";
  };
  return {.steps = saved.step,
          .first = saved.data_position,
          .lines = {lines(kMetricsFile), lines(kSamplesFile)}};
}

}  // namespace myriad
