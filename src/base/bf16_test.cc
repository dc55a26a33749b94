#include "base/bf16.h"

#include <gtest/gtest.h>

#include <limits>

namespace myriad {
namespace {

Bf16 of_bits(uint16_t bits) {
  Bf16 x;
  x.bits = bits;
  return x;
}

TEST(Bf16, EveryValueSurvivesTheWayThroughFloatAndDouble) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = of_bits(static_cast<uint16_t>(bits));
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Bf16(x))));
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(uint32_t{Bf16::of_float(x)} << 16)));
      continue;
    }
    EXPECT_EQ(Bf16(x).bits, bits);
    EXPECT_EQ(Bf16::of_float(x), bits);
  }
}

// Between two neighbours: the nearer one, from the middle the even one. Also where a float lies
// between that a first rounding would take for the middle.
TEST(Bf16, RoundsOnceToNearestTiesToEven) {
  for (uint16_t bits : {0x3f80, 0x3f81, 0x0080, 0x7f00, 0x0001, 0xbf80, 0xbf81}) {
    const double low = of_bits(bits), high = of_bits(static_cast<uint16_t>(bits + 1));
    const double middle = (low + high) / 2, little = (high - low) * 0x1p-40;
    EXPECT_EQ(Bf16(middle - little).bits, bits);
    EXPECT_EQ(Bf16(middle + little).bits, bits + 1);
    EXPECT_EQ(Bf16(middle).bits, bits + (bits & 1));
    EXPECT_EQ(Bf16::of_float(static_cast<float>(middle)), bits + (bits & 1));
  }
}

TEST(Bf16, WhatIsTooLargeIsInfinite) {
  EXPECT_TRUE(std::isinf(static_cast<float>(Bf16(3.4e38))));
  EXPECT_TRUE(std::isinf(static_cast<float>(Bf16(-1e300))));
  EXPECT_TRUE(std::isinf(static_cast<float>(Bf16(std::numeric_limits<float>::infinity()))));
}

}  // namespace
}  // namespace myriad
