#include "train/peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/fast/matrix.h"

namespace myriad {

MatrixPeak measure_matrix_peak(Pool& pool, double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t n = 2048;
  const std::vector<float> a(n * n, 0.5f), b(n * n, 0.25f);
  std::vector<float> c(n * n);
  MatrixPeak peak;
  for (const MatrixLibrary library : {MatrixLibrary::onednn, MatrixLibrary::openblas}) {
    set_matrix_library(library);
    const auto begin = Clock::now();
    auto from = begin;
    do {
      matrix_product(&pool, false, false, n, n, n, 1, a.data(), n, b.data(), n, 0, c.data(), n);
      const auto to = Clock::now();
      const double rate = 2.0 * n * n * n / std::chrono::duration<double>(to - from).count();
      if (rate > peak.flops_per_s) peak = {rate, matrix_library()};
      from = to;
    } while (std::chrono::duration<double>(from - begin).count() < seconds / 2);
  }
  set_matrix_library(MatrixLibrary::automatic);
  return peak;
}

}  // namespace myriad
