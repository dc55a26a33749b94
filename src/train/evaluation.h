// What a run asks its model on the way and at the end: how well it predicts the held-out text, and
// how it continues the prompts of the configuration.
#pragma once

#include <vector>

#include "data/samples.h"
#include "data/tokenizer.h"
#include "train/job.h"
#include "train/run_config.h"
#include "train/trainer.h"

namespace myriad {

// The rows of one call of the evaluation program: as many as fill the pipeline with micro-batches
// that are no larger than those of training.
int64_t evaluation_rows(const RunConfig& config);

// The generation programs that the prompts need; a run without prompts needs none. Passages are as
// long as the rows of training.
Generation generation_of(const RunConfig& config);

struct HeldOutLoss {
  double nats = 0;           // the sum over all targets
  double loss = 0;           // nats per target
  double bits_per_byte = 0;  // of the text
  double seconds = 0;        // that the evaluation took
};

// Runs the evaluation program over all held-out rows.
HeldOutLoss measure_held_out(Job& job, const HeldOutRows& held_out, const RunConfig& config);

// What the model makes of the prompts now. Each prompt is the beginning of a document; only the
// last tokens of one that is too long are read. The job was made with generation_of(config).
std::vector<Passage> continue_prompts(Job& job, const Tokenizer& tokenizer,
                                      const RunConfig& config);

}  // namespace myriad
