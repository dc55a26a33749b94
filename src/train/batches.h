// The rows of a run as the batches that a job takes.
#pragma once

#include "data/samples.h"
#include "train/job.h"
#include "train/run_config.h"

namespace myriad {

// The batch of training step `step`, which counts from 1: a function of its arguments alone.
Batch training_batch(const RunConfig& config, const MixedSamples& samples, int64_t step);

// `count` held-out rows of `length` tokens from row `first` on. Rows beyond the last one have no
// targets, so they add nothing to a loss.
Batch held_out_batch(const HeldOutRows& held_out, int64_t first, int64_t count, int64_t length);

}  // namespace myriad
