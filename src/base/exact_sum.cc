#include "base/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace myriad {

namespace {
constexpr int kLowestExponent = -512;  // weight of bit 0 of limb 0
constexpr int64_t kBetweenCarries = 1 << 30;
}  // namespace

void ExactSum::add(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const int exponent = static_cast<int>((bits >> 52) & 0x7ff);
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (exponent == 0) return;  // zero or far below the grid
  mantissa |= uint64_t{1} << 52;
  int place = exponent - 1075 - kLowestExponent;  // of the mantissa's lowest bit, above the grid
  if (place > 1024 - 53 - 1) {
    ++bad;
    return;
  }
  if (place < 0) {
    if (place <= -53) return;
    mantissa >>= -place;
    place = 0;
  }
  const int i = place >> 5, shift = place & 31;
  const unsigned __int128 wide = static_cast<unsigned __int128>(mantissa) << shift;
  const int64_t sign = (bits >> 63) ? -1 : 1;
  limb[i] += sign * static_cast<int64_t>(static_cast<uint64_t>(wide) & 0xffffffffu);
  limb[i + 1] += sign * static_cast<int64_t>(static_cast<uint64_t>(wide >> 32) & 0xffffffffu);
  limb[i + 2] += sign * static_cast<int64_t>(static_cast<uint64_t>(wide >> 64));
  if (++added >= kBetweenCarries) normalise();
}

void ExactSum::add(const ExactSum& other) {
  for (int i = 0; i < kLimbs; ++i) limb[i] += other.limb[i];
  bad += other.bad;
  added += other.added + 1;
  if (added >= kBetweenCarries) normalise();
}

void ExactSum::normalise() {
  int64_t carry = 0;
  for (int i = 0; i < kLimbs - 1; ++i) {
    const int64_t sum = limb[i] + carry;
    carry = sum >> 32;  // floor
    limb[i] = sum - (carry << 32);
  }
  limb[kLimbs - 1] += carry;
  bad = bad != 0;
  added = 0;
}

double ExactSum::value() const {
  if (bad) return std::numeric_limits<double>::quiet_NaN();
  ExactSum x = *this;
  x.normalise();
  const bool negative = x.limb[kLimbs - 1] < 0;
  if (negative) {
    for (auto& l : x.limb) l = -l;
    x.normalise();
  }
  double sum = 0;  // from the top: three limbs hold more than 53 bits
  for (int i = kLimbs - 1, used = 0; i >= 0 && used < 4; --i) {
    if (x.limb[i] == 0 && used == 0) continue;
    sum += std::ldexp(static_cast<double>(x.limb[i]), 32 * i + kLowestExponent);
    ++used;
  }
  return negative ? -sum : sum;
}

}  // namespace myriad
