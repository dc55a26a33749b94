// The order of passes as text for people.
#pragma once

#include <string>
#include <string_view>

#include "passes/schedule.h"

namespace myriad {

// A line a stage, time to the right, a backward pass twice as long as a forward one: "f0.1" is the
// forward pass of chunk 0, micro-batch 1, "b" a backward pass, "." idle time, "~" what is under
// way. Lines that begin with '#' say nothing.
std::string schedule_text(const Schedule& schedule, int chunks);
// The order of passes back; throws Error naming the line.
Schedule parse_schedule(std::string_view text);

}  // namespace myriad
