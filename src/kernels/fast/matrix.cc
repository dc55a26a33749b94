// Matrix products by oneDNN or OpenBLAS. The libraries run single-threaded on tiles of C, and our
// pool shares the tiles. The grid of tiles is a function of the sizes alone, so the bits do not
// depend on how many workers there are. Operands in bf16 are multiplied as they are where the
// processor can (fast/matrix_bf16.cc), else by blocks that are widened to f32 on the stack. Read
// fast/matrix.h first.
#include "kernels/fast/matrix.h"

#include <cblas.h>
#include <dnnl.h>
#include <omp.h>

#include <algorithm>
#include <atomic>

#include "kernels/call.h"
#include "kernels/fast/matrix_bf16.h"
#include "kernels/fast/vector.h"

namespace myriad {

namespace {

std::atomic<MatrixLibrary> g_library{MatrixLibrary::automatic};

MatrixLibrary library() {
  const MatrixLibrary chosen = g_library.load(std::memory_order_relaxed);
  if (chosen != MatrixLibrary::automatic) return chosen;
  static const MatrixLibrary best =
      vec::has_avx2() ? MatrixLibrary::onednn : MatrixLibrary::openblas;
  return best;
}

// Both libraries would start threads of their own; OpenMP's count belongs to the calling thread.
void be_single_threaded() {
  thread_local const bool done = [] {
    omp_set_num_threads(1);
    openblas_set_num_threads(1);
    return true;
  }();
  (void)done;
}

int narrow(int64_t n) {
  CHECK(n >= 0 && n <= INT32_MAX, "matrix size {}", n);
  return static_cast<int>(n);
}

// Transposed A of many rows is read in strips of k: both libraries walk it down its columns
// (oneDNN 2.6: 136 for 108 GFLOP/s at 2048 x 512 x 16384).
constexpr int64_t kStrip = 512;

struct Tile {
  int64_t m, n;
};

// Halves the longer side until there are kTiles tiles or a tile has too little work to be worth its
// packing.
Tile tile_of(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kTiles = 32, kFlops = int64_t{1} << 25, kSide = 192;
  Tile t{m, n};
  while (ceil_div(m, t.m) * ceil_div(n, t.n) < kTiles &&
         2 * t.m * t.n * std::max<int64_t>(1, k) > kFlops) {
    int64_t& side = t.m >= t.n ? t.m : t.n;
    if (side <= kSide) break;
    side = ceil_div(ceil_div(side, 2), 48) * 48;
  }
  return t;
}

}  // namespace

void set_matrix_library(MatrixLibrary library) { g_library.store(library); }

const char* matrix_library() { return library() == MatrixLibrary::onednn ? "onednn" : "openblas"; }

void matrix_product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                    int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
    }
    return;
  }
  if (ta && k > kStrip) {
    for (int64_t at = 0; at < k; at += kStrip) {
      matrix_product(ta, tb, m, n, std::min(kStrip, k - at), alpha, a + at * lda, lda,
                     b + (tb ? at : at * ldb), ldb, at == 0 ? beta : 1, c, ldc);
    }
    return;
  }
  be_single_threaded();
  if (library() == MatrixLibrary::onednn) {
    const auto status =
        dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    CHECK(status == dnnl_success, "dnnl_sgemm of {} x {} x {}: status {}", m, n, k,
          static_cast<int>(status));
    return;
  }
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
              narrow(m), narrow(n), narrow(k), alpha, a, narrow(lda), b, narrow(ldb), beta, c,
              narrow(ldc));
}

void matrix_product(Pool* pool, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                    const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* c,
                    int64_t ldc) {
  if (m == 0 || n == 0) return;
  const Tile t = tile_of(m, n, k);
  const int64_t columns = ceil_div(n, t.n);
  parallel(pool, ceil_div(m, t.m) * columns, [&](int64_t i) {
    const int64_t row = i / columns * t.m, column = i % columns * t.n;
    matrix_product(ta, tb, std::min(t.m, m - row), std::min(t.n, n - column), k, alpha,
                   a + (ta ? row : row * lda), lda, b + (tb ? column * ldb : column), ldb, beta,
                   c + row * ldc + column, ldc);
  });
}

bool bf16_products() { return library() == MatrixLibrary::onednn && has_bf16_products(); }

namespace {

// The part of a matrix that begins at [row, column], counted after the transposition.
MatrixIn from(MatrixIn x, int64_t row, int64_t column) {
  const int64_t at = x.transposed ? column * x.step + row : row * x.step + column;
  const auto* data = static_cast<const std::byte*>(x.data);
  return {data + at * (x.narrow ? 2 : 4), x.narrow, x.transposed, x.step};
}
MatrixOut from(MatrixOut x, int64_t row, int64_t column) {
  return {static_cast<std::byte*>(x.data) + (row * x.step + column) * (x.narrow ? 2 : 4), x.narrow,
          x.step};
}

// A block of a matrix as f32, not transposed; at most `Elements` elements.
template <int64_t Elements>
struct Widened {
  alignas(64) float memory[Elements];
  const float* data;
  int64_t step;

  void take(const MatrixIn& x, int64_t rows, int64_t columns) {
    if (!x.narrow) {
      data = static_cast<const float*>(x.data);
      step = x.step;
      return;
    }
    if (x.transposed) std::swap(rows, columns);
    for (int64_t i = 0; i < rows; ++i)
      vec::widen_row(static_cast<const Bf16*>(x.data) + i * x.step, memory + i * columns, columns);
    data = memory;
    step = columns;
  }
};

constexpr int64_t kRows = 128, kColumns = 192,
                  kDepth = 256;  // of blocks: together half a megabyte on the stack

// Computes one block of C; its sums are kept in f32 from one strip of k to the next.
void widened_block(int64_t m, int64_t n, int64_t k, float alpha, MatrixIn a, MatrixIn b,
                   MatrixOut c) {
  Widened<kRows * kDepth> wide_a;
  Widened<kDepth * kColumns> wide_b;
  alignas(64) float sums[kRows * kColumns];
  float* to = c.narrow ? sums : static_cast<float*>(c.data);
  const int64_t step = c.narrow ? n : c.step;
  for (int64_t at = 0; at == 0 || at < k; at += kDepth) {
    const int64_t depth = std::min(kDepth, k - at);
    wide_a.take(from(a, 0, at), m, depth);
    wide_b.take(from(b, at, 0), depth, n);
    matrix_product(a.transposed, b.transposed, m, n, depth, alpha, wide_a.data, wide_a.step,
                   wide_b.data, wide_b.step, at == 0 ? 0.0f : 1.0f, to, step);
  }
  if (!c.narrow) return;
  for (int64_t i = 0; i < m; ++i)
    vec::narrow_row(sums + i * n, static_cast<Bf16*>(c.data) + i * c.step, n);
}

void widened_product(int64_t m, int64_t n, int64_t k, float alpha, MatrixIn a, MatrixIn b,
                     MatrixOut c) {
  for (int64_t i = 0; i < m; i += kRows) {
    for (int64_t j = 0; j < n; j += kColumns) {
      widened_block(std::min(kRows, m - i), std::min(kColumns, n - j), k, alpha, from(a, i, 0),
                    from(b, 0, j), from(c, i, j));
    }
  }
}

}  // namespace

void matrix_product(Pool* pool, int64_t m, int64_t n, int64_t k, float alpha, MatrixIn a,
                    MatrixIn b, MatrixOut c) {
  if (!a.narrow && !b.narrow && !c.narrow) {
    return matrix_product(
        pool, a.transposed, b.transposed, m, n, k, alpha, static_cast<const float*>(a.data), a.step,
        static_cast<const float*>(b.data), b.step, 0, static_cast<float*>(c.data), c.step);
  }
  if (m == 0 || n == 0) return;
  // For less work than this, widening is as cheap, and no primitive has to be made first.
  constexpr int64_t kLeast = int64_t{1} << 16;
  const bool as_they_are = a.narrow && b.narrow && m * n * k >= kLeast && bf16_products();
  const Tile t = tile_of(m, n, k);
  const int64_t columns = ceil_div(n, t.n);
  parallel(pool, ceil_div(m, t.m) * columns, [&](int64_t i) {
    const int64_t row = i / columns * t.m, column = i % columns * t.n;
    const auto product = as_they_are ? bf16_product : widened_product;
    product(std::min(t.m, m - row), std::min(t.n, n - column), k, alpha, from(a, row, 0),
            from(b, 0, column), from(c, row, column));
  });
}

}  // namespace myriad
