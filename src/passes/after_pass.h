// What may be done after each pass of lowering: check the program in the making, and show it.
#pragma once

#include <string>

#include "passes/bodies.h"

namespace myriad {

// Runs the checker of the level that the program in the making has reached: of graphs
// (passes/check_graph.h), then of laid-out bodies (passes/check_body.h), and once there are actions
// of the whole program (passes/check.h). Throws Error.
void check_after_pass(const Lowering& l);

// Every pass with what it changed, checked: bodies whose text is another one than after the pass
// before, and the lines that a program has gained.
std::string show_passes(const Emit& emit, const Plan& plan, const LowerOptions& options);

}  // namespace myriad
