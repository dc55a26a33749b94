// When a rank began and ended each action and each step of a run, for timelines. Virtual ranks
// share workers: `busy` is the processor time that its worker spent on it: neither what it was
// blocked nor what the system gave to others.
#pragma once

#include <vector>

#include "machine/walker.h"

namespace myriad {

// One action of its own, or one step of a run in one round; in the order in which the rank went
// through them.
struct Stroke {
  int action = 0;
  double begin = 0, end = 0,
         busy = 0;  // seconds; begin and end on the steady clock, the same for all ranks
};

class Stopwatch {
 public:
  void restart();
  // Walker::advance, with a note of its time.
  Progress advance(Walker& walker, Machine& machine);
  const std::vector<Stroke>& strokes() const { return strokes_; }

 private:
  std::vector<Stroke> strokes_;
  bool open_ = false;  // the last stroke is blocked
};

}  // namespace myriad
