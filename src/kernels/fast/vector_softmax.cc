// Row primitives of logits and attention scores: maxima, sums of exponentials, the gradient of a
// softmax. Every exponential is taken of a difference from the maximum of its row, so that none
// overflows. Compiled once for each instruction set, as fast/vector_map.cc, which says how.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fast/vector_softmax.cc"
#include "hwy/foreach_target.h"
//
#include <limits>

#include "hwy/highway.h"
#include "kernels/fast/vector-inl.h"
#include "kernels/fast/vector.h"

HWY_BEFORE_NAMESPACE();
namespace myriad::vec {
namespace HWY_NAMESPACE {

using I = hn::Rebind<int32_t, F>;

HWY_INLINE float shift(float m) { return m == -std::numeric_limits<float>::infinity() ? 0.0f : m; }

// Lanes that lie beyond the row take the value of `other`.
HWY_INLINE VF within(F, Whole, VF v, VF) { return v; }
HWY_INLINE VF within(F d, Part part, VF v, VF other) {
  return hn::IfThenElse(hn::FirstN(d, part.n), v, other);
}

float MaxRow(const float* z, int64_t n) {
  const F d;
  const VF low = hn::Set(d, -std::numeric_limits<float>::infinity());
  VF m = low;
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    m = hn::Max(m, within(d, lanes, lanes.load(d, z + i), low));
  });
  return hn::GetLane(hn::MaxOfLanes(d, m));
}

// Sums in f32 a chunk, chunks in double.
template <class Term>
HWY_INLINE double chunked_sum(int64_t n, const Term& term) {
  constexpr int64_t kChunk = 4096;
  const F d;
  double total = 0;
  for (int64_t lo = 0; lo < n; lo += kChunk) {
    VF sum = hn::Zero(d);
    each_vector(d, HWY_MIN(n - lo, kChunk), [&](auto lanes, int64_t i) HWY_ATTR {
      sum = hn::Add(sum, within(d, lanes, term(lanes, lo + i), hn::Zero(d)));
    });
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  return total;
}

double SumExpRow(const float* z, float m, int64_t n) {
  const F d;
  const VF shifted = hn::Set(d, shift(m));
  return chunked_sum(n, [&](auto lanes, int64_t i)
                            HWY_ATTR { return exp_of(d, hn::Sub(lanes.load(d, z + i), shifted)); });
}

void ExpScaleRow(const float* z, float m, float dy, float* out, int64_t n) {
  const F d;
  const VF shifted = hn::Set(d, shift(m)), c = hn::Set(d, dy);
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    lanes.store(hn::Mul(exp_of(d, hn::Sub(lanes.load(d, z + i), shifted)), c), d, out + i);
  });
}

template <class Lanes>
HWY_INLINE hn::Mask<F> visible(F d, Lanes lanes, const KeyTile& keys, int64_t i, int32_t pos,
                               int32_t doc) {
  const I di;
  const auto later = hn::Gt(lanes.load(di, keys.pos + i), hn::Set(di, pos));
  const auto seen = hn::AndNot(later, hn::Eq(lanes.load(di, keys.doc + i), hn::Set(di, doc)));
  return hn::RebindMask(d, seen);
}

float MaskRow(float* z, const KeyTile& keys, int32_t pos, int32_t doc, int64_t n) {
  if (keys.all_visible) return MaxRow(z, n);
  const F d;
  const VF low = hn::Set(d, -std::numeric_limits<float>::infinity());
  VF m = low;
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    const VF v = hn::IfThenElse(visible(d, lanes, keys, i, pos, doc), lanes.load(d, z + i), low);
    lanes.store(v, d, z + i);
    m = hn::Max(m, within(d, lanes, v, low));
  });
  return hn::GetLane(hn::MaxOfLanes(d, m));
}

float ExpRow(float* z, float m, int64_t n) {
  const F d;
  const VF shifted = hn::Set(d, shift(m));
  return static_cast<float>(chunked_sum(n, [&](auto lanes, int64_t i) HWY_ATTR {
    const VF e = exp_of(d, hn::Sub(lanes.load(d, z + i), shifted));
    lanes.store(e, d, z + i);
    return e;
  }));
}

void SoftmaxGradRow(float* z, float* dp, const KeyTile& keys, const GradRow& row, int64_t n) {
  const F d;
  const VF lse = hn::Set(d, row.lse), delta = hn::Set(d, row.delta), scale = hn::Set(d, row.scale);
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    VF p = exp_of(d, hn::Sub(lanes.load(d, z + i), lse));
    VF ds = hn::Mul(hn::Mul(scale, p), hn::Sub(lanes.load(d, dp + i), delta));
    if (!keys.all_visible) {
      const auto seen = visible(d, lanes, keys, i, row.pos, row.doc);
      p = hn::IfThenElseZero(seen, p);
      ds = hn::IfThenElseZero(seen, ds);
    }
    lanes.store(p, d, z + i);
    lanes.store(ds, d, dp + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace myriad::vec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace myriad::vec {

HWY_EXPORT(MaxRow);
HWY_EXPORT(SumExpRow);
HWY_EXPORT(ExpScaleRow);
HWY_EXPORT(MaskRow);
HWY_EXPORT(ExpRow);
HWY_EXPORT(SoftmaxGradRow);

float max_row(const float* z, int64_t n) { return HWY_DYNAMIC_DISPATCH(MaxRow)(z, n); }
double sum_exp_row(const float* z, float m, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(SumExpRow)(z, m, n);
}
void exp_scale_row(const float* z, float m, float dy, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ExpScaleRow)(z, m, dy, out, n);
}
float mask_row(float* z, const KeyTile& keys, int32_t pos, int32_t doc, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(MaskRow)(z, keys, pos, doc, n);
}
float exp_row(float* z, float m, int64_t n) { return HWY_DYNAMIC_DISPATCH(ExpRow)(z, m, n); }
void softmax_grad_row(float* z, float* dp, const KeyTile& keys, const GradRow& row, int64_t n) {
  HWY_DYNAMIC_DISPATCH(SoftmaxGradRow)(z, dp, keys, row, n);
}

}  // namespace myriad::vec
#endif
