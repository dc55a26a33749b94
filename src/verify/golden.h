// The model under a layout against tensors that other implementations computed in double precision.
// A case is a folder with config.json, model.safetensors, batches.safetensors, expected.json,
// expected.safetensors and after.safetensors (tests/golden/README.md).
#pragma once

#include <string>

#include "train/job.h"

namespace myriad {

struct GoldenReport {
  std::string name, layout;
  double logits = 0, loss = 0, gradient = 0, norm = 0,
         after = 0;           // errors, see tests/golden/README.md
  std::string gradient_name;  // of the worst gradient, as published
  int64_t routing = 0;        // differing counts of tokens per expert and of dropped choices
  bool ok = false;
};

// `plan` is resolved here against the case's layers and rows. Throws Error where the case cannot be
// run so. options: rewrites, to plant faults.
GoldenReport verify_golden(const std::string& folder, Plan plan, DType real, Pool& pool,
                           KernelSet kernels = KernelSet::fast, Job::Options options = {});

}  // namespace myriad
