// Rows of f32 and bf16 tensors as floats: in place where they are f32, else by way of a small
// buffer. So one kernel computes in f32 on either storage, and what it stores as bf16 is rounded
// once.
#pragma once

#include "kernels/call.h"
#include "kernels/fast/vector.h"

namespace myriad::fast {

constexpr int64_t kChunk = 1024;  // floats of a buffer: a few stay in the nearest cache

inline const float* load_row(const Tensor& t, int64_t at, int64_t n, float* buffer) {
  if (t.dtype == DType::f32) return t.as<float>() + at;
  vec::widen_row(t.as<Bf16>() + at, buffer, n);
  return buffer;
}

// Where to make a row that finish_row then brings to its place.
inline float* target_row(const Tensor& t, int64_t at, float* buffer) {
  return t.dtype == DType::f32 ? t.as<float>() + at : buffer;
}

inline void finish_row(const Tensor& t, int64_t at, int64_t n, const float* buffer) {
  if (t.dtype != DType::f32) vec::narrow_row(buffer, t.as<Bf16>() + at, n);
}

// f(first, n) over [lo, hi) in pieces that fit a buffer.
template <class F>
void in_chunks(int64_t lo, int64_t hi, F&& f) {
  for (; lo < hi; lo += kChunk) f(lo, std::min(kChunk, hi - lo));
}

// out[i] = f(x[i], y[i], ...) for operands of one shape: f(const float* const* in, float* out, n).
template <int N, class F>
void map_floats(const KernelCall& call, F&& f) {
  parallel_blocks(call.pool, call.outs[0].elements(), 1, [&](int64_t lo, int64_t hi) {
    float buffers[N + 1][kChunk];
    in_chunks(lo, hi, [&](int64_t at, int64_t n) {
      const float* in[N];
      for (int k = 0; k < N; ++k) in[k] = load_row(call.ins[k], at, n, buffers[k]);
      float* out = target_row(call.outs[0], at, buffers[N]);
      f(in, out, n);
      finish_row(call.outs[0], at, n, buffers[N]);
    });
  });
}

}  // namespace myriad::fast
