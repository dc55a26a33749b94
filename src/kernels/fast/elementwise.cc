// Ops that work on single elements or on single rows: sums, casts, activations, the softmax of the
// loss, rotary positions and the optimizer. Each cuts its output into fixed blocks, which workers
// share, and gives rows of f32 to the primitives of fast/vector.h; bf16 goes through small buffers
// (fast/floats.h, to be read first).
#include <cmath>
#include <limits>

#include "kernels/call.h"
#include "kernels/fast/fast.h"
#include "kernels/fast/floats.h"
#include "kernels/fast/vector.h"

namespace myriad::fast {

namespace {

struct LogitRows {
  const Tensor& z;
  int64_t rows, v;
  explicit LogitRows(const Tensor& logits) : z(logits), rows(1), v(z.size[z.dims - 1]) {
    for (int d = 0; d + 1 < z.dims; ++d) rows *= z.size[d];
  }
  // Calls f(floats, n, place in the tensor) for a row: once where it is f32, else for each piece
  // that fits a buffer.
  template <class F>
  void each_piece(int64_t row, F&& f) const {
    if (z.dtype == DType::f32) return f(z.as<float>() + row * v, v, row * v);
    float buffer[kChunk];
    in_chunks(row * v, (row + 1) * v,
              [&](int64_t at, int64_t n) { f(load_row(z, at, n, buffer), n, at); });
  }
};

void rotate_neighbours(const float* in, const float* c, const float* s, float* out, int64_t pairs) {
  for (int64_t p = 0; p < pairs; ++p) {
    const float x1 = in[2 * p], x2 = in[2 * p + 1];
    out[2 * p] = x1 * c[p] - x2 * s[p];
    out[2 * p + 1] = x2 * c[p] + x1 * s[p];
  }
}

// An optimizer step without an update: what goes in comes out, bit for bit.
void keep_state(const KernelCall& call) {
  constexpr int kFrom[] = {0, 2, 3};  // the operands p, m and v
  for (size_t o = 0; o < call.outs.size(); ++o) {
    const Tensor &from = call.ins[kFrom[o]], &to = call.outs[o];
    if (from.data == to.data) continue;
    parallel_blocks(call.pool, to.elements(), 1, [&](int64_t lo, int64_t hi) {
      std::copy_n(from.as<float>() + lo, hi - lo, to.as<float>() + lo);
    });
  }
}

}  // namespace

void add(const KernelCall& call) {
  begin_f32_or_bf16(call);
  CHECK(call.ins.size() <= kMostTerms, "a sum of {} operands", call.ins.size());
  const int operands = static_cast<int>(call.ins.size());
  parallel_blocks(call.pool, call.outs[0].elements(), 1, [&](int64_t lo, int64_t hi) {
    float buffers[kMostTerms + 1][kChunk];
    in_chunks(lo, hi, [&](int64_t at, int64_t n) {
      const float* in[kMostTerms];
      for (int k = 0; k < operands; ++k) in[k] = load_row(call.ins[k], at, n, buffers[k]);
      vec::add_row(in, operands, target_row(call.outs[0], at, buffers[kMostTerms]), n);
      finish_row(call.outs[0], at, n, buffers[kMostTerms]);
    });
  });
}

void cast(const KernelCall& call) {
  begin_f32_or_bf16(call);
  map_floats<1>(call, [](const float* const* in, float* out, int64_t n) {
    if (in[0] != out) std::copy_n(in[0], n, out);
  });
}

void silu(const KernelCall& call) {
  begin_f32_or_bf16(call);
  map_floats<1>(
      call, [](const float* const* in, float* out, int64_t n) { vec::silu_row(in[0], out, n); });
}

void silu_grad(const KernelCall& call) {
  begin_f32_or_bf16(call);
  map_floats<2>(call, [](const float* const* in, float* out, int64_t n) {
    vec::silu_grad_row(in[0], in[1], out, n);
  });
}

void gelu(const KernelCall& call) {
  begin_f32_or_bf16(call);
  map_floats<1>(
      call, [](const float* const* in, float* out, int64_t n) { vec::gelu_row(in[0], out, n); });
}

void gelu_grad(const KernelCall& call) {
  begin_f32_or_bf16(call);
  map_floats<2>(call, [](const float* const* in, float* out, int64_t n) {
    vec::gelu_grad_row(in[0], in[1], out, n);
  });
}

void max_stop(const KernelCall& call) {
  begin_f32_or_bf16(call);
  const LogitRows z(call.ins[0]);
  parallel_blocks(call.pool, z.rows, z.v, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      float most = -std::numeric_limits<float>::infinity();
      z.each_piece(i, [&](const float* row, int64_t n, int64_t) {
        most = std::max(most, vec::max_row(row, n));
      });
      call.outs[0].as<float>()[i] = most;
    }
  });
}

void sum_exp(const KernelCall& call) {
  begin_f32_or_bf16(call);
  const LogitRows z(call.ins[0]);
  parallel_blocks(call.pool, z.rows, z.v, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      double sum = 0;
      const float m = call.ins[1].as<float>()[i];
      z.each_piece(
          i, [&](const float* row, int64_t n, int64_t) { sum += vec::sum_exp_row(row, m, n); });
      call.outs[0].as<float>()[i] = static_cast<float>(sum);
    }
  });
}

void exp_scale(const KernelCall& call) {
  begin_f32_or_bf16(call);
  const LogitRows z(call.ins[0]);
  parallel_blocks(call.pool, z.rows, z.v, [&](int64_t lo, int64_t hi) {
    float made[kChunk];
    for (int64_t i = lo; i < hi; ++i) {
      const float m = call.ins[1].as<float>()[i], dy = call.ins[2].as<float>()[i];
      z.each_piece(i, [&](const float* row, int64_t n, int64_t at) {
        vec::exp_scale_row(row, m, dy, target_row(call.outs[0], at, made), n);
        finish_row(call.outs[0], at, n, made);
      });
    }
  });
}

// Cosines and sines are computed once for each (b, s) and serve all of its heads.
void rope(const KernelCall& call) {
  begin_f32_or_bf16(call);
  const Tensor& x = call.ins[0];
  const Attrs& a = call.op->attrs;
  const int64_t h = x.size[x.dims - 1], half = h / 2;
  CHECK(h > 0 && half <= kMostPairs, "rope over {}", h);
  CHECK(
      h % 2 == 0 && a.frequencies != nullptr && static_cast<int64_t>(a.frequencies->size()) == half,
      "rope over {} with {} frequencies", h, a.frequencies ? a.frequencies->size() : 0);
  const int64_t tokens = x.size[0] * x.size[1], per_token = tokens == 0 ? 0 : x.elements() / tokens;
  const int32_t* positions = call.ins[1].as<int32_t>();
  parallel_blocks(call.pool, tokens, per_token, [&](int64_t lo, int64_t hi) {
    float c[kMostPairs], s[kMostPairs], read[2 * kMostPairs], made[2 * kMostPairs];
    for (int64_t i = lo; i < hi; ++i) {
      vec::angles_row(a.frequencies->data(), positions[i], a.mscale, a.sign, c, s, half);
      for (int64_t j = 0; j < per_token; j += h) {
        const int64_t at = i * per_token + j;
        const float* in = load_row(x, at, h, read);
        float* out = target_row(call.outs[0], at, made);
        if (a.style == RopeStyle::half) {
          vec::rotate_row(in, in + half, c, s, out, out + half, half);
        } else {
          rotate_neighbours(in, c, s, out, half);
        }
        finish_row(call.outs[0], at, h, made);
      }
    }
  });
}

void adamw(const KernelCall& call) {
  begin_f32(call);
  const double factor = scalar(call.ins[4]), lr = scalar(call.ins[5]);
  const double left1 = scalar(call.ins[6]), left2 = scalar(call.ins[7]);
  if (std::isnan(factor)) return keep_state(call);
  const Attrs& a = call.op->attrs;
  const vec::AdamW with{.factor = static_cast<float>(factor),
                        .rest1 = static_cast<float>(1 - a.beta1),
                        .rest2 = static_cast<float>(1 - a.beta2),
                        .step = static_cast<float>(lr / left1),
                        .root = static_cast<float>(1 / std::sqrt(left2)),
                        .eps = static_cast<float>(a.eps),
                        .decay = static_cast<float>(lr * a.decay)};
  parallel_blocks(call.pool, call.outs[0].elements(), 1, [&](int64_t lo, int64_t hi) {
    const auto in = [&](int i) { return call.ins[i].as<float>() + lo; };
    const auto out = [&](int i) { return call.outs[i].as<float>() + lo; };
    vec::adamw_row(with, {in(0), in(1), in(2), in(3), out(0), out(1), out(2)}, hi - lo);
  });
}

}  // namespace myriad::fast
