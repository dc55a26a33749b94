// Small programs of every kind of work, run by the executor on this machine, and the processor time
// that each of their steps took. Processor time, not the clock: a busy machine changes it little.
#pragma once

#include <memory>
#include <vector>

#include "train/job.h"

namespace myriad {

// One run of a body on the ranks of one stage, whose parts are equal: by step the median over all
// runs.
struct TimedBody {
  int body, rank;  // rank: the first of the stage
  bool first;      // accum writes instead of adding
  int runs;        // on a rank, a step of the program
  std::vector<double> seconds;
};

struct TimedMessage {
  double bytes, seconds;  // of a receive, which copies
};

struct TimedProgram {
  std::unique_ptr<Job> job;
  std::vector<TimedBody> bodies;
  std::vector<TimedMessage> messages;
  double action_seconds = 0;  // median of actions that move nothing
  double step_seconds = 0;    // of the only worker in a whole step without the stopwatch, median
  // That time less all of the above, by passes of collectives and receives: what it costs a rank to
  // wait for others.
  double wait_seconds = 0;
};

// Steps the programs in turn for about `seconds`, each three times at least, on a pool of one
// worker.
std::vector<TimedProgram> time_programs(Pool& pool, DType real, double seconds);

// FLOPs a second of processor time that one core's best products of 1024 cubed in fp32 reach.
double matrix_rate(double seconds);

// The share h of its work that a rank alone is helped with: alone its worker takes t, helped by
// idle ones t ((1 - h) + h / workers). The quickest of several steps counts.
double parallel_share(int workers, double seconds);

}  // namespace myriad
