// The ordered actions of every stage over lowered bodies: feeds, runs, sends, waits and receives of
// a step.
#pragma once

#include "passes/bodies.h"

namespace myriad {

// Fills in the program's buffers, states and actions. A send is waited for before the next one of
// its channel: one buffer of a channel is under way at a time.
void make_actions(const LoweredPieces& lowered, const Plan& plan, const LowerOptions& options,
                  const Schedule& schedule, Program& program);

}  // namespace myriad
