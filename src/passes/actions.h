// The ordered actions of every stage over lowered bodies: feeds, runs, sends, waits and receives of
// a step.
#pragma once

#include "passes/bodies.h"

namespace myriad {

// Fills in the program's buffers, states and actions. lag: how many sends of a channel may be under
// way before the next must wait for the first.
void make_actions(const LoweredPieces& lowered, const Plan& plan, const LowerOptions& options,
                  int lag, Program& program);

}  // namespace myriad
