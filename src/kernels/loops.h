// The index rule of a contract (or broadcast) as nested loops with strides: first those over output
// labels, in the order of the output, then those over contracted labels. Loops of size 1 are
// dropped and neighbours that are contiguous in every operand are merged, so that few loops with
// long rows remain. The order of points never changes.
#pragma once

#include <array>
#include <span>

#include "kernels/kernel.h"

namespace myriad {

constexpr int kMaxOperands = 4;
constexpr int kOut = kMaxOperands;  // index of the output among the strides

using Offsets = std::array<int64_t, kMaxOperands + 1>;  // in elements; unused ones 0

struct Loop {
  int64_t size = 1;
  Offsets stride = {};
};

struct LoopNest {
  static constexpr int kMaxLoops = 16;
  int operands = 0;                            // that are not scalars
  std::array<int, kMaxOperands> operand = {};  // which of the op they are
  int outs = 0, sums = 0;
  std::array<Loop, kMaxLoops> out, sum;

  std::span<const Loop> out_loops() const { return {out.data(), static_cast<size_t>(outs)}; }
  std::span<const Loop> sum_loops() const { return {sum.data(), static_cast<size_t>(sums)}; }
  // All strides of the operands are 0 or 1.
  bool streams(const Loop& loop) const;
};

// Operands without labels (scalars) are left out: multiply the scale by them.
LoopNest make_nest(const Op& op, const LabelSizes& local);

int64_t points(std::span<const Loop> loops);

// Steps through the points of some loops in order, keeping the offsets of operands and output.
class Walk {
 public:
  Walk(std::span<const Loop> loops, int64_t start = 0);
  const Offsets& at() const { return at_; }
  void next() {
    for (int d = static_cast<int>(loops_.size()) - 1; d >= 0; --d) {
      const Loop& loop = loops_[d];
      for (int i = 0; i <= kOut; ++i) at_[i] += loop.stride[i];
      if (++index_[d] < loop.size) return;
      for (int i = 0; i <= kOut; ++i) at_[i] -= loop.stride[i] * loop.size;
      index_[d] = 0;
    }
  }

 private:
  std::span<const Loop> loops_;
  std::array<int64_t, LoopNest::kMaxLoops> index_;
  Offsets at_ = {};
};

}  // namespace myriad
