// Matrix products in f32, and of bf16 with sums in f32, by oneDNN or OpenBLAS, always
// single-threaded: parallelism is ours, over fixed tiles.
#pragma once

#include <cstdint>

#include "base/bf16.h"
#include "base/pool.h"

namespace myriad {

enum class MatrixLibrary : uint8_t { automatic, onednn, openblas };

// For the whole process, before the first product; for tests and benches. `automatic`: oneDNN on
// x86 with AVX2 or better, else OpenBLAS. (OpenBLAS 0.3.21 takes processors it does not know, from
// Sapphire Rapids on, for SSE3 ones: a fifth of the speed; with AVX2 alone the two are even;
// oneDNN 2.6 has no fast product without AVX or on Arm.)
void set_matrix_library(MatrixLibrary library);
const char* matrix_library();  // "onednn" or "openblas"

// C = alpha op(A) op(B) + beta C, row-major; op(A) is m x k, op(B) is k x n, and ta, tb tell that
// A, B lie transposed. With beta = 0 C need not be initialised. Any size may be 0. Thread-safe.
void matrix_product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                    int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

// The same by tiles of C on a pool. The grid is a function of m, n, k alone, so results do not
// depend on the workers.
void matrix_product(Pool* pool, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                    const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* c,
                    int64_t ldc);

// A matrix of f32 or bf16, row-major. `transposed`: what lies in memory is its transpose.
struct MatrixIn {
  const void* data;
  bool narrow;  // bf16, else f32
  bool transposed;
  int64_t step;  // elements between rows as they lie
};
struct MatrixOut {
  void* data;
  bool narrow;
  int64_t step;
};

// C = alpha A B by the same tiles, sums in f32, a bf16 result rounded once. Two bf16 operands are
// multiplied as they are where bf16_products() says so, else blocks of them are widened and
// multiplied in f32.
void matrix_product(Pool* pool, int64_t m, int64_t n, int64_t k, float alpha, MatrixIn a,
                    MatrixIn b, MatrixOut c);
// Whether the processor multiplies bf16 (AVX-512 BF16) and the library in use makes use of it.
bool bf16_products();

}  // namespace myriad
