// The pairs (e, b, s) that choices "bsj" name, and where they are in dense tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernel.h"

namespace myriad {

// Lists the pairs of the box e x b x s (global ranges) in the order (e, b, s), as indices local to
// the box. `choices`: i32, dims b, s, j, with their lo; it must cover b and s. Negative choices are
// none; no token chooses an expert twice.
void enumerate_rows(const Tensor& choices, Range e, Range b, Range s, std::vector<int32_t>& row_e,
                    std::vector<int32_t>& row_b, std::vector<int32_t>& row_s);
// How many pairs the box has.
int64_t count_rows(const Tensor& choices, Range e, Range b, Range s);

// The token of row i of a call's routed rows, as an index into the leading dims b, s of a dense
// tensor, whose tokens are `width` elements wide. CHECKs that the tensor covers the call's b and s.
class TokensOfRows {
 public:
  TokensOfRows(const KernelCall& call, const Tensor& dense);
  int64_t operator()(int64_t i) const { return first_ + b_[i] * s_size_ + s_[i]; }
  int64_t width;

 private:
  int64_t first_, s_size_;
  const int32_t *b_, *s_;
};

}  // namespace myriad
