// One walk. A Machine is what actions and steps *do* (execute, count, print); a Walker steps one
// rank of a program through it and can be stopped and resumed anywhere, so that one thread can walk
// thousands of ranks.
#pragma once

#include "base/pool.h"
#include "ir/program.h"

namespace myriad {

// Where a walker stands. `flat` numbers actions (of their own) and steps of runs through the whole
// step, from 0.
struct At {
  int rank, stage;
  int action, step;  // step -1: an action that is no run
  int flat;
  int round = 0;  // of a loop body
};

class Machine {
 public:
  virtual ~Machine() = default;
  // feed, send, wait, recv, zero.
  virtual Progress act(const At& at, const Action& action) = 0;
  // One step of a run.
  virtual Progress step(const At& at, const Action& action, const LoweredBody& body,
                        const Step& step) = 0;
  // Before the first step of a loop body: how many rounds it takes, the same on all ranks that its
  // collectives join.
  virtual int rounds(const At&, const Action&, const LoweredBody&) { return 1; }
  // After the last step of a run.
  virtual void ran(const At&, const Action&) {}
};

class Walker {
 public:
  Walker(const Program& program, int rank);
  // One action or step: advanced, blocked (call again later), done, or failed as the machine says.
  Progress advance(Machine& machine);
  const At& at() const { return at_; }
  void restart();

 private:
  const Program* program_;
  At at_;
  int rounds_ = 1;
};

// Walks all ranks in turn in one thread. Throws Error if none can advance, or one fails.
void walk_all(const Program& program, Machine& machine);

}  // namespace myriad
