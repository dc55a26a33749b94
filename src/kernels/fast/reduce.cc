// Contracts that are no matrix products and are limited by memory: products without a sum ("map"),
// sums along the last label ("dot") and sums over leading labels ("columns"). All three read their
// operands as nested loops with strides (kernels/loops.h, to be read first) and take a call whose
// innermost loop moves through every operand by one element or not at all, so that a row primitive
// of fast/vector.h can run it. Long sums are kept in double.
#include <algorithm>

#include "kernels/call.h"
#include "kernels/fast/fast.h"
#include "kernels/fast/floats.h"
#include "kernels/fast/vector.h"
#include "kernels/loops.h"

namespace myriad::fast {

namespace {

// The operands of a call as seen from one loop, which is their row. Rows of narrow operands are
// widened into buffers.
struct Streams {
  const Tensor* at[kMaxOperands];
  double scale;
  bool narrow = false;

  Streams(const KernelCall& call, const LoopNest& nest, double scale_) : scale(scale_) {
    for (int k = 0; k < nest.operands; ++k) {
      at[k] = &call.ins[nest.operand[k]];
      narrow |= at[k]->dtype != DType::f32;
    }
    narrow |= call.outs[0].dtype != DType::f32;
    for (const Tensor& t : call.ins) {
      if (t.dims == 0) scale *= scalar(t);
    }
  }
  // How many elements of a row of n can be taken at a time.
  int64_t most(int64_t n) const { return narrow ? std::min(n, kChunk) : n; }
  using Buffers = float[kMaxOperands][kChunk];
  vec::Factors factors(const LoopNest& nest, const Loop& row, const Offsets& from, int64_t first,
                       int64_t n, Buffers& buffers) const {
    vec::Factors f;
    f.n = nest.operands;
    for (int k = 0; k < f.n; ++k) {
      f.step[k] = row.stride[k] == 1;
      f.at[k] = load_row(*at[k], from[k] + first * row.stride[k], f.step[k] ? n : 1, buffers[k]);
    }
    return f;
  }
};

// The row of a map: the last output loop, or a single point.
Loop map_row(const LoopNest& nest) {
  if (nest.outs > 0) return nest.out[nest.outs - 1];
  Loop point;
  point.stride[kOut] = 1;
  return point;
}

Offsets plus(const Offsets& a, const Offsets& b) {
  Offsets c;
  for (int i = 0; i <= kOut; ++i) c[i] = a[i] + b[i];
  return c;
}

void run_map(const KernelCall& call, double attr_scale) {
  const LoopNest nest = make_nest(*call.op, call.local);
  const Streams in(call, nest, attr_scale);
  const Loop row = map_row(nest);
  const auto outer = nest.out_loops().first(std::max(0, nest.outs - 1));
  const int64_t block = in.most(kBlock);
  const int64_t rows = points(outer), pieces = std::max<int64_t>(1, ceil_div(row.size, block));
  parallel_blocks(call.pool, rows * pieces, std::min(row.size, block), [&](int64_t lo, int64_t hi) {
    Streams::Buffers buffers;
    float made[kChunk];
    Walk walk(outer, lo / pieces);
    for (int64_t i = lo; i < hi; ++i) {
      const int64_t first = i % pieces * block, n = std::min(block, row.size - first);
      const int64_t to = walk.at()[kOut] + first;
      vec::product_row(in.factors(nest, row, walk.at(), first, n, buffers),
                       static_cast<float>(in.scale), target_row(call.outs[0], to, made), n);
      finish_row(call.outs[0], to, n, made);
      if ((i + 1) % pieces == 0) walk.next();
    }
  });
}

}  // namespace

const char* map_declines(const Op& op, const LabelSizes& local, DType real) {
  if (const char* reason = takes_f32_or_bf16(op, local, real)) return reason;
  const LoopNest nest = make_nest(op, local);
  if (nest.operands == 0) return "scalars only";
  if (nest.sums > 0) return "a label is contracted";
  const Loop row = map_row(nest);
  return nest.streams(row) ? nullptr : "an operand jumps along the last label";
}

void map(const KernelCall& call) {
  begin_f32_or_bf16(call);
  run_map(call, call.op->row == Row::broadcast ? 1 : call.op->attrs.scale);
}

const char* dot_declines(const Op& op, const LabelSizes& local, DType real) {
  if (const char* reason = takes_f32_or_bf16(op, local, real)) return reason;
  const LoopNest nest = make_nest(op, local);
  if (nest.sums == 0) return "no label is contracted";
  return nest.streams(nest.sum[nest.sums - 1]) ? nullptr
                                               : "an operand jumps along the last contracted label";
}

void dot(const KernelCall& call) {
  begin_f32_or_bf16(call);
  const LoopNest nest = make_nest(*call.op, call.local);
  const Streams in(call, nest, call.op->attrs.scale);
  const Loop& row = nest.sum[nest.sums - 1];
  const auto outer = nest.sum_loops().first(nest.sums - 1);
  const int64_t rows = points(outer), most = in.most(row.size);
  parallel_blocks(call.pool, points(nest.out_loops()), rows * row.size,
                  [&](int64_t lo, int64_t hi) {
                    Streams::Buffers buffers;
                    Walk to(nest.out_loops(), lo);
                    for (int64_t i = lo; i < hi; ++i, to.next()) {
                      double sum = 0;
                      Walk walk(outer);
                      for (int64_t j = 0; j < rows; ++j, walk.next()) {
                        const Offsets from = plus(to.at(), walk.at());
                        for (int64_t first = 0; first < row.size; first += most) {
                          const int64_t n = std::min(most, row.size - first);
                          sum += vec::dot_row(in.factors(nest, row, from, first, n, buffers), n);
                        }
                      }
                      const float rounded = static_cast<float>(sum * in.scale);
                      *target_row(call.outs[0], to.at()[kOut], buffers[0]) = rounded;
                      finish_row(call.outs[0], to.at()[kOut], 1, buffers[0]);
                    }
                  });
}

const char* columns_declines(const Op& op, const LabelSizes& local, DType real) {
  if (const char* reason = takes_f32_or_bf16(op, local, real)) return reason;
  const LoopNest nest = make_nest(op, local);
  if (nest.sums == 0) return "no label is contracted";
  if (nest.outs == 0) return "a scalar";
  return nest.streams(nest.out[nest.outs - 1]) ? nullptr
                                               : "an operand jumps along the last output label";
}

// One task makes a block of kColumns columns. Up to kRowsInF32 rows are summed in f32, and these
// sums are added up in double.
void columns(const KernelCall& call) {
  begin_f32_or_bf16(call);
  constexpr int64_t kColumns = 256, kRowsInF32 = 32;
  const LoopNest nest = make_nest(*call.op, call.local);
  const Streams in(call, nest, call.op->attrs.scale);
  const Loop& row = nest.out[nest.outs - 1];
  const auto outer = nest.out_loops().first(nest.outs - 1);
  const int64_t pieces = ceil_div(row.size, kColumns), terms = points(nest.sum_loops());
  static_assert(kColumns <= kChunk);
  parallel(call.pool, points(outer) * pieces, [&](int64_t i) {
    const Walk to(outer, i / pieces);
    const int64_t first = i % pieces * kColumns, n = std::min(kColumns, row.size - first);
    double total[kColumns] = {};
    float part[kColumns];
    Streams::Buffers buffers;
    Walk walk(nest.sum_loops());
    for (int64_t j = 0; j < terms;) {
      std::fill_n(part, n, 0.0f);
      const int64_t end = std::min(terms, j + kRowsInF32);
      for (; j < end; ++j, walk.next()) {
        vec::add_product_row(in.factors(nest, row, plus(to.at(), walk.at()), first, n, buffers),
                             part, n);
      }
      for (int64_t c = 0; c < n; ++c) total[c] += static_cast<double>(part[c]);
    }
    const int64_t place = to.at()[kOut] + first;
    float* y = target_row(call.outs[0], place, part);
    for (int64_t c = 0; c < n; ++c) y[c] = static_cast<float>(total[c] * in.scale);
    finish_row(call.outs[0], place, n, part);
  });
}

}  // namespace myriad::fast
