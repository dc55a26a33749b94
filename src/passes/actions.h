// The ordered actions of every stage over lowered bodies: feeds, runs, sends, waits and receives of
// a step.
#pragma once

#include "passes/bodies.h"

namespace myriad {

// Fills in the program's buffers, states and actions. lag: see sends_in_flight.
void make_actions(const LoweredPieces& lowered, const Plan& plan, const LowerOptions& options,
                  const Schedule& schedule, int lag, Program& program);

}  // namespace myriad
