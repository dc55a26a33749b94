// The timeline of one step for all ranks. `replay` walks the program with the measured duration of
// each rank's actions as if every rank had a device of its own: a rank waits only where a receive
// or a collective must wait for its peers. `as_run` is what the clock saw, with ranks taking turns
// on the workers.
#pragma once

#include <string>
#include <vector>

#include "machine/exec.h"

namespace myriad {

enum class BarKind : uint8_t { feed, forward, backward, optimizer, exchange, send, recv, wait };
inline constexpr int kBarKinds = 8;
const char* name_of(BarKind kind);

// exchange (a collective's own time) and wait may lie inside the bar of a run.
struct Bar {
  BarKind kind;
  int action;
  double start, end;  // seconds from the beginning of the step
};

struct Timeline {
  std::vector<std::vector<Bar>>
      ranks;                         // by rank, in order of start; a run before what lies inside it
  std::vector<double> useful, idle;  // seconds by stage, mean of its ranks: runs of micro-batches;
                                     // waiting, that for the end included
  double seconds = 0;
  double bubble() const;  // mean over stages of idle over useful time
};

// Of the last timed step (Executor::set_timing). Empty if none was.
Timeline replay(const Executor& executor);
// strokes: by rank, one for each action of its own and each step of a run.
Timeline replay(const Program& program, const std::vector<std::vector<Stroke>>& strokes);
Timeline as_run(const Executor& executor);

// Chrome-trace JSON (chrome://tracing, Perfetto), a row a rank: process 0 is the replay, process 1
// as it ran.
std::string chrome_trace(const Executor& executor);

}  // namespace myriad
