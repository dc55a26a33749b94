// Matrix products of few rows. Two rows of A and four columns of B (or four vectors of columns) are
// taken at a time, so that eight sums are under way and the processor need not wait for one. Every
// sum runs over k in one order, whichever others share its pass, so that a row of C does not depend
// on the rows beside it. Compiled once for each instruction set, as fast/vector_map.cc.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fast/vector_few.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/fast/vector-inl.h"
#include "kernels/fast/vector.h"

HWY_BEFORE_NAMESPACE();
namespace myriad::vec {
namespace HWY_NAMESPACE {

// Two rows of A; the second is the first again where there is none.
struct Rows {
  const float *a0, *a1;
  float *c0, *c1;
  Rows(const FewRows& x, int64_t i)
      : a0(x.a + i * x.lda),
        a1(i + 1 < x.m ? a0 + x.lda : a0),
        c0(x.c + i * x.ldc),
        c1(i + 1 < x.m ? c0 + x.ldc : c0) {}
};

// Columns [j, j + n) of B, n <= 4, as rows of memory.
HWY_INLINE void dots(const FewRows& x, const Rows& r, int64_t j, int64_t n) {
  const F d;
  const float* b0 = x.b + j * x.ldb;
  const float* b1 = n > 1 ? b0 + x.ldb : b0;
  const float* b2 = n > 2 ? b1 + x.ldb : b0;
  const float* b3 = n > 3 ? b2 + x.ldb : b0;
  VF s00 = hn::Zero(d), s01 = s00, s02 = s00, s03 = s00, s10 = s00, s11 = s00, s12 = s00, s13 = s00;
  each_vector(d, x.k, [&](auto lanes, int64_t i) HWY_ATTR {
    const VF a0 = lanes.load(d, r.a0 + i), a1 = lanes.load(d, r.a1 + i);
    const VF v0 = lanes.load(d, b0 + i), v1 = lanes.load(d, b1 + i);
    const VF v2 = lanes.load(d, b2 + i), v3 = lanes.load(d, b3 + i);
    s00 = hn::MulAdd(a0, v0, s00), s10 = hn::MulAdd(a1, v0, s10);
    s01 = hn::MulAdd(a0, v1, s01), s11 = hn::MulAdd(a1, v1, s11);
    s02 = hn::MulAdd(a0, v2, s02), s12 = hn::MulAdd(a1, v2, s12);
    s03 = hn::MulAdd(a0, v3, s03), s13 = hn::MulAdd(a1, v3, s13);
  });
  const auto sum = [&](VF s) HWY_ATTR { return x.scale * hn::GetLane(hn::SumOfLanes(d, s)); };
  const float first[4] = {sum(s00), sum(s01), sum(s02), sum(s03)};
  const float second[4] = {sum(s10), sum(s11), sum(s12), sum(s13)};
  for (int64_t i = 0; i < n; ++i) r.c0[j + i] = first[i], r.c1[j + i] = second[i];
}

// Four whole vectors of columns from j on.
HWY_INLINE void columns(const FewRows& x, const Rows& r, int64_t j) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF s00 = hn::Zero(d), s01 = s00, s02 = s00, s03 = s00, s10 = s00, s11 = s00, s12 = s00, s13 = s00;
  for (int64_t k = 0; k < x.k; ++k) {
    const float* b = x.b + k * x.ldb + j;
    const VF a0 = hn::Set(d, r.a0[k]), a1 = hn::Set(d, r.a1[k]);
    const VF v0 = hn::LoadU(d, b), v1 = hn::LoadU(d, b + lanes);
    const VF v2 = hn::LoadU(d, b + 2 * lanes), v3 = hn::LoadU(d, b + 3 * lanes);
    s00 = hn::MulAdd(a0, v0, s00), s10 = hn::MulAdd(a1, v0, s10);
    s01 = hn::MulAdd(a0, v1, s01), s11 = hn::MulAdd(a1, v1, s11);
    s02 = hn::MulAdd(a0, v2, s02), s12 = hn::MulAdd(a1, v2, s12);
    s03 = hn::MulAdd(a0, v3, s03), s13 = hn::MulAdd(a1, v3, s13);
  }
  const VF scale = hn::Set(d, x.scale);
  const auto store = [&](VF s, float* to) HWY_ATTR { hn::StoreU(hn::Mul(s, scale), d, to); };
  store(s00, r.c0 + j), store(s01, r.c0 + j + lanes);
  store(s02, r.c0 + j + 2 * lanes), store(s03, r.c0 + j + 3 * lanes);
  store(s10, r.c1 + j), store(s11, r.c1 + j + lanes);
  store(s12, r.c1 + j + 2 * lanes), store(s13, r.c1 + j + 3 * lanes);
}

HWY_INLINE void last_columns(const FewRows& x, const Rows& r, int64_t first, int64_t end) {
  const F d;
  each_vector(d, end - first, [&](auto lanes, int64_t i) HWY_ATTR {
    VF s0 = hn::Zero(d), s1 = s0;
    for (int64_t k = 0; k < x.k; ++k) {
      const VF b = lanes.load(d, x.b + k * x.ldb + first + i);
      s0 = hn::MulAdd(hn::Set(d, r.a0[k]), b, s0);
      s1 = hn::MulAdd(hn::Set(d, r.a1[k]), b, s1);
    }
    const VF scale = hn::Set(d, x.scale);
    lanes.store(hn::Mul(s0, scale), d, r.c0 + first + i);
    lanes.store(hn::Mul(s1, scale), d, r.c1 + first + i);
  });
}

void FewRowsOf(const FewRows& x, int64_t first, int64_t end) {
  const int64_t step = x.tb ? 4 : 4 * static_cast<int64_t>(hn::Lanes(F()));
  for (int64_t j = first; j < end; j += step) {
    for (int64_t i = 0; i < x.m; i += 2) {
      const Rows rows(x, i);
      if (x.tb) {
        dots(x, rows, j, HWY_MIN(step, end - j));
      } else if (j + step <= end) {
        columns(x, rows, j);
      } else {
        last_columns(x, rows, j, end);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace myriad::vec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace myriad::vec {

HWY_EXPORT(FewRowsOf);

void few_rows(const FewRows& x, int64_t first_column, int64_t end_column) {
  HWY_DYNAMIC_DISPATCH(FewRowsOf)(x, first_column, end_column);
}

}  // namespace myriad::vec
#endif
