// Rows and elements named by an index, of a dimension of which a rank may hold a part. Whole rows
// are copied as bytes, so that one loop serves every type.
#include <algorithm>
#include <cstring>

#include "kernels/call.h"
#include "kernels/fast/fast.h"
#include "kernels/fast/floats.h"

namespace myriad::fast {

void unpick(const KernelCall& call) {
  begin_f32_or_bf16(call);
  const Tensor& dz = call.outs[0];
  CHECK(call.ins[1].dims < dz.dims, "more than one index a row");
  const int64_t v = dz.size[dz.dims - 1], first = dz.lo[dz.dims - 1];
  const size_t width = size_of(dz.dtype);
  parallel_blocks(call.pool, call.ins[0].elements(), v, [&](int64_t lo, int64_t hi) {
    std::memset(dz.data + static_cast<size_t>(lo * v) * width, 0,
                static_cast<size_t>((hi - lo) * v) * width);
    for (int64_t i = lo; i < hi; ++i) {
      const int64_t j = call.ins[1].as<int32_t>()[i] - first;
      if (j < 0 || j >= v) continue;
      float read, made;
      const float* x = load_row(call.ins[0], i, 1, &read);
      *target_row(dz, i * v + j, &made) = *x;
      finish_row(dz, i * v + j, 1, &made);
    }
  });
}

void gather_rows(const KernelCall& call) {
  begin_f32_or_bf16(call);
  const Tensor& table = call.ins[0];
  const int64_t v = table.size[0], d = table.size[1], first = table.lo[0];
  const size_t width = static_cast<size_t>(d) * size_of(table.dtype);
  parallel_blocks(call.pool, call.ins[1].elements(), d, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      const int64_t j = call.ins[1].as<int32_t>()[i] - first;
      std::byte* row = call.outs[0].data + static_cast<size_t>(i) * width;
      if (j >= 0 && j < v) {
        std::memcpy(row, table.data + static_cast<size_t>(j) * width, width);
      } else {
        std::memset(row, 0, width);
      }
    }
  });
}

// Each task owns a range of the table and reads all indices, so that rows are added in their order.
void scatter_rows(const KernelCall& call) {
  begin_f32_or_bf16(call);
  constexpr int64_t kMostTasks = 16;
  const Tensor& table = call.outs[0];
  CHECK(table.dtype == DType::f32, "a table of {}", name_of(table.dtype));
  const int64_t v = table.size[0], d = table.size[1], n = call.ins[1].elements();
  const int64_t tasks = std::min(kMostTasks, ceil_div(v * d, kBlock));
  parallel(call.pool, tasks, [&](int64_t task) {
    const int64_t lo = task * v / tasks, hi = (task + 1) * v / tasks;
    std::fill(table.as<float>() + lo * d, table.as<float>() + hi * d, 0.0f);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t j = call.ins[1].as<int32_t>()[i] - table.lo[0];
      if (j < lo || j >= hi) continue;
      float buffer[kChunk];
      in_chunks(0, d, [&](int64_t at, int64_t n) {
        float* sum = table.as<float>() + j * d + at;
        const float* terms[] = {sum, load_row(call.ins[0], i * d + at, n, buffer)};
        vec::add_row(terms, 2, sum, n);
      });
    }
  });
}

}  // namespace myriad::fast
