// Where what a rank holds is: its bodies, the plan of its memory, and the rows of this round.
#pragma once

#include <vector>

#include "machine/exec_prepare.h"
#include "machine/walker.h"

namespace myriad {

class RankMemory {
 public:
  // plan: offsets into `arena`.
  RankMemory(const Program& program, int rank, MemoryPlan plan, std::byte* arena,
             const Kernels& kernels);

  // Tensors with their memory. Of routed rows as many as there are in this round.
  Tensor version(const Action& a, int action, int v);
  Tensor buffer(int index) const;
  Tensor state(int index) const;  // data null if the rank does not hold it
  // The same as `version`, but of routed rows without their number.
  Tensor place(const Action& a, int action, int v) const;
  std::byte* scratch(const At& at) const {
    return arena_ + plan_.actions[at.action].scratch[at.step];
  }

  // Rows of a sparse version in this round, which the last window began.
  const BoxRows& rows_of(const Action& a, int action, int v);
  void begin_round() { rows_.clear(); }

  PreparedBody& body(const Action& a) { return bodies_[a.body]; }

 private:
  const Program& program_;
  const int rank_;
  const MemoryPlan plan_;
  std::byte* const arena_;
  std::vector<PreparedBody> bodies_;
  RoundRows rows_;
};

}  // namespace myriad
