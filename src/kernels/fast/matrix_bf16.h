// Products of bf16 by oneDNN's primitives, which are made once for each size and thread and kept.
#pragma once

#include "kernels/fast/matrix.h"

namespace myriad {

// Whether the processor can multiply bf16.
bool has_bf16_products();
// C = alpha A B, single-threaded. A and B are bf16, k > 0. May only be called where
// has_bf16_products() is true.
void bf16_product(int64_t m, int64_t n, int64_t k, float alpha, MatrixIn a, MatrixIn b,
                  MatrixOut c);

}  // namespace myriad
