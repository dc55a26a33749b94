// Loops over rows with tails that run through the same instructions. Included once per instruction
// set.
#if defined(MYRIAD_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYRIAD_VECTOR_INL_H_
#undef MYRIAD_VECTOR_INL_H_
#else
#define MYRIAD_VECTOR_INL_H_
#endif

#include <cstring>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace myriad::vec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using VF = hn::Vec<F>;

// A whole vector.
struct Whole {
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* p) const {
    return hn::LoadU(d, p);
  }
  template <class D>
  HWY_INLINE void store(hn::Vec<D> v, D d, hn::TFromD<D>* p) const {
    hn::StoreU(v, d, p);
  }
};

// The first n lanes; the others are loaded as 0 and not stored.
struct Part {
  size_t n;
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* p) const {
#if HWY_MEM_OPS_MIGHT_FAULT
    HWY_ALIGN hn::TFromD<D> buffer[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)] = {};
    std::memcpy(buffer, p, n * sizeof(*p));
    return hn::Load(d, buffer);
#else
    return hn::MaskedLoad(hn::FirstN(d, n), d, p);
#endif
  }
  template <class D>
  HWY_INLINE void store(hn::Vec<D> v, D d, hn::TFromD<D>* p) const {
#if HWY_MEM_OPS_MIGHT_FAULT
    HWY_ALIGN hn::TFromD<D> buffer[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)];
    hn::Store(v, d, buffer);
    std::memcpy(p, buffer, n * sizeof(*p));
#else
    hn::BlendedStore(v, hn::FirstN(d, n), d, p);
#endif
  }
};

// body(lanes, i) for the vectors of [0, n).
template <class D, class Body>
HWY_INLINE void each_vector(D d, int64_t n, const Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(Whole{}, i);
  if (i < n) body(Part{static_cast<size_t>(n - i)}, i);
}

// exp for arguments that do not overflow; 0 below -87 (no subnormals), NaN for NaN.
HWY_INLINE VF exp_of(F d, VF x) {
  const VF y = hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -87.0f)), hn::Exp(d, x));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace myriad::vec
HWY_AFTER_NAMESPACE();

#endif
