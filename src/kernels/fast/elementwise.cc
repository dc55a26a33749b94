#include <cmath>

#include "kernels/call.h"
#include "kernels/fast/fast.h"
#include "kernels/fast/vector.h"
#include "kernels/ref/ref.h"

namespace myriad::fast {

namespace {

struct LogitRows {
  int64_t rows, v;
  explicit LogitRows(const Tensor& z) : rows(1), v(z.size[z.dims - 1]) {
    for (int d = 0; d + 1 < z.dims; ++d) rows *= z.size[d];
  }
};

}  // namespace

void add(const KernelCall& call) {
  constexpr size_t kMost = 16;
  if (!all_f32(call) || call.ins.size() > kMost) return ref::add(call);
  begin(call);
  parallel_blocks(call.pool, call.outs[0].elements(), 1, [&](int64_t lo, int64_t hi) {
    const float* in[kMost];
    for (size_t k = 0; k < call.ins.size(); ++k) in[k] = call.ins[k].as<float>() + lo;
    vec::add_row(in, static_cast<int>(call.ins.size()), call.outs[0].as<float>() + lo, hi - lo);
  });
}

void silu(const KernelCall& call) {
  if (!all_f32(call)) return ref::silu(call);
  begin(call);
  parallel_blocks(call.pool, call.outs[0].elements(), 1, [&](int64_t lo, int64_t hi) {
    vec::silu_row(call.ins[0].as<float>() + lo, call.outs[0].as<float>() + lo, hi - lo);
  });
}

void silu_grad(const KernelCall& call) {
  if (!all_f32(call)) return ref::silu_grad(call);
  begin(call);
  parallel_blocks(call.pool, call.outs[0].elements(), 1, [&](int64_t lo, int64_t hi) {
    vec::silu_grad_row(call.ins[0].as<float>() + lo, call.ins[1].as<float>() + lo,
                       call.outs[0].as<float>() + lo, hi - lo);
  });
}

void gelu(const KernelCall& call) {
  if (!all_f32(call)) return ref::gelu(call);
  begin(call);
  parallel_blocks(call.pool, call.outs[0].elements(), 1, [&](int64_t lo, int64_t hi) {
    vec::gelu_row(call.ins[0].as<float>() + lo, call.outs[0].as<float>() + lo, hi - lo);
  });
}

void gelu_grad(const KernelCall& call) {
  if (!all_f32(call)) return ref::gelu_grad(call);
  begin(call);
  parallel_blocks(call.pool, call.outs[0].elements(), 1, [&](int64_t lo, int64_t hi) {
    vec::gelu_grad_row(call.ins[0].as<float>() + lo, call.ins[1].as<float>() + lo,
                       call.outs[0].as<float>() + lo, hi - lo);
  });
}

void max_stop(const KernelCall& call) {
  if (!all_f32(call)) return ref::max_stop(call);
  begin(call);
  const LogitRows z(call.ins[0]);
  parallel_blocks(call.pool, z.rows, z.v, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i)
      call.outs[0].as<float>()[i] = vec::max_row(call.ins[0].as<float>() + i * z.v, z.v);
  });
}

void sum_exp(const KernelCall& call) {
  if (!all_f32(call)) return ref::sum_exp(call);
  begin(call);
  const LogitRows z(call.ins[0]);
  parallel_blocks(call.pool, z.rows, z.v, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      call.outs[0].as<float>()[i] = static_cast<float>(
          vec::sum_exp_row(call.ins[0].as<float>() + i * z.v, call.ins[1].as<float>()[i], z.v));
    }
  });
}

void exp_scale(const KernelCall& call) {
  if (!all_f32(call)) return ref::exp_scale(call);
  begin(call);
  const LogitRows z(call.ins[0]);
  parallel_blocks(call.pool, z.rows, z.v, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      vec::exp_scale_row(call.ins[0].as<float>() + i * z.v, call.ins[1].as<float>()[i],
                         call.ins[2].as<float>()[i], call.outs[0].as<float>() + i * z.v, z.v);
    }
  });
}

// Cosines and sines once per (b, s), for all its heads.
void rope(const KernelCall& call) {
  constexpr int64_t kMostPairs = 512;
  const Tensor& x = call.ins[0];
  const Attrs& a = call.op->attrs;
  const int64_t h = x.size[x.dims - 1], half = h / 2;
  if (!all_f32(call) || half > kMostPairs || h == 0) return ref::rope(call);
  begin(call);
  CHECK(
      h % 2 == 0 && a.frequencies != nullptr && static_cast<int64_t>(a.frequencies->size()) == half,
      "rope over {} with {} frequencies", h, a.frequencies ? a.frequencies->size() : 0);
  const int64_t tokens = x.size[0] * x.size[1], per_token = tokens == 0 ? 0 : x.elements() / tokens;
  const int32_t* positions = call.ins[1].as<int32_t>();
  parallel_blocks(call.pool, tokens, per_token, [&](int64_t lo, int64_t hi) {
    float c[kMostPairs], s[kMostPairs];
    for (int64_t i = lo; i < hi; ++i) {
      vec::angles_row(a.frequencies->data(), positions[i], a.mscale, a.sign, c, s, half);
      for (int64_t j = 0; j < per_token; j += h) {
        const float* in = x.as<float>() + i * per_token + j;
        float* out = call.outs[0].as<float>() + i * per_token + j;
        if (a.style == RopeStyle::half) {
          vec::rotate_row(in, in + half, c, s, out, out + half, half);
          continue;
        }
        for (int64_t p = 0; p < half; ++p) {
          const float x1 = in[2 * p], x2 = in[2 * p + 1];
          out[2 * p] = x1 * c[p] - x2 * s[p];
          out[2 * p + 1] = x2 * c[p] + x1 * s[p];
        }
      }
    }
  });
}

void adamw(const KernelCall& call) {
  const double factor = scalar(call.ins[4]), lr = scalar(call.ins[5]);
  const double left1 = scalar(call.ins[6]), left2 = scalar(call.ins[7]);
  if (std::isnan(factor) || call.outs[0].dtype != DType::f32) return ref::adamw(call);
  begin(call);
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
