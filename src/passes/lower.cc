#include "passes/lower.h"

#include "passes/actions.h"
#include "passes/bodies.h"
#include "passes/check.h"

namespace myriad {

Range micro_batch_rows(int64_t rows, int micro_batches, int j) {
  return {j * rows / micro_batches, (j + 1) * rows / micro_batches};
}

Schedule schedule_of(const Plan& plan, const LowerOptions& options) {
  const ScheduleKind kind =
      options.forward_only ? ScheduleKind::forward_only : schedule_named(plan.schedule);
  return make_schedule(kind, plan.pp, plan.vpp, plan.micro_batches);
}

Program lower(const Emit& emit, const Plan& plan, const LowerOptions& options) {
  Program program;
  const LoweredPieces lowered =
      lower_pieces(emit, plan, options, program);  // differentiate, recompute, shard
  const Schedule schedule = schedule_of(plan, options);
  make_actions(lowered, plan, options, schedule, sends_in_flight(schedule, plan.vpp), program);
  if (options.check) check_program(program);
  return program;
}

}  // namespace myriad
