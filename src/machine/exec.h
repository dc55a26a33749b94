// The machine that computes: runs a program for all its ranks in this process, on virtual ranks
// that share a pool of workers.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/pool.h"
#include "comm/communicator.h"
#include "kernels/kernel.h"
#include "machine/exec_timing.h"
#include "machine/profile.h"
#include "machine/walker.h"

namespace myriad {

// One block of memory a rank, aligned to a page, zero at first.
class Arenas {
 public:
  explicit Arenas(const std::vector<int64_t>& bytes);
  std::byte* of(int rank) const { return memory_[rank].get(); }
  int64_t bytes(int rank) const { return bytes_[rank]; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::vector<std::unique_ptr<std::byte[], Free>> memory_;
  std::vector<int64_t> bytes_;
};

// Fills an input of the caller: `to` is the local part, lo its place in `input` of
// micro-batch `micro_batch` (-1: of the step).
using Feed = std::function<void(int rank, const Value& input, int micro_batch, const Tensor& to)>;
// Sees a buffer that a run has just made, before it may be freed. Called by several workers at
// once.
using Tap = std::function<void(int rank, const Action& action, int buffer, const Tensor& value)>;

struct ExecOptions {
  Kernels kernels;
  double stall_seconds = 60;
  // Between the ranks; none: make_threads_communicator.
  std::function<std::unique_ptr<Communicator>(int ranks, int ranks_per_node)> communicator = {};
};

// The first value, in order of the model (forward, backward, optimizer; micro-batch; unit; step),
// that holds something not finite.
struct BadTensor {
  std::string name;  // empty: none
  int rank = -1;
  std::array<int, 4> order{};  // stages run at their own pace: this tells what comes first
};

class Executor {
 public:
  // `plans` and `arenas`: one a rank. All references must outlive the executor. Throws Error if
  // ranks disagree on a transfer.
  Executor(const Program& program, std::vector<MemoryPlan> plans, Arenas& arenas, Pool& pool,
           ExecOptions options = {});
  ~Executor();

  // One step. If it stalled, the reason says who waits for whom; if a kernel failed, which op of
  // which body on which rank; if the communicator failed, which rank could not go on in which
  // action. A failure leaves ranks in the middle of their transfers, so every later step returns
  // the same one: to continue takes a new executor.
  Outcome step(const Feed& feed);

  // What the last step computed, sent and touched, counted where it happened.
  StepProfile measured() const;
  void set_tap(Tap tap);
  // Looks at every value made (a replay that hunts for the first bad one).
  void set_check_finite(bool on);
  BadTensor first_bad() const;
  // Notes the times of every action from the next step on; those of the last step that was timed.
  void set_timing(bool on);
  const std::vector<Stroke>& strokes(int rank) const;

  // Local part of a state; data null if the rank does not hold it.
  Tensor state(int rank, int index) const;
  const Program& program() const;

 private:
  struct Rank;
  struct Shared;
  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// Scratch an op's kernel asks for, for passes/memory.h.
size_t kernel_scratch(KernelSet set, const Op& op, const LabelSizes& local, DType real);

// Global values of a state, row-major, in double. set: every holder takes its part (initialise,
// then cut). get: pending sums are added in mesh order; where ranks hold the same part they must
// agree to the bit (throws Failure naming state and ranks).
void set_state(Executor& executor, int index, const std::function<double(int64_t element)>& value);
std::vector<double> get_state(const Executor& executor, int index);

// NaN equals itself; -0 and 0 differ.
bool same_bits(const std::vector<double>& a, const std::vector<double>& b);

// Collects the parts of one value that a tap saw into the global value.
class Collected {
 public:
  Collected(const Program& program, int buffer);
  void add(int rank, const Tensor& part);
  std::vector<double> whole(const std::string& name) const;  // as get_state

 private:
  struct Part {
    int rank;
    std::vector<double> data;
  };
  const Program& program_;
  Sizes sizes_;
  Layout layout_;
  std::vector<Part> parts_;
};

}  // namespace myriad
