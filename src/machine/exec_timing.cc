#include "machine/exec_timing.h"

#include <time.h>

namespace myriad {

namespace {

// A blocked call that was no longer than this only looked whether its peers had come.
constexpr double kLookSeconds = 2e-6;

double seconds_of(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double now() { return seconds_of(CLOCK_MONOTONIC); }
double worked() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace

void Stopwatch::restart() {
  strokes_.clear();
  open_ = false;
}

Progress Stopwatch::advance(Walker& walker, Machine& machine) {
  const int action = walker.at().action;
  const double from = now(), worked_before = worked();
  const Progress p = walker.advance(machine);
  if (p == Progress::done || p == Progress::failed) return p;
  const double busy = worked() - worked_before, to = now();
  if (!open_) strokes_.push_back({.action = action, .begin = from});
  Stroke& stroke = strokes_.back();
  stroke.end = to;
  if (p == Progress::advanced || busy > kLookSeconds) stroke.busy += busy;
  open_ = p == Progress::blocked;
  return p;
}

}  // namespace myriad
