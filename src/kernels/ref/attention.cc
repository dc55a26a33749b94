// Rotary positions and attention by their definitions: one query at a time over all keys. What a
// query may see is decided by the values of positions and documents, never by a local index, so
// that a rank may hold any part of the sequence in any order.
#include <cmath>
#include <limits>

#include "kernels/call.h"
#include "kernels/ref/ref.h"

namespace myriad::ref {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

// Sizes and offsets of q "bsgrh", k "btgh", v and o "btgu", "bsgru", lse "bsgr".
struct Dims {
  int64_t b, s, g, r, h, t, u;
  Dims(const Tensor& q, const Tensor& k, const Tensor& v)
      : b(q.size[0]),
        s(q.size[1]),
        g(q.size[2]),
        r(q.size[3]),
        h(q.size[4]),
        t(k.size[1]),
        u(v.size[3]) {}
  int64_t query(int64_t ib, int64_t is, int64_t ig, int64_t ir) const {
    return ((ib * s + is) * g + ig) * r + ir;
  }
  int64_t key(int64_t ib, int64_t it, int64_t ig) const { return (ib * t + it) * g + ig; }
};

struct Visible {
  const int32_t *pos_q, *pos_k, *doc_q, *doc_k;
  explicit Visible(std::span<const Tensor> where)
      : pos_q(where[0].as<int32_t>()),
        pos_k(where[1].as<int32_t>()),
        doc_q(where[2].as<int32_t>()),
        doc_k(where[3].as<int32_t>()) {}
  bool operator()(int64_t query, int64_t key) const {
    return pos_q[query] >= pos_k[key] && doc_q[query] == doc_k[key];
  }
};

template <class T>
double dot(const T* a, const T* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

template <class T>
void rope_typed(const KernelCall& call) {
  const Tensor& x = call.ins[0];
  const Attrs& a = call.op->attrs;
  const int64_t tokens = x.size[0] * x.size[1], h = x.size[x.dims - 1], half = h / 2;
  const int64_t heads = tokens == 0 ? 0 : x.elements() / tokens / std::max<int64_t>(1, h);
  CHECK(
      h % 2 == 0 && a.frequencies != nullptr && static_cast<int64_t>(a.frequencies->size()) == half,
      "rope over {} with {} frequencies", h, a.frequencies ? a.frequencies->size() : 0);
  const bool by_half = a.style == RopeStyle::half;
  for (int64_t i = 0; i < tokens; ++i) {
    const double position = call.ins[1].as<int32_t>()[i];
    for (int64_t p = 0; p < half; ++p) {
      const double angle = position * (*a.frequencies)[p];
      const double c = std::cos(angle) * a.mscale, s = std::sin(angle) * a.mscale * a.sign;
      const int64_t first = by_half ? p : 2 * p, second = by_half ? p + half : 2 * p + 1;
      for (int64_t n = 0; n < heads; ++n) {
        const T* row = x.as<T>() + (i * heads + n) * h;
        T* out = call.outs[0].as<T>() + (i * heads + n) * h;
        const double x1 = row[first], x2 = row[second];
        out[first] = static_cast<T>(x1 * c - x2 * s);
        out[second] = static_cast<T>(x2 * c + x1 * s);
      }
    }
  }
}

// Fills z[t] with scale q . k, and with -inf where the key is not visible.
template <class T>
void scores(const Dims& d, const T* q, const T* k, const Visible& seen, double scale, int64_t b,
            int64_t s, int64_t g, double* z) {
  for (int64_t t = 0; t < d.t; ++t) {
    z[t] = seen(b * d.s + s, b * d.t + t) ? scale * dot(q, k + d.key(b, t, g) * d.h, d.h) : kNone;
  }
}

template <class T, class L>
void attention_typed(const KernelCall& call) {
  const Dims d(call.ins[0], call.ins[1], call.ins[2]);
  const Visible seen(call.ins.subspan(3));
  const T *q = call.ins[0].as<T>(), *k = call.ins[1].as<T>(), *v = call.ins[2].as<T>();
  double* z = reinterpret_cast<double*>(call.scratch);
  for (int64_t b = 0; b < d.b; ++b)
    for (int64_t s = 0; s < d.s; ++s)
      for (int64_t g = 0; g < d.g; ++g)
        for (int64_t r = 0; r < d.r; ++r) {
          const int64_t row = d.query(b, s, g, r);
          scores(d, q + row * d.h, k, seen, call.op->attrs.scale, b, s, g, z);
          double m = kNone, sum = 0;
          for (int64_t t = 0; t < d.t; ++t) m = std::max(m, z[t]);
          if (m == kNone) m = 0;
          for (int64_t t = 0; t < d.t; ++t) sum += z[t] = std::exp(z[t] - m);
          call.outs[1].as<L>()[row] = static_cast<L>(sum == 0 ? kNone : std::log(sum) + m);
          for (int64_t u = 0; u < d.u; ++u) {
            double o = 0;
            for (int64_t t = 0; t < d.t; ++t)
              o += z[t] * static_cast<double>(v[d.key(b, t, g) * d.u + u]);
            call.outs[0].as<T>()[row * d.u + u] = static_cast<T>(sum == 0 ? 0 : o / sum);
          }
        }
}

// The gradients of one (b, g). dk and dv are summed over its queries in the order (s, r).
template <class T, class L>
void attention_grad_group(const KernelCall& call, const Dims& d, int64_t b, int64_t g) {
  const Visible seen(call.ins.subspan(6));
  const T *q = call.ins[0].as<T>(), *k = call.ins[1].as<T>(), *v = call.ins[2].as<T>();
  const T *o = call.ins[3].as<T>(), *d_o = call.ins[5].as<T>();
  const L* lse = call.ins[4].as<L>();
  const double scale = call.op->attrs.scale;
  double* z = reinterpret_cast<double*>(call.scratch);
  double *dk = z + d.t, *dv = dk + d.t * d.h;
  std::fill_n(dk, d.t * (d.h + d.u), 0.0);
  for (int64_t s = 0; s < d.s; ++s)
    for (int64_t r = 0; r < d.r; ++r) {
      const int64_t row = d.query(b, s, g, r);
      const T *q_row = q + row * d.h, *do_row = d_o + row * d.u;
      scores(d, q_row, k, seen, scale, b, s, g, z);
      const double delta = dot(do_row, o + row * d.u, d.u);
      for (int64_t t = 0; t < d.t; ++t) {
        if (z[t] == kNone) {
          z[t] = 0;
          continue;
        }
        const double p = std::exp(z[t] - static_cast<double>(lse[row]));
        z[t] = scale * p * (dot(do_row, v + d.key(b, t, g) * d.u, d.u) - delta);
        for (int64_t u = 0; u < d.u; ++u) dv[t * d.u + u] += p * static_cast<double>(do_row[u]);
        for (int64_t h = 0; h < d.h; ++h) dk[t * d.h + h] += z[t] * static_cast<double>(q_row[h]);
      }
      for (int64_t h = 0; h < d.h; ++h) {
        double dq = 0;
        for (int64_t t = 0; t < d.t; ++t)
          dq += z[t] * static_cast<double>(k[d.key(b, t, g) * d.h + h]);
        call.outs[0].as<T>()[row * d.h + h] = static_cast<T>(dq);
      }
    }
  for (int64_t t = 0; t < d.t; ++t) {
    for (int64_t h = 0; h < d.h; ++h)
      call.outs[1].as<T>()[d.key(b, t, g) * d.h + h] = static_cast<T>(dk[t * d.h + h]);
    for (int64_t u = 0; u < d.u; ++u)
      call.outs[2].as<T>()[d.key(b, t, g) * d.u + u] = static_cast<T>(dv[t * d.u + u]);
  }
}

}  // namespace

size_t attention_scratch(const Op&, const LabelSizes& local, DType) {
  return sizeof(double) * local.at('t');
}

size_t attention_grad_scratch(const Op&, const LabelSizes& local, DType) {
  return sizeof(double) * local.at('t') * (1 + local.at('h') + local.at('u'));
}

void rope(const KernelCall& call) {
  begin(call);
  by_real(call.ins[0].dtype, [&](auto zero) { rope_typed<decltype(zero)>(call); });
}

void attention(const KernelCall& call) {
  begin(call);
  by_reals(call.ins[0].dtype, call.outs[1].dtype, [&](auto of_q, auto of_lse) {
    attention_typed<decltype(of_q), decltype(of_lse)>(call);
  });
}

void attention_grad(const KernelCall& call) {
  begin(call);
  const Dims d(call.ins[0], call.ins[1], call.ins[2]);
  by_reals(call.ins[0].dtype, call.ins[4].dtype, [&](auto of_q, auto of_lse) {
    for (int64_t b = 0; b < d.b; ++b)
      for (int64_t g = 0; g < d.g; ++g)
        attention_grad_group<decltype(of_q), decltype(of_lse)>(call, d, b, g);
  });
}

}  // namespace myriad::ref
