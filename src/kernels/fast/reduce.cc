// Contracts that stream through memory: maps, dots along the last label, sums over leading labels.
#include <algorithm>

#include "kernels/call.h"
#include "kernels/fast/fast.h"
#include "kernels/fast/vector.h"
#include "kernels/loops.h"
#include "kernels/ref/ref.h"

namespace myriad::fast {

namespace {

// Operands of a call as seen from one loop, which is their row.
struct Streams {
  const float* at[kMaxOperands];
  double scale;

  Streams(const KernelCall& call, const LoopNest& nest, double scale_) : scale(scale_) {
    for (int k = 0; k < nest.operands; ++k) at[k] = call.ins[nest.operand[k]].as<float>();
    for (const Tensor& t : call.ins) {
      if (t.dims == 0) scale *= scalar(t);
    }
  }
  vec::Factors factors(const LoopNest& nest, const Loop& row, const Offsets& from,
                       int64_t first = 0) const {
    vec::Factors f;
    f.n = nest.operands;
    for (int k = 0; k < f.n; ++k) {
      f.at[k] = at[k] + from[k] + first * row.stride[k];
      f.step[k] = row.stride[k] == 1;
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
  const int64_t rows = points(outer), pieces = std::max<int64_t>(1, ceil_div(row.size, kBlock));
  float* out = call.outs[0].as<float>();
  parallel_blocks(
      call.pool, rows * pieces, std::min(row.size, kBlock), [&](int64_t lo, int64_t hi) {
        Walk walk(outer, lo / pieces);
        for (int64_t i = lo; i < hi; ++i) {
          const int64_t first = i % pieces * kBlock, n = std::min(kBlock, row.size - first);
          vec::product_row(in.factors(nest, row, walk.at(), first), static_cast<float>(in.scale),
                           out + walk.at()[kOut] + first, n);
          if ((i + 1) % pieces == 0) walk.next();
        }
      });
}

}  // namespace

const char* takes_f32(const Op&, const LabelSizes&, DType real) {
  return real == DType::f32 ? nullptr : "f32 only";
}

const char* map_declines(const Op& op, const LabelSizes& local, DType real) {
  if (const char* reason = takes_f32(op, local, real)) return reason;
  const LoopNest nest = make_nest(op, local);
  if (nest.operands == 0) return "scalars only";
  if (nest.sums > 0) return "a label is contracted";
  const Loop row = map_row(nest);
  return nest.streams(row) ? nullptr : "an operand jumps along the last label";
}

void map(const KernelCall& call) {
  const bool broadcasts = call.op->row == Row::broadcast;
  if (!rows_are_f32(call)) return broadcasts ? ref::broadcast(call) : ref::contract(call);
  begin(call);
  run_map(call, broadcasts ? 1 : call.op->attrs.scale);
}

const char* dot_declines(const Op& op, const LabelSizes& local, DType real) {
  if (const char* reason = takes_f32(op, local, real)) return reason;
  const LoopNest nest = make_nest(op, local);
  if (nest.sums == 0) return "no label is contracted";
  return nest.streams(nest.sum[nest.sums - 1]) ? nullptr
                                               : "an operand jumps along the last contracted label";
}

void dot(const KernelCall& call) {
  if (!rows_are_f32(call)) return ref::contract(call);
  begin(call);
  const LoopNest nest = make_nest(*call.op, call.local);
  const Streams in(call, nest, call.op->attrs.scale);
  const Loop& row = nest.sum[nest.sums - 1];
  const auto outer = nest.sum_loops().first(nest.sums - 1);
  const int64_t rows = points(outer);
  float* out = call.outs[0].as<float>();
  parallel_blocks(
      call.pool, points(nest.out_loops()), rows * row.size, [&](int64_t lo, int64_t hi) {
        Walk to(nest.out_loops(), lo);
        for (int64_t i = lo; i < hi; ++i, to.next()) {
          double sum = 0;
          Walk walk(outer);
          for (int64_t j = 0; j < rows; ++j, walk.next()) {
            sum += vec::dot_row(in.factors(nest, row, plus(to.at(), walk.at())), row.size);
          }
          out[to.at()[kOut]] = static_cast<float>(sum * in.scale);
        }
      });
}

const char* columns_declines(const Op& op, const LabelSizes& local, DType real) {
  if (const char* reason = takes_f32(op, local, real)) return reason;
  const LoopNest nest = make_nest(op, local);
  if (nest.sums == 0) return "no label is contracted";
  if (nest.outs == 0) return "a scalar";
  return nest.streams(nest.out[nest.outs - 1]) ? nullptr
                                               : "an operand jumps along the last output label";
}

// Blocks of kColumns columns; kRows rows are summed in f32, these sums in double.
void columns(const KernelCall& call) {
  if (!rows_are_f32(call)) return ref::contract(call);
  constexpr int64_t kColumns = 256, kRowsInF32 = 32;
  begin(call);
  const LoopNest nest = make_nest(*call.op, call.local);
  const Streams in(call, nest, call.op->attrs.scale);
  const Loop& row = nest.out[nest.outs - 1];
  const auto outer = nest.out_loops().first(nest.outs - 1);
  const int64_t pieces = ceil_div(row.size, kColumns), terms = points(nest.sum_loops());
  float* out = call.outs[0].as<float>();
  parallel(call.pool, points(outer) * pieces, [&](int64_t i) {
    const Walk to(outer, i / pieces);
    const int64_t first = i % pieces * kColumns, n = std::min(kColumns, row.size - first);
    double total[kColumns] = {};
    float part[kColumns];
    Walk walk(nest.sum_loops());
    for (int64_t j = 0; j < terms;) {
      std::fill_n(part, n, 0.0f);
      const int64_t end = std::min(terms, j + kRowsInF32);
      for (; j < end; ++j, walk.next()) {
        vec::add_product_row(in.factors(nest, row, plus(to.at(), walk.at()), first), part, n);
      }
      for (int64_t c = 0; c < n; ++c) total[c] += static_cast<double>(part[c]);
    }
    float* y = out + to.at()[kOut] + first;
    for (int64_t c = 0; c < n; ++c) y[c] = static_cast<float>(total[c] * in.scale);
  });
}

}  // namespace myriad::fast
