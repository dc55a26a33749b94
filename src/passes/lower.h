// From model and plan to the one program. The order of passes stands in lower.cc alone.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "ir/program.h"
#include "passes/rules.h"
#include "passes/schedule.h"
#include "passes/strategy.h"

namespace myriad {

// The model's pieces for a number of rows in a micro-batch.
using Emit = std::function<Pieces(int64_t rows)>;

struct LowerOptions {
  int64_t rows = 1;               // of a step
  bool forward_only = false;      // evaluation, generation
  std::vector<std::string> keep;  // values of the head's forward body to hand out, e.g. "logits"
  std::function<Want(const Value&)> wanted;  // replaces the plan's rules; tests of random layouts
  bool check = true;  // run the checker (passes/check.h); the program is the same without
};

// `plan` is resolved (ir/plan.h). Throws Error where layout and model do not fit.
Program lower(const Emit& emit, const Plan& plan, const LowerOptions& options);

// The order of the passes of each stage.
Schedule schedule_of(const Plan& plan, const LowerOptions& options);

// Rows [lo, hi) of micro-batch j of m in a step of `rows` rows.
Range micro_batch_rows(int64_t rows, int micro_batches, int j);

}  // namespace myriad
