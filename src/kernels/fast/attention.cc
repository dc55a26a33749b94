// Attention by tiles of queries against tiles of keys, with an online softmax: a running maximum
// and a running sum for each query (Milakov and Gimelshein 2018; Dao et al. 2022). So the scores of
// one pair of tiles are all that is held at a time. The products go through the matrix library. A
// pair of tiles in which no key is visible is skipped, for it would add zeros; the FLOPs are
// counted for the full square all the same. Tensors in bf16 are widened into the scratch first
// (Wide). Read ref/attention.cc first, which states the same by definition.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/call.h"
#include "kernels/fast/fast.h"
#include "kernels/fast/floats.h"
#include "kernels/fast/matrix.h"
#include "kernels/fast/vector.h"

namespace myriad::fast {

namespace {

constexpr int64_t kQueries = 128, kKeys = 256;  // of a tile
constexpr int64_t kMostTasks = 16;              // each has its own scratch
constexpr float kNone = -std::numeric_limits<float>::infinity();

struct Dims {
  int64_t b, s, g, r, h, t, u;
  int64_t query_tiles() const { return ceil_div(s, kQueries); }
  int64_t key_tiles() const { return ceil_div(t, kKeys); }
  int64_t tile_floats() const { return std::min(s, kQueries) * std::min(t, kKeys); }
  // Strides between queries, and between keys, of one head, in rows of h or u.
  int64_t query_step() const { return g * r; }
  int64_t key_step() const { return g; }
  int64_t query(int64_t ib, int64_t is, int64_t ig, int64_t ir) const {
    return ((ib * s + is) * g + ig) * r + ir;
  }
  int64_t key(int64_t ib, int64_t it, int64_t ig) const { return (ib * t + it) * g + ig; }
};

Dims dims_of(const LabelSizes& local) {
  return {local.at('b'), local.at('s'), local.at('g'), local.at('r'),
          local.at('h'), local.at('t'), local.at('u')};
}

// The positions and documents of queries and keys, in the order of the operands.
struct Where {
  const int32_t *pos_q, *pos_k, *doc_q, *doc_k;
  explicit Where(std::span<const Tensor> t)
      : pos_q(t[0].as<int32_t>()),
        pos_k(t[1].as<int32_t>()),
        doc_q(t[2].as<int32_t>()),
        doc_k(t[3].as<int32_t>()) {}
};

struct Range {
  int32_t lo, hi;
  Range(const int32_t* x, int64_t n) : lo(x[0]), hi(x[0]) {
    for (int64_t i = 1; i < n; ++i) lo = std::min(lo, x[i]), hi = std::max(hi, x[i]);
  }
};

enum class Sight { none, some, all };

// How many of the n keys from `key` on the m queries from `query` on can see. Decided by the bounds
// of positions and documents: `none` and `all` are certain, `some` may be either.
Sight sight(const Where& w, int64_t query, int64_t m, int64_t key, int64_t n) {
  const Range pos_q(w.pos_q + query, m), doc_q(w.doc_q + query, m);
  const Range pos_k(w.pos_k + key, n), doc_k(w.doc_k + key, n);
  if (pos_q.hi < pos_k.lo || doc_q.hi < doc_k.lo || doc_q.lo > doc_k.hi) return Sight::none;
  const bool one_document = doc_q.lo == doc_q.hi && doc_k.lo == doc_k.hi && doc_q.lo == doc_k.lo;
  return one_document && pos_q.lo >= pos_k.hi ? Sight::all : Sight::some;
}

size_t align(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// A call whose bf16 tensors are held in f32 at the start of its scratch.
class Wide {
 public:
  KernelCall call;

  explicit Wide(const KernelCall& given) : call(given), given_(given) {
    CHECK(given.ins.size() <= kMost && given.outs.size() <= kMost && no_f64(given));
    std::copy(given.ins.begin(), given.ins.end(), ins_);
    std::copy(given.outs.begin(), given.outs.end(), outs_);
    for (size_t i = 0; i < given.ins.size(); ++i) {
      if (!place(ins_[i])) continue;
      over(given.ins[i], [&](int64_t at, int64_t n) {
        vec::widen_row(given.ins[i].as<Bf16>() + at, ins_[i].as<float>() + at, n);
      });
    }
    for (size_t o = 0; o < given.outs.size(); ++o) place(outs_[o]);
    call.ins = {ins_, given.ins.size()};
    call.outs = {outs_, given.outs.size()};
  }
  Wide(const Wide&) = delete;

  // Rounds the outputs and stores them where they belong.
  void finish() const {
    for (size_t o = 0; o < given_.outs.size(); ++o) {
      if (given_.outs[o].dtype != DType::bf16) continue;
      over(given_.outs[o], [&](int64_t at, int64_t n) {
        vec::narrow_row(outs_[o].as<float>() + at, given_.outs[o].as<Bf16>() + at, n);
      });
    }
  }

  static size_t bytes(const Op& op, const LabelSizes& local) {
    size_t n = 0;
    const auto add = [&](const std::vector<std::string>& labels, const std::vector<DType>& types) {
      for (size_t i = 0; i < types.size(); ++i) {
        int64_t elements = 1;
        for (char l : labels[i]) elements *= local.at(l);
        if (types[i] == DType::bf16) n += align(sizeof(float) * static_cast<size_t>(elements));
      }
    };
    add(op.in_labels, op.in_types);
    add(op.out_labels, op.out_types);
    return n;
  }

 private:
  static constexpr size_t kMost = 10;

  bool place(Tensor& t) {
    if (t.dtype != DType::bf16) return false;
    t.dtype = DType::f32;
    t.data = call.scratch;
    call.scratch += align(t.bytes());
    return true;
  }
  template <class F>
  void over(const Tensor& t, F&& f) const {
    parallel_blocks(given_.pool, t.elements(), 1, [&](int64_t lo, int64_t hi) { f(lo, hi - lo); });
  }

  const KernelCall& given_;
  Tensor ins_[kMost], outs_[kMost];
};

// The forward pass.

struct Forward {
  Dims d;
  Where w;
  const float *q, *k, *v;
  float *o, *lse, scale;
  int64_t tiles, tasks;

  explicit Forward(const KernelCall& call)
      : d(dims_of(call.local)),
        w(call.ins.subspan(3)),
        q(call.ins[0].as<float>()),
        k(call.ins[1].as<float>()),
        v(call.ins[2].as<float>()),
        o(call.outs[0].as<float>()),
        lse(call.outs[1].as<float>()),
        scale(static_cast<float>(call.op->attrs.scale)),
        tiles(tiles_of(d)),
        tasks(std::min(tiles, kMostTasks)) {}

  static int64_t tiles_of(const Dims& d) { return d.b * d.g * d.r * d.query_tiles(); }
};

size_t forward_slot(const Dims& d) {
  return align(sizeof(float) * static_cast<size_t>(d.tile_floats()));
}

// Turns the scores of one pair of tiles into weights, and rescales what `o` holds to the new
// maxima.
void soften(const Forward& f, float* z, int64_t m, int64_t n, int64_t b, int64_t s0, int64_t t0,
            bool all, bool first, float* max, float* sum, float* o) {
  const vec::KeyTile keys{f.w.pos_k + b * f.d.t + t0, f.w.doc_k + b * f.d.t + t0, all};
  for (int64_t i = 0; i < m; ++i) {
    const int64_t at = b * f.d.s + s0 + i;
    const float top =
        std::max(max[i], vec::mask_row(z + i * n, keys, f.w.pos_q[at], f.w.doc_q[at], n));
    if (top != max[i] && !first) {
      const float shrink = max[i] == kNone ? 0.0f : std::exp(max[i] - top);
      sum[i] *= shrink;
      vec::scale_row(o + i * f.d.query_step() * f.d.u, shrink, f.d.u);
    }
    max[i] = top;
    sum[i] += vec::exp_row(z + i * n, top, n);
  }
}

void attend_tile(const Forward& f, int64_t tile, float* z) {
  const Dims& d = f.d;
  const int64_t s0 = tile % d.query_tiles() * kQueries, head = tile / d.query_tiles();
  const int64_t r = head % d.r, g = head / d.r % d.g, b = head / d.r / d.g,
                m = std::min(kQueries, d.s - s0);
  const int64_t row = d.query(b, s0, g, r);
  float max[kQueries], sum[kQueries] = {};
  std::fill_n(max, kQueries, kNone);
  float* o = f.o + row * d.u;
  bool first = true;
  for (int64_t t0 = 0; t0 < d.t; t0 += kKeys) {
    const int64_t n = std::min(kKeys, d.t - t0), key = d.key(b, t0, g);
    const Sight seen = sight(f.w, b * d.s + s0, m, b * d.t + t0, n);
    if (seen == Sight::none) continue;
    matrix_product(false, true, m, n, d.h, f.scale, f.q + row * d.h, d.query_step() * d.h,
                   f.k + key * d.h, d.key_step() * d.h, 0, z, n);
    soften(f, z, m, n, b, s0, t0, seen == Sight::all, first, max, sum, o);
    matrix_product(false, false, m, d.u, n, 1, z, n, f.v + key * d.u, d.key_step() * d.u,
                   first ? 0.0f : 1.0f, o, d.query_step() * d.u);
    first = false;
  }
  for (int64_t i = 0; i < m; ++i) {
    const int64_t query = i * d.query_step();
    f.lse[row + query] = sum[i] == 0 ? kNone : max[i] + std::log(sum[i]);
    if (sum[i] == 0) {
      std::fill_n(o + query * d.u, d.u, 0.0f);
    } else {
      vec::scale_row(o + query * d.u, 1 / sum[i], d.u);
    }
  }
}

// The backward pass.

struct Backward {
  Dims d;
  Where w;
  const float *q, *k, *v, *o, *lse, *d_o;
  float *dq, *dk, *dv, scale;
  int64_t tasks;

  explicit Backward(const KernelCall& call)
      : d(dims_of(call.local)),
        w(call.ins.subspan(6)),
        q(call.ins[0].as<float>()),
        k(call.ins[1].as<float>()),
        v(call.ins[2].as<float>()),
        o(call.ins[3].as<float>()),
        lse(call.ins[4].as<float>()),
        d_o(call.ins[5].as<float>()),
        dq(call.outs[0].as<float>()),
        dk(call.outs[1].as<float>()),
        dv(call.outs[2].as<float>()),
        scale(static_cast<float>(call.op->attrs.scale)),
        tasks(std::min(d.b * d.g, kMostTasks)) {}
};

size_t backward_slot(const Dims& d) { return 2 * forward_slot(d); }

void clear_rows(float* x, int64_t rows, int64_t step, int64_t n) {
  for (int64_t i = 0; i < rows; ++i) std::fill_n(x + i * step, n, 0.0f);
}

// One pair of tiles: adds to dq of the queries, and to dk and dv of the keys.
void grad_pair(const Backward& f, int64_t b, int64_t g, int64_t r, int64_t s0, int64_t t0,
               const float* delta, float* z, float* dz) {
  const Dims& d = f.d;
  const int64_t m = std::min(kQueries, d.s - s0), n = std::min(kKeys, d.t - t0);
  const Sight seen = sight(f.w, b * d.s + s0, m, b * d.t + t0, n);
  if (seen == Sight::none) return;
  const int64_t row = d.query(b, s0, g, r), key = d.key(b, t0, g);
  const int64_t q_step = d.query_step() * d.h, o_step = d.query_step() * d.u;
  const int64_t k_step = d.key_step() * d.h, v_step = d.key_step() * d.u;
  const float *q = f.q + row * d.h, *k = f.k + key * d.h, *d_o = f.d_o + row * d.u;
  matrix_product(false, true, m, n, d.h, f.scale, q, q_step, k, k_step, 0, z, n);
  matrix_product(false, true, m, n, d.u, 1, d_o, o_step, f.v + key * d.u, v_step, 0, dz, n);
  const vec::KeyTile keys{f.w.pos_k + b * d.t + t0, f.w.doc_k + b * d.t + t0, seen == Sight::all};
  for (int64_t i = 0; i < m; ++i) {
    const int64_t at = b * d.s + s0 + i;
    const vec::GradRow with{f.lse[row + i * d.query_step()], delta[i], f.scale, f.w.pos_q[at],
                            f.w.doc_q[at]};
    vec::softmax_grad_row(z + i * n, dz + i * n, keys, with, n);
  }
  matrix_product(true, false, n, d.u, m, 1, z, n, d_o, o_step, 1, f.dv + key * d.u, v_step);
  matrix_product(true, false, n, d.h, m, 1, dz, n, q, q_step, 1, f.dk + key * d.h, k_step);
  matrix_product(false, false, m, d.h, n, 1, dz, n, k, k_step, 1, f.dq + row * d.h, q_step);
}

// All gradients of one (b, g). dk and dv are summed over (r, tile of queries), in this order.
void grad_group(const Backward& f, int64_t b, int64_t g, float* z) {
  const Dims& d = f.d;
  float* dz = z + forward_slot(d) / sizeof(float);
  clear_rows(f.dk + d.key(b, 0, g) * d.h, d.t, d.key_step() * d.h, d.h);
  clear_rows(f.dv + d.key(b, 0, g) * d.u, d.t, d.key_step() * d.u, d.u);
  for (int64_t r = 0; r < d.r; ++r) {
    for (int64_t s0 = 0; s0 < d.s; s0 += kQueries) {
      const int64_t m = std::min(kQueries, d.s - s0), row = d.query(b, s0, g, r);
      float delta[kQueries];
      for (int64_t i = 0; i < m; ++i) {
        const int64_t at = (row + i * d.query_step()) * d.u;
        delta[i] = static_cast<float>(vec::dot_row({2, {f.o + at, f.d_o + at}, {true, true}}, d.u));
      }
      clear_rows(f.dq + row * d.h, m, d.query_step() * d.h, d.h);
      for (int64_t t0 = 0; t0 < d.t; t0 += kKeys) grad_pair(f, b, g, r, s0, t0, delta, z, dz);
    }
  }
}

}  // namespace

size_t attention_scratch(const Op& op, const LabelSizes& local, DType) {
  const Dims d = dims_of(local);
  return Wide::bytes(op, local) +
         forward_slot(d) * static_cast<size_t>(std::min(Forward::tiles_of(d), kMostTasks));
}

void attention(const KernelCall& call) {
  begin(call);
  Wide wide(call);
  const Forward f(wide.call);
  const size_t slot = forward_slot(f.d);
  parallel(call.pool, f.tasks, [&](int64_t task) {
    float* z = reinterpret_cast<float*>(wide.call.scratch + static_cast<size_t>(task) * slot);
    for (int64_t tile = task * f.tiles / f.tasks; tile < (task + 1) * f.tiles / f.tasks; ++tile)
      attend_tile(f, tile, z);
  });
  wide.finish();
}

size_t attention_grad_scratch(const Op& op, const LabelSizes& local, DType) {
  const Dims d = dims_of(local);
  return Wide::bytes(op, local) +
         backward_slot(d) * static_cast<size_t>(std::min(d.b * d.g, kMostTasks));
}

void attention_grad(const KernelCall& call) {
  begin(call);
  Wide wide(call);
  const Backward f(wide.call);
  const size_t slot = backward_slot(f.d);
  parallel(call.pool, f.tasks, [&](int64_t task) {
    float* z = reinterpret_cast<float*>(wide.call.scratch + static_cast<size_t>(task) * slot);
    const int64_t groups = f.d.b * f.d.g;
    for (int64_t i = task * groups / f.tasks; i < (task + 1) * groups / f.tasks; ++i) {
      grad_group(f, i / f.d.g, i % f.d.g, z);
    }
  });
  wide.finish();
}

}  // namespace myriad::fast
