// The checker of programs: what must hold before anything runs.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/program.h"

namespace myriad {

struct CheckReport {
  // By stage: most forward passes (of units) whose backward is still to come.
  std::vector<int> peak_live_micro_batches;
  int64_t messages = 0;  // sends per rank column
};

// Walks all stages together with zero buffering: a send completes only when its receiver has
// reached the recv. Proves, or throws Error naming stage and action:
//
// - each buffer is written before it is read, written once, and of the sizes, type and layout that
//   the body expects; a run of micro-batch j reads nothing that another micro-batch made;
// - sends and receives match by channel in order, with equal layouts; a channel has one direction;
//   each send has its wait after it;
// - a body with collectives over stages is run by all of them together, in one order;
// - no deadlock, else the cycle: "stage 0 waits in wait c3 (y/L0.mb0) for stage 1, which ...";
// - runs that accumulate go in micro-batch order, unit by unit; the backward runs of a unit's first
//   micro-batch, and no other runs, say that they are the first;
// - states used are held by the stage and lie as the body expects;
// - bodies make each version once and before its use; operands and results of an op lie as its cuts
//   say; a move leads from its source's layout to its destination's. So collectives are the same
//   for all ranks of a stage; layouts know of stages only in bodies that all stages run.
CheckReport check_program(const Program& program);

}  // namespace myriad
