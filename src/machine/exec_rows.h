// Routed rows while they run: which rows a rank holds in this round, and which of them go to whom.
#pragma once

#include <deque>
#include <vector>

#include "comm/communicator.h"
#include "kernels/kernel.h"

namespace myriad {

// Global ranges of experts, rows and positions.
struct Box3 {
  Range e, b, s;
  bool operator==(const Box3&) const = default;
};

// The rows of one box, local indices.
struct BoxRows {
  const std::byte* choices = nullptr;  // that define them
  Box3 box;
  std::vector<int32_t> e, b, s;
  RowSet set;
};

// The rows of the boxes that a rank has asked for since the last window.
class RoundRows {
 public:
  // choices: "bsj", covering the box's b and s.
  const BoxRows& get(const Tensor& choices, const Box3& box);
  void clear() { used_ = 0; }

 private:
  std::deque<BoxRows> boxes_;  // the first `used_` are of this round; memory is kept
  size_t used_ = 0;
};

// A list of rows with its memory.
struct RowChoice {
  RowList list;
  void take_all(int64_t n) { list = {n, nullptr}; }
  void take(const BoxRows& rows, const Box3& within);  // those that lie in the box

 private:
  std::vector<int32_t> index_;
};

// An op on routed rows (works_on_rows), once it is known how many there are. call.op is the
// collapsed op (kernels/grouped.h), call.local the local sizes of the labels of the op itself.
KernelStatus run_on_rows(KernelCall call, DType real, const Kernels& kernels);

}  // namespace myriad
