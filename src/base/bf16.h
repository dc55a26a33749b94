// bfloat16: the upper half of a float. Storage, no arithmetic: values are widened (exactly),
// computed with and rounded once, to nearest, ties to even. NaN stays NaN; what is too large
// becomes infinite.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace myriad {

struct Bf16 {
  uint16_t bits = 0;

  Bf16() = default;
  template <class T>
  requires std::is_arithmetic_v<T>
  explicit Bf16(T x) {
    if constexpr (std::is_same_v<T, float>) {
      bits = of_float(x);
    } else {
      bits = of_double(static_cast<double>(x));
    }
  }
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

  static uint16_t of_float(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    if (std::isnan(x)) return static_cast<uint16_t>(u >> 16 | 0x40);
    return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
  }
  // By way of a float rounded to odd, so that the second rounding is as if there had been no first.
  static uint16_t of_double(double x) {
    const float f = static_cast<float>(x);
    if (std::isinf(f) || std::isnan(f) || static_cast<double>(f) == x) return of_float(f);
    const float toward_zero =
        std::abs(static_cast<double>(f)) > std::abs(x) ? std::nextafter(f, 0.0f) : f;
    return of_float(std::bit_cast<float>(std::bit_cast<uint32_t>(toward_zero) | 1));
  }
};
static_assert(sizeof(Bf16) == 2);

}  // namespace myriad
