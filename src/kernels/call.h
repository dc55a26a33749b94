// What every kernel shares: the opening (checks, touches, counts), dtype dispatch, and loops over a
// fixed grid.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>

#include "kernels/kernel.h"

namespace myriad {

// To be called first by every kernel, on the thread of the rank. CHECKs that the tensors have the
// types of the op and that dimension d of a tensor has the local size of its label d (in routed
// rows, "ebs..." is [n, rest...]); touches the tensors and the scratch; counts the FLOPs.
void begin(const KernelCall& call);

// FLOPs of a call by the sizes of its tensors; same definition as RowInfo::work, but not through
// it.
double count_flops(const KernelCall& call);
// What the table of kernels says: FLOPs an element of the first operand, of ops whose count is of
// that form.
double flops_an_element(Row row);

// For topk, x "bsx" -> out "bsj": CHECKs that j is attrs.k and that x divides into the groups.
void check_topk(const KernelCall& call);

// Calls f(i) for i in [0, n) on the pool, or in line if there is none. `n` must be a function of
// shapes only. Does not allocate.
template <class F>
void parallel(Pool* pool, int64_t n, F&& f) {
  if (pool == nullptr || n <= 1) {
    for (int64_t i = 0; i < n; ++i) f(i);
  } else {
    pool->parallel_for(n, std::ref(f));
  }
}

constexpr int64_t kBlock = 16384;  // elements of one task of a bandwidth-bound kernel

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Calls f(lo, hi) for fixed blocks of [0, n), each of about kBlock / weight: `weight` says how many
// elements belong to one of the n.
template <class F>
void parallel_blocks(Pool* pool, int64_t n, int64_t weight, F&& f) {
  const int64_t block = std::max<int64_t>(1, kBlock / std::max<int64_t>(1, weight));
  parallel(pool, ceil_div(n, block),
           [&](int64_t i) { f(i * block, std::min(n, (i + 1) * block)); });
}

// Calls f(T()), where T is the C++ type of a real dtype.
template <class F>
void by_real(DType t, F&& f) {
  CHECK(is_real(t), "dtype is {}", name_of(t));
  if (t == DType::f32) {
    f(float());
  } else if (t == DType::f64) {
    f(double());
  } else {
    f(Bf16());
  }
}

// Calls f(T(), U()) with the C++ types of two real dtypes.
template <class F>
void by_reals(DType t, DType u, F&& f) {
  by_real(t, [&](auto a) { by_real(u, [&](auto b) { f(a, b); }); });
}

// Element i of a tensor of any real dtype, or the only one of a tensor without dimensions.
inline double real_at(const Tensor& t, int64_t i) {
  if (t.dtype == DType::f32) return static_cast<double>(t.as<float>()[i]);
  return t.dtype == DType::f64 ? t.as<double>()[i] : static_cast<double>(t.as<Bf16>()[i]);
}
inline double scalar(const Tensor& t) { return real_at(t, 0); }

}  // namespace myriad
