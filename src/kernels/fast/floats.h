// Rows of f32 and bf16 tensors as floats: in place where they are f32, else by way of a small
// buffer. So one kernel computes in f32 on either storage, and what it stores as bf16 is rounded
// once.
#pragma once

#include "kernels/call.h"
#include "kernels/fast/vector.h"

namespace myriad::fast {

constexpr int64_t kChunk = 1024;  // floats of a buffer: a few stay in the nearest cache

// Every tensor with labels is f32 or bf16, or no real number at all. Scalars may be f64.
inline bool no_f64(const KernelCall& call) {
  for (const auto& tensors : {call.ins, call.outs}) {
    for (const Tensor& t : tensors) {
      if (t.dims > 0 && t.dtype == DType::f64) return false;
    }
  }
  return call.outs[0].dtype != DType::f64;
}

// begin() of a kernel that computes in f32 on either storage. The table gave it no f64.
inline void begin_f32_or_bf16(const KernelCall& call) {
  begin(call);
  CHECK(no_f64(call), "row {}: a kernel for f32 and bf16 was given f64",
        static_cast<int>(call.op->row));
}

// begin() of a kernel that takes f32 only: neither f64 nor bf16.
inline void begin_f32(const KernelCall& call) {
  begin_f32_or_bf16(call);
  for (const auto& tensors : {call.ins, call.outs}) {
    for (const Tensor& t : tensors) {
      CHECK(t.dims == 0 || t.dtype != DType::bf16, "row {}: a kernel for f32 was given bf16",
            static_cast<int>(call.op->row));
    }
  }
}

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
