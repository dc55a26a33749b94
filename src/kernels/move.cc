#include "kernels/move.h"

#include <cstring>

#include "kernels/call.h"

namespace myriad {

namespace {

void open(const Tensor& dst, const Tensor& src, Meter& meter) {
  CHECK(dst.dtype == src.dtype && dst.elements() == src.elements(), "{} of {} against {} of {}",
        dst.elements(), name_of(dst.dtype), src.elements(), name_of(src.dtype));
  meter.touch(dst);
  meter.touch(src);
}

}  // namespace

void copy(const Tensor& dst, const Tensor& src, Meter& meter, Pool* pool) {
  open(dst, src, meter);
  if (dst.data == src.data) return;
  const size_t size = size_of(src.dtype);
  parallel_blocks(pool, src.elements(), 1, [&](int64_t lo, int64_t hi) {
    std::memcpy(dst.data + lo * size, src.data + lo * size, (hi - lo) * size);
  });
}

void accumulate(const Tensor& dst, const Tensor& src, Meter& meter, Pool* pool) {
  open(dst, src, meter);
  const int64_t n = dst.elements();
  meter.flops += static_cast<double>(n);
  if (dst.dtype == DType::exact) {
    for (int64_t i = 0; i < n; ++i) {
      dst.as<ExactSum>()[i].add(src.as<ExactSum>()[i]);
      dst.as<ExactSum>()[i].normalise();
    }
    return;
  }
  by_real(dst.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_blocks(pool, n, 1, [&](int64_t lo, int64_t hi) {
      T* d = dst.as<T>();
      const T* s = src.as<T>();
      for (int64_t i = lo; i < hi; ++i) d[i] = static_cast<T>(d[i] + s[i]);
    });
  });
}

}  // namespace myriad
