// Splits each move that sends into its two halves, `start` and `finish` (ir/flight.h).
#pragma once

#include "ir/program.h"

namespace myriad {

// In every body, puts `finish` right behind `start`: the same bytes in the same order, and a memory
// plan with the same peak. Versions keep their numbers; those in flight are numbered after them.
void split_moves(Program& program);

}  // namespace myriad
