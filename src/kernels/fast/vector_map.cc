// Row primitives whose result is a row (or a sum of one): products, sums, activations, rotation,
// optimizer. The file is compiled once for each instruction set: what stands inside HWY_NAMESPACE
// exists several times, and the functions at the end choose one at run time. Read fast/vector.h
// for what each computes and fast/vector-inl.h for how the end of a row is handled.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fast/vector_map.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/fast/vector-inl.h"
#include "kernels/fast/vector.h"

HWY_BEFORE_NAMESPACE();
namespace myriad::vec {
namespace HWY_NAMESPACE {

template <int N, class Lanes>
HWY_INLINE VF product(F d, Lanes lanes, const Factors& x, int64_t i) {
  VF p = x.step[0] ? lanes.load(d, x.at[0] + i) : hn::Set(d, *x.at[0]);
  for (int k = 1; k < N; ++k) {
    p = hn::Mul(p, x.step[k] ? lanes.load(d, x.at[k] + i) : hn::Set(d, *x.at[k]));
  }
  return p;
}

template <int N>
void product_n(const Factors& x, float scale, float* HWY_RESTRICT out, int64_t n) {
  const F d;
  const VF c = hn::Set(d, scale);
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    lanes.store(hn::Mul(product<N>(d, lanes, x, i), c), d, out + i);
  });
}

template <int N>
void add_product_n(const Factors& x, float* HWY_RESTRICT acc, int64_t n) {
  const F d;
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    lanes.store(hn::Add(lanes.load(d, acc + i), product<N>(d, lanes, x, i)), d, acc + i);
  });
}

void ProductRow(const Factors& x, float scale, float* out, int64_t n) {
  switch (x.n) {
    case 1:
      return product_n<1>(x, scale, out, n);
    case 2:
      return product_n<2>(x, scale, out, n);
    case 3:
      return product_n<3>(x, scale, out, n);
    default:
      return product_n<4>(x, scale, out, n);
  }
}

void AddProductRow(const Factors& x, float* acc, int64_t n) {
  switch (x.n) {
    case 1:
      return add_product_n<1>(x, acc, n);
    case 2:
      return add_product_n<2>(x, acc, n);
    case 3:
      return add_product_n<3>(x, acc, n);
    default:
      return add_product_n<4>(x, acc, n);
  }
}

// Four running sums over the whole vectors of a chunk, in f32; chunks are summed in double.
template <int N>
double dot_n(const Factors& x, int64_t n) {
  constexpr int64_t kChunk = 4096;
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  double total = 0;
  for (int64_t lo = 0; lo < n; lo += kChunk) {
    const int64_t hi = HWY_MIN(n, lo + kChunk);
    VF s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = lo;
    for (; i + 4 * lanes <= hi; i += 4 * lanes) {
      s0 = hn::Add(s0, product<N>(d, Whole{}, x, i));
      s1 = hn::Add(s1, product<N>(d, Whole{}, x, i + lanes));
      s2 = hn::Add(s2, product<N>(d, Whole{}, x, i + 2 * lanes));
      s3 = hn::Add(s3, product<N>(d, Whole{}, x, i + 3 * lanes));
    }
    for (; i + lanes <= hi; i += lanes) s0 = hn::Add(s0, product<N>(d, Whole{}, x, i));
    if (i < hi) {  // lanes beyond the row must not add a product of constants
      const size_t rest = static_cast<size_t>(hi - i);
      s1 = hn::Add(s1, hn::IfThenElseZero(hn::FirstN(d, rest), product<N>(d, Part{rest}, x, i)));
    }
    const VF sum = hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
    total += static_cast<double>(hn::GetLane(sum));
  }
  return total;
}

double DotRow(const Factors& x, int64_t n) {
  switch (x.n) {
    case 1:
      return dot_n<1>(x, n);
    case 2:
      return dot_n<2>(x, n);
    case 3:
      return dot_n<3>(x, n);
    default:
      return dot_n<4>(x, n);
  }
}

void AddRow(const float* const* in, int operands, float* out, int64_t n) {
  const F d;
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    VF sum = lanes.load(d, in[0] + i);
    for (int k = 1; k < operands; ++k) sum = hn::Add(sum, lanes.load(d, in[k] + i));
    lanes.store(sum, d, out + i);
  });
}

void ScaleRow(float* x, float scale, int64_t n) {
  const F d;
  const VF c = hn::Set(d, scale);
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    lanes.store(hn::Mul(lanes.load(d, x + i), c), d, x + i);
  });
}

// 1 / (1 + exp(-x)) from exp(-|x|), which cannot overflow.
HWY_INLINE VF logistic(F d, VF x) {
  const VF one = hn::Set(d, 1.0f), e = exp_of(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

void SiluRow(const float* x, float* y, int64_t n) {
  const F d;
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    const VF v = lanes.load(d, x + i);
    lanes.store(hn::Mul(v, logistic(d, v)), d, y + i);
  });
}

void SiluGradRow(const float* x, const float* dy, float* dx, int64_t n) {
  const F d;
  const VF one = hn::Set(d, 1.0f);
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    const VF v = lanes.load(d, x + i), s = logistic(d, v);
    const VF slope = hn::Mul(s, hn::Add(one, hn::Mul(v, hn::Sub(one, s))));
    lanes.store(hn::Mul(lanes.load(d, dy + i), slope), d, dx + i);
  });
}

// GELU's tanh form, see ref/elementwise.cc.
constexpr float kTwoRoot = 1.5957691216057308f, kCube = 0.044715f;

HWY_INLINE VF gelu_gate(F d, VF v) {
  const VF cubic = hn::MulAdd(hn::Mul(hn::Set(d, kCube), hn::Mul(v, v)), v, v);
  return logistic(d, hn::Mul(hn::Set(d, kTwoRoot), cubic));
}

void GeluRow(const float* x, float* y, int64_t n) {
  const F d;
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    const VF v = lanes.load(d, x + i);
    lanes.store(hn::Mul(v, gelu_gate(d, v)), d, y + i);
  });
}

void GeluGradRow(const float* x, const float* dy, float* dx, int64_t n) {
  const F d;
  const VF one = hn::Set(d, 1.0f), far = hn::Set(d, 20.0f);  // beyond, s (1 - s) is 0
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    const VF v = lanes.load(d, x + i), s = gelu_gate(d, v);
    const VF z = hn::Min(hn::Max(v, hn::Neg(far)), far);
    const VF inner = hn::MulAdd(hn::Set(d, 3 * kCube), hn::Mul(z, z), one);
    const VF bend = hn::Mul(hn::Mul(z, hn::Set(d, kTwoRoot)), hn::Mul(s, hn::Sub(one, s)));
    lanes.store(hn::Mul(lanes.load(d, dy + i), hn::MulAdd(bend, inner, s)), d, dx + i);
  });
}

void SigmoidRow(const float* x, float* y, int64_t n) {
  const F d;
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    lanes.store(logistic(d, lanes.load(d, x + i)), d, y + i);
  });
}

void AnglesRow(const double* frequencies, double position, double mscale, int sign, float* c,
               float* s, int64_t n) {
  // The turn is reduced to [-pi, pi] with 2 pi in three parts: the first two have 24 bits, so that
  // their products with the count of turns (below 2^29 for any int32 position) are exact.
  constexpr double kTwoPi1 = 0x1.921fb4p+2, kTwoPi2 = 0x1.4442d0p-22,
                   kTwoPi3 = 0x1.8469898cc5170p-46;
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto turns_per_radian = hn::Set(d, 0.15915494309189533577);
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    const auto x = hn::Mul(lanes.load(d, frequencies + i), hn::Set(d, position));
    const auto turns = hn::Round(hn::Mul(x, turns_per_radian));
    auto r = hn::Sub(x, hn::Mul(turns, hn::Set(d, kTwoPi1)));
    r = hn::Sub(r, hn::Mul(turns, hn::Set(d, kTwoPi2)));
    r = hn::Sub(r, hn::Mul(turns, hn::Set(d, kTwoPi3)));
    lanes.store(hn::DemoteTo(df, hn::Mul(hn::Cos(d, r), hn::Set(d, mscale))), df, c + i);
    lanes.store(hn::DemoteTo(df, hn::Mul(hn::Sin(d, r), hn::Set(d, mscale * sign))), df, s + i);
  });
}

void RotateRow(const float* x1, const float* x2, const float* c, const float* s, float* y1,
               float* y2, int64_t n) {
  const F d;
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    const VF a = lanes.load(d, x1 + i), b = lanes.load(d, x2 + i);
    const VF cos = lanes.load(d, c + i), sin = lanes.load(d, s + i);
    lanes.store(hn::Sub(hn::Mul(a, cos), hn::Mul(b, sin)), d, y1 + i);
    lanes.store(hn::Add(hn::Mul(b, cos), hn::Mul(a, sin)), d, y2 + i);
  });
}

// Moments as m + (1 - beta)(g - m): beta itself would lose what lies near 1 in f32. Likewise p
// minus (decay + step).
void AdamwRow(const AdamW& a, const AdamWRow& x, int64_t n) {
  const F d;
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    const VF p = lanes.load(d, x.p + i), g = hn::Mul(lanes.load(d, x.g + i), hn::Set(d, a.factor));
    VF m = lanes.load(d, x.m + i), v = lanes.load(d, x.v + i);
    m = hn::Add(m, hn::Mul(hn::Set(d, a.rest1), hn::Sub(g, m)));
    v = hn::Add(v, hn::Mul(hn::Set(d, a.rest2), hn::Sub(hn::Mul(g, g), v)));
    const VF below = hn::Add(hn::Mul(hn::Sqrt(v), hn::Set(d, a.root)), hn::Set(d, a.eps));
    const VF step = hn::Div(hn::Mul(hn::Set(d, a.step), m), below);
    lanes.store(hn::Sub(p, hn::Add(hn::Mul(hn::Set(d, a.decay), p), step)), d, x.new_p + i);
    lanes.store(m, d, x.new_m + i);
    lanes.store(v, d, x.new_v + i);
  });
}

using U32 = hn::Rebind<uint32_t, F>;
using U16 = hn::Rebind<uint16_t, F>;

void WidenRow(const uint16_t* HWY_RESTRICT x, float* HWY_RESTRICT y, int64_t n) {
  const F d;
  const U32 wide;
  const U16 half;
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(wide, lanes.load(half, x + i)));
    lanes.store(hn::BitCast(d, bits), d, y + i);
  });
}

void NarrowRow(const float* HWY_RESTRICT x, uint16_t* HWY_RESTRICT y, int64_t n) {
  const F d;
  const U32 wide;
  const hn::Rebind<int32_t, F> whole;
  const U16 half;
  const auto one = hn::Set(wide, 1), below_half = hn::Set(wide, 0x7fff),
             quiet = hn::Set(wide, 0x400000);
  each_vector(d, n, [&](auto lanes, int64_t i) HWY_ATTR {
    const VF v = lanes.load(d, x + i);
    const auto bits = hn::BitCast(wide, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), one);
    const auto rounded = hn::Add(bits, hn::Add(below_half, odd));
    const auto kept =
        hn::IfThenElse(hn::RebindMask(wide, hn::IsNaN(v)), hn::Or(bits, quiet), rounded);
    lanes.store(hn::DemoteTo(half, hn::BitCast(whole, hn::ShiftRight<16>(kept))), half, y + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace myriad::vec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace myriad::vec {

HWY_EXPORT(ProductRow);
HWY_EXPORT(AddProductRow);
HWY_EXPORT(DotRow);
HWY_EXPORT(AddRow);
HWY_EXPORT(ScaleRow);
HWY_EXPORT(SiluRow);
HWY_EXPORT(SiluGradRow);
HWY_EXPORT(GeluRow);
HWY_EXPORT(GeluGradRow);
HWY_EXPORT(SigmoidRow);
HWY_EXPORT(AnglesRow);
HWY_EXPORT(RotateRow);
HWY_EXPORT(AdamwRow);
HWY_EXPORT(WidenRow);
HWY_EXPORT(NarrowRow);

void product_row(const Factors& x, float scale, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ProductRow)(x, scale, out, n);
}
void add_product_row(const Factors& x, float* acc, int64_t n) {
  HWY_DYNAMIC_DISPATCH(AddProductRow)(x, acc, n);
}
double dot_row(const Factors& x, int64_t n) { return HWY_DYNAMIC_DISPATCH(DotRow)(x, n); }
void add_row(const float* const* in, int operands, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(AddRow)(in, operands, out, n);
}
void scale_row(float* x, float scale, int64_t n) { HWY_DYNAMIC_DISPATCH(ScaleRow)(x, scale, n); }
void silu_row(const float* x, float* y, int64_t n) { HWY_DYNAMIC_DISPATCH(SiluRow)(x, y, n); }
void silu_grad_row(const float* x, const float* dy, float* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(SiluGradRow)(x, dy, dx, n);
}
void gelu_row(const float* x, float* y, int64_t n) { HWY_DYNAMIC_DISPATCH(GeluRow)(x, y, n); }
void gelu_grad_row(const float* x, const float* dy, float* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(GeluGradRow)(x, dy, dx, n);
}
void sigmoid_row(const float* x, float* y, int64_t n) { HWY_DYNAMIC_DISPATCH(SigmoidRow)(x, y, n); }
void angles_row(const double* frequencies, double position, double mscale, int sign, float* c,
                float* s, int64_t n) {
  HWY_DYNAMIC_DISPATCH(AnglesRow)(frequencies, position, mscale, sign, c, s, n);
}
void rotate_row(const float* x1, const float* x2, const float* c, const float* s, float* y1,
                float* y2, int64_t n) {
  HWY_DYNAMIC_DISPATCH(RotateRow)(x1, x2, c, s, y1, y2, n);
}
void adamw_row(const AdamW& a, const AdamWRow& x, int64_t n) {
  HWY_DYNAMIC_DISPATCH(AdamwRow)(a, x, n);
}
void widen_row(const Bf16* x, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(WidenRow)(reinterpret_cast<const uint16_t*>(x), y, n);
}
void narrow_row(const float* x, Bf16* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(NarrowRow)(x, reinterpret_cast<uint16_t*>(y), n);
}

namespace {
int64_t best_target() {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return targets & -targets;  // lower bits are better
}
}  // namespace

const char* instruction_set() { return hwy::TargetName(best_target()); }
bool has_avx2() { return HWY_ARCH_X86 && best_target() <= HWY_AVX2; }

}  // namespace myriad::vec
#endif
