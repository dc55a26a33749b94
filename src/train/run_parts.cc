// Makes the parts of a run one after another. What is cheap and may be refused comes first, so that
// nobody waits for text to be read only to learn that the layout is impossible. Read
// train/run_parts.h first: it says why the parts stand in this order.
#include "train/run_parts.h"

#include "train/batches.h"
#include "train/evaluation.h"
#include "train/report.h"
#include "train/run_folder.h"

namespace myriad {

namespace {

JobConfig job_config_of(const RunConfig& c) {
  return {.model = c.model,
          .plan = c.plan,
          .rows = c.rows(),
          .sequence = c.train.sequence_length,
          .real = c.train.dtype,
          .optimizer = c.train.optimizer,
          .kernels = c.train.kernels};
}

Job::Options job_options_of(const RunConfig& c, const TrainOptions& options) {
  return {.rewrite = options.rewrite,
          .evaluation_rows = evaluation_rows(c),
          .generation = generation_of(c)};
}

TextData prepare_run(const RunConfig& config, const std::filesystem::path& folder,
                     const Console& console) {
  make_run_folder(folder);
  LiveLine line(console);
  return prepare_text(config, [&](const std::string& what) { line.note("data: " + what); });
}

}  // namespace

RunParts::RunParts(const RunConfig& config, const std::filesystem::path& folder,
                   const TrainOptions& options)
    : pool(config.train.workers),
      job(job_config_of(config), pool, job_options_of(config, options)),
      text(prepare_run(config, folder, options.console)),
      samples(training_rows(config, text)),
      held_out(text.held_out, config.train.sequence_length) {}

void RunParts::read_ahead(const RunConfig& config, int64_t first) {
  ahead.emplace([this, &config](int64_t step) { return training_batch(config, samples, step); },
                first, config.train.steps);
}

}  // namespace myriad
