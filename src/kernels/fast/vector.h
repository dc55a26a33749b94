// f32 row primitives, compiled by Highway for every instruction set and chosen at run time. An
// element's result depends on its operands alone, never on its place in the row or on the row's
// address: tails run through the same instructions as whole vectors. Sums of a row depend on its
// length and values only. Outputs may alias inputs of equal step; rows are unaligned; n may be 0.
// Thread-safe.
#pragma once

#include <cstdint>

#include "base/bf16.h"

namespace myriad::vec {

// Up to four factors; step[k]: at[k] moves along the row, else it is one value for all of it.
struct Factors {
  int n = 0;
  const float* at[4] = {};
  bool step[4] = {};
};

// out = scale * product
void product_row(const Factors& x, float scale, float* out, int64_t n);
// acc += product
void add_product_row(const Factors& x, float* acc, int64_t n);
// sum of the products
double dot_row(const Factors& x, int64_t n);

// Between storage and what is computed with; narrowing rounds to nearest, ties to even, and keeps
// NaN.
void widen_row(const Bf16* x, float* y, int64_t n);
void narrow_row(const float* x, Bf16* y, int64_t n);

// out = in[0] + in[1] + ..., left to right
void add_row(const float* const* in, int operands, float* out, int64_t n);
// C = scale A op(B) of few rows, row-major, C of n columns: op(B) is k x n, `tb`: it lies
// transposed. What c[i][j] is depends on row i of A and column j of B alone: every sum runs over k
// in one order.
struct FewRows {
  const float *a, *b;
  int64_t lda, ldb, ldc, m, k;
  bool tb;
  float scale;
  float* c;
};
void few_rows(const FewRows& x, int64_t first_column, int64_t end_column);
void scale_row(float* x, float scale, int64_t n);

void silu_row(const float* x, float* y, int64_t n);
void silu_grad_row(const float* x, const float* dy, float* dx, int64_t n);
void gelu_row(const float* x, float* y, int64_t n);
void gelu_grad_row(const float* x, const float* dy, float* dx, int64_t n);
void sigmoid_row(const float* x, float* y, int64_t n);

// A row of logits. exp(-inf - m) is 0 also for m = -inf; NaN is passed on (but max_row may lose
// it).
float max_row(const float* z, int64_t n);  // -inf if n is 0
double sum_exp_row(const float* z, float m, int64_t n);
void exp_scale_row(const float* z, float m, float dy, float* out, int64_t n);

// Attention: keys of a tile against one query.
struct KeyTile {
  const int32_t *pos, *doc;
  bool all_visible;
};
// z = -inf where the key is not visible; returns the maximum.
float mask_row(float* z, const KeyTile& keys, int32_t pos, int32_t doc, int64_t n);
// z = exp(z - m); returns the sum.
float exp_row(float* z, float m, int64_t n);
// z: scores -> p = exp(z - lse), 0 where not visible; dp -> scale p (dp - delta).
struct GradRow {
  float lse, delta, scale;
  int32_t pos, doc;
};
void softmax_grad_row(float* z, float* dp, const KeyTile& keys, const GradRow& row, int64_t n);

// c = cos(position f) mscale, s = sin(position f) mscale sign; n pairs.
void angles_row(const double* frequencies, double position, double mscale, int sign, float* c,
                float* s, int64_t n);
// Rotates the pairs (x1[i], x2[i]).
void rotate_row(const float* x1, const float* x2, const float* c, const float* s, float* y1,
                float* y2, int64_t n);

struct AdamW {
  float factor;        // of the gradient
  float rest1, rest2;  // 1 - beta
  float step;          // lr / left1
  float root;          // 1 / sqrt(left2)
  float eps, decay;    // decay: lr * weight decay
};
struct AdamWRow {
  const float *p, *g, *m, *v;
  float *new_p, *new_m, *new_v;
};
void adamw_row(const AdamW& a, const AdamWRow& x, int64_t n);

// Of the processor, as seen by Highway.
const char* instruction_set();
bool has_avx2();

}  // namespace myriad::vec
