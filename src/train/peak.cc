#include "train/peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/fast/matrix.h"

namespace myriad {

namespace {

int64_t size_for(double seconds) { return seconds < 0.1 ? 256 : 2048; }

// FLOPs a second of the best of the products of n x n x n done in about `seconds`.
template <class F>
double best_rate(int64_t n, double seconds, F&& product) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  auto from = begin;
  double best = 0;
  do {
    product();
    const auto to = Clock::now();
    const double flops = 2.0 * static_cast<double>(n * n * n);
    best = std::max(best, flops / std::chrono::duration<double>(to - from).count());
    from = to;
  } while (std::chrono::duration<double>(from - begin).count() < seconds);
  return best;
}

}  // namespace

MatrixPeak measure_matrix_peak(Pool& pool, double seconds) {
  const int64_t n = size_for(seconds);
  const std::vector<float> a(n * n, 0.5f), b(n * n, 0.25f);
  std::vector<float> c(n * n);
  MatrixPeak peak;
  for (const MatrixLibrary library : {MatrixLibrary::onednn, MatrixLibrary::openblas}) {
    set_matrix_library(library);
    const double rate = best_rate(n, seconds / 2, [&] {
      matrix_product(&pool, false, false, n, n, n, 1, a.data(), n, b.data(), n, 0, c.data(), n);
    });
    if (rate > peak.flops_per_s) peak = {rate, matrix_library()};
  }
  set_matrix_library(MatrixLibrary::automatic);
  return peak;
}

double measure_bf16_peak(Pool& pool, double seconds) {
  if (!bf16_products()) return 0;
  const int64_t n = size_for(seconds);
  const std::vector<Bf16> a(n * n, Bf16(0.5f)), b(n * n, Bf16(0.25f));
  std::vector<Bf16> c(n * n);
  return best_rate(n, seconds, [&] {
    matrix_product(&pool, n, n, n, 1, {a.data(), true, false, n}, {b.data(), true, false, n},
                   {c.data(), true, n});
  });
}

}  // namespace myriad
