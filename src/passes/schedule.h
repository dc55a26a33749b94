// Pipeline schedules as data: for each stage the order of its forward and backward passes. Virtual
// stage k = chunk * stages + stage lies on stage k mod stages.
#pragma once

#include <vector>

#include "ir/schedules.h"

namespace myriad {

struct Slot {
  bool forward;
  int chunk;
  int micro_batch;
  bool operator==(const Slot&) const = default;
};
using Schedule = std::vector<std::vector<Slot>>;  // by stage

// Throws Error naming rule, values and nearest legal values: stages, chunks, micro_batches < 1;
// interleaved with 1 chunk or with fewer micro-batches than stages; those of one chunk a stage
// (ir/schedules.h) with more than one.
//
// Interleaved: Narayanan et al. 2021 (SC'21), generalised to any m >= p: groups of p micro-batches,
// the last group shorter. It is the order for the next multiple of p without the micro-batches that
// do not exist: leaving out whole micro-batches breaks no dependency, so there is no deadlock.
// Forward only: any numbers; chunks in order of depth within each group of p micro-batches.
Schedule make_schedule(ScheduleKind kind, int stages, int chunks, int micro_batches);

// Every chunk runs each micro-batch forward once, then backward once; forward and backward passes
// of a chunk each in micro-batch order (then sums have one order, and messages of one boundary one
// queue); throws Error.
void check_schedule(const Schedule& schedule, int chunks, int micro_batches,
                    bool forward_only = false);

}  // namespace myriad
