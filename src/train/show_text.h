// Layouts and schedules as text for people.
#pragma once

#include <string>

#include "ir/plan.h"
#include "ir/program.h"
#include "passes/schedule.h"

namespace myriad {

// A line a stage, time to the right, a backward pass twice as long as a forward one: "f0.1" is the
// forward pass of chunk 0, micro-batch 1, "b" a backward pass, "." idle time, "~" what is under
// way. Lines that begin with '#' say nothing.
std::string schedule_text(const Schedule& schedule, int chunks);
// The order of passes back; throws Error naming the line.
Schedule parse_schedule(std::string_view text);

// The mesh, the rules of wanted layouts, every state at rest, and the named values of each body,
// with what rank 0 of a stage that has them holds. What stands in brackets is read by parse_layout.
std::string layout_text(const Program& program, const Pieces& pieces, const Plan& plan);

}  // namespace myriad
