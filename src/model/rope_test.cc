#include "model/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace myriad {
namespace {

TEST(Rope, PlainFrequenciesArePowersOfTheta) {
  const RopeTable t = rope_table({.theta = 10000}, 8, 100);
  ASSERT_EQ(t.frequencies.size(), 4u);
  const double expected[] = {1, 0.1, 0.01, 0.001};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(t.frequencies[i], expected[i], 1e-15);
  EXPECT_EQ(t.mscale, 1);
}

TEST(Rope, Llama3StretchesLongWavesOnly) {
  const RopeConfig r{
      .kind = RopeKind::llama3, .theta = 500000, .factor = 8, .original_positions = 8192};
  const RopeTable t = rope_table(r, 128, 8192), plain = rope_table({.theta = 500000}, 128, 8192);
  for (size_t i = 0; i < 64; ++i) {
    const double length = 2 * std::numbers::pi / plain.frequencies[i],
                 share = t.frequencies[i] / plain.frequencies[i];
    const double keep = std::clamp((8192 / length - 1) / 3, 0.0, 1.0);  // 1: shorter than 8192 / 4
    EXPECT_NEAR(share, (1 - keep) / 8 + keep, 1e-13);
  }
  EXPECT_EQ(t.frequencies[0], 1);
}

// The paper's corner dims for Llama 2 (dim 128, theta 10000, context 4096): 32 turns at 20.94, one
// at 45.03.
TEST(Rope, YarnRampRunsBetweenItsCorners) {
  const RopeConfig r{.kind = RopeKind::yarn, .factor = 16, .original_positions = 4096};
  const RopeTable t = rope_table(r, 128, 65536), plain = rope_table({}, 128, 65536);
  for (size_t i = 0; i < 64; ++i) {
    const double stretched =
        std::min(1.0, std::max(0.0, (static_cast<double>(i) - 20) / (46 - 20)));
    EXPECT_NEAR(t.frequencies[i] / plain.frequencies[i], stretched / 16 + 1 - stretched, 1e-14)
        << i;
  }
  EXPECT_NEAR(t.mscale, 0.1 * std::log(16.0) + 1, 1e-15);
}

TEST(Rope, YarnScales) {
  RopeConfig r{.kind = RopeKind::yarn,
               .factor = 40,
               .original_positions = 4096,
               .mscale = 1,
               .mscale_all_dim = 1};
  EXPECT_EQ(rope_table(r, 64, 1).mscale, 1);  // DeepSeek-V3: a ratio, not a value
  r.mscale = 0.707;
  EXPECT_NEAR(rope_table(r, 64, 1).mscale,
              (0.0707 * std::log(40.0) + 1) / (0.1 * std::log(40.0) + 1), 1e-15);
  r.attention_factor = 1.25;
  EXPECT_EQ(rope_table(r, 64, 1).mscale, 1.25);
  r = {.kind = RopeKind::yarn, .factor = 1, .original_positions = 4096};
  EXPECT_EQ(rope_table(r, 64, 1).mscale, 1);
}

TEST(Rope, YarnWithoutTruncationMovesTheCorners) {
  RopeConfig r{.kind = RopeKind::yarn, .factor = 16, .original_positions = 4096};
  const RopeTable rounded = rope_table(r, 128, 1);
  r.truncate = false;
  const RopeTable exact = rope_table(r, 128, 1), plain = rope_table({}, 128, 1);
  EXPECT_LT(rounded.frequencies[21], plain.frequencies[21]);
  const double low = 128 * std::log(4096 / (32 * 2 * std::numbers::pi)) / (2 * std::log(10000.0));
  const double high = 128 * std::log(4096 / (2 * std::numbers::pi)) / (2 * std::log(10000.0));
  const double stretched = (21 - low) / (high - low);
  EXPECT_NEAR(exact.frequencies[21] / plain.frequencies[21], stretched / 16 + 1 - stretched, 1e-14);
  EXPECT_EQ(exact.frequencies[20], plain.frequencies[20]);
}

TEST(Rope, TelechatGrowsTheBaseByDoublings) {
  const RopeConfig r{.kind = RopeKind::telechat, .base_seqlen = 8, .training_seqlen = 8};
  EXPECT_EQ(rope_table(r, 8, 5).frequencies, rope_table({}, 8, 1).frequencies);
  EXPECT_EQ(rope_table(r, 8, 8).mscale, 1);
  const RopeTable t = rope_table(r, 8, 24);  // log2(3) + 1 rounds up to 3: alpha is 7
  const double theta = 10000 * std::pow(7, 8.0 / 6);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(t.frequencies[i], std::pow(theta, -i / 4.0), 1e-15);
  EXPECT_NEAR(t.mscale, 0.1 * std::log(3.0) + 1, 1e-15);
  EXPECT_NEAR(rope_table(r, 8, 16).frequencies[1], std::pow(10000 * std::pow(3, 8.0 / 6), -0.25),
              1e-15);
}

// The published code raises the length to training_seqlen before it computes alpha.
TEST(Rope, TelechatTrainedBeyondItsBase) {
  const RopeConfig r{.kind = RopeKind::telechat, .base_seqlen = 8, .training_seqlen = 16};
  const RopeTable t = rope_table(r, 8, 4);
  EXPECT_NEAR(t.frequencies[1], std::pow(10000 * std::pow(3, 8.0 / 6), -0.25), 1e-15);
  EXPECT_EQ(t.mscale, 1);
}

}  // namespace
}  // namespace myriad
