#include "passes/lower.h"

#include "base/error.h"
#include "passes/actions.h"
#include "passes/bodies.h"
#include "passes/check.h"
#include "passes/split_moves.h"

namespace myriad {

Range micro_batch_rows(int64_t rows, int micro_batches, int j) {
  return {j * rows / micro_batches, (j + 1) * rows / micro_batches};
}

Program lower(const Emit& emit, const Plan& plan, const LowerOptions& options) {
  Program program;
  const LoweredPieces lowered =
      lower_pieces(emit, plan, options, program);  // differentiate, recompute, shard
  split_moves(program);
  for (int lag = 1;; lag *= 2) {  // the shortest delay of the waits for sends that cannot deadlock
    make_actions(lowered, plan, options, lag, program);  // schedule
    if (!options.check) return program;
    try {
      check_program(program);
      return program;
    } catch (const Error&) {
      if (lag > plan.micro_batches) throw;
    }
  }
}

}  // namespace myriad
