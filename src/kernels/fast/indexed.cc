#include <algorithm>

#include "kernels/call.h"
#include "kernels/fast/fast.h"
#include "kernels/fast/vector.h"
#include "kernels/ref/ref.h"

namespace myriad::fast {

void unpick(const KernelCall& call) {
  if (!all_f32(call) || call.ins[1].dims == call.outs[0].dims) return ref::unpick(call);
  begin(call);
  const Tensor& dz = call.outs[0];
  const int64_t v = dz.size[dz.dims - 1], first = dz.lo[dz.dims - 1];
  parallel_blocks(call.pool, call.ins[0].elements(), v, [&](int64_t lo, int64_t hi) {
    std::fill(dz.as<float>() + lo * v, dz.as<float>() + hi * v, 0.0f);
    for (int64_t i = lo; i < hi; ++i) {
      const int64_t j = call.ins[1].as<int32_t>()[i] - first;
      if (j >= 0 && j < v) dz.as<float>()[i * v + j] = call.ins[0].as<float>()[i];
    }
  });
}

void gather_rows(const KernelCall& call) {
  if (!all_f32(call)) return ref::gather_rows(call);
  begin(call);
  const Tensor& table = call.ins[0];
  const int64_t v = table.size[0], d = table.size[1], first = table.lo[0];
  parallel_blocks(call.pool, call.ins[1].elements(), d, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      const int64_t j = call.ins[1].as<int32_t>()[i] - first;
      float* row = call.outs[0].as<float>() + i * d;
      if (j >= 0 && j < v) {
        std::copy_n(table.as<float>() + j * d, d, row);
      } else {
        std::fill_n(row, d, 0.0f);
      }
    }
  });
}

// Each task owns a range of the table and reads all ids, so that rows are added in their order.
void scatter_rows(const KernelCall& call) {
  if (!all_f32(call)) return ref::scatter_rows(call);
  begin(call);
  constexpr int64_t kMostTasks = 16;
  const Tensor& table = call.outs[0];
  const int64_t v = table.size[0], d = table.size[1], n = call.ins[1].elements();
  const int64_t tasks = std::min(kMostTasks, ceil_div(v * d, kBlock));
  parallel(call.pool, tasks, [&](int64_t task) {
    const int64_t lo = task * v / tasks, hi = (task + 1) * v / tasks;
    std::fill(table.as<float>() + lo * d, table.as<float>() + hi * d, 0.0f);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t j = call.ins[1].as<int32_t>()[i] - table.lo[0];
      if (j < lo || j >= hi) continue;
      float* row = table.as<float>() + j * d;
      const float* terms[] = {row, call.ins[0].as<float>() + i * d};
      vec::add_row(terms, 2, row, d);
    }
  });
}

}  // namespace myriad::fast
