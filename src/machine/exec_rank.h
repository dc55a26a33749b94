// One rank of an Executor: a task that walks the program. For exec.cc and exec_run.cc.
#pragma once

#include "machine/exec.h"
#include "machine/exec_memory.h"

namespace myriad {

struct Executor::Shared {
  const Program& program;
  Arenas& arenas;
  Pool& pool;
  ExecOptions options;
  std::unique_ptr<Communicator> comm;
  const Feed* feed = nullptr;
  Tap tap;
  bool check_finite = false, timing = false;
};

struct Executor::Rank : Task, Machine {
  Rank(Shared& shared, int number, MemoryPlan plan);
  void restart();

  Progress resume() override;
  Progress act(const At& at, const Action& a) override;
  Progress step(const At& at, const Action& a, const LoweredBody& body, const Step& step) override;
  int rounds(const At& at, const Action& a, const LoweredBody& body) override;
  void ran(const At& at, const Action& a) override;

  Progress run_op(const At& at, const Action& a, const LoweredBody& body, const Step& step);
  Progress start(const At& at, const Action& a, const LoweredBody& body, const Step& step);
  Progress move_and_wait(const At& at, const Action& a, const LoweredBody& body, const Step& step);
  void move_here(const At& at, const Action& a, const Step& step);
  Progress going_on(Progress p, const Action& a);
  Progress fail(std::string reason);

  Shared& s;
  const int rank;
  RankMemory memory;
  Walker walker;
  Stopwatch stopwatch;
  Meter meter;
  const std::vector<int> handles;  // see prepare_transfers
  std::vector<Tensor> ins, outs;
  RowChoice local_rows;
  bool inside = false;  // has started the blocking move it waits in
  std::array<int64_t, kRows> ops{};
  BadTensor bad;
  std::string failure;  // why it can never go on; empty: it can
};

}  // namespace myriad
