#include "train/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

namespace myriad {
namespace {

const std::vector<double> kLogits = {std::log(0.1), std::log(0.4), std::log(0.05), std::log(0.3),
                                     std::log(0.15)};

std::map<int32_t, double> shares(const Sampling& s) {
  constexpr int kDraws = 20000;
  std::map<int32_t, double> out;
  for (uint64_t i = 0; i < kDraws; ++i) out[sample(kLogits, s, 0, i)] += 1.0 / kDraws;
  return out;
}

TEST(Sample, TemperatureZeroTakesTheLikeliest) {
  EXPECT_EQ(sample(kLogits, {.temperature = 0}, 0, 1), 1);
  EXPECT_EQ(sample(std::vector<double>{2, 5, 5}, {.temperature = 0}, 0, 1), 1)
      << "the lowest of equals";
}

TEST(Sample, SharesAreThoseOfTheSoftmax) {
  const auto plain = shares({.temperature = 1}), cold = shares({.temperature = 0.5});
  for (int32_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(plain.at(i), std::exp(kLogits[i]), 0.015) << i;
    const double square = std::exp(2 * kLogits[i]);
    EXPECT_NEAR(cold.at(i), square / (0.01 + 0.16 + 0.0025 + 0.09 + 0.0225), 0.015) << i;
  }
}

TEST(Sample, TopK) {
  const auto two = shares({.temperature = 1, .top_k = 2});
  EXPECT_EQ(two.size(), 2u);
  EXPECT_NEAR(two.at(1), 4.0 / 7, 0.015);
  EXPECT_NEAR(two.at(3), 3.0 / 7, 0.015);
  EXPECT_EQ(shares({.temperature = 1, .top_k = 1}).size(), 1u);
  EXPECT_EQ(shares({.temperature = 1, .top_k = 99}).size(), 5u);
}

TEST(Sample, TopPIsTheSmallestSetThatReachesIt) {
  EXPECT_EQ(shares({.temperature = 1, .top_p = 0.3}).size(), 1u);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 0.65}).size(), 2u);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 0.75}).size(), 3u);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 1}).size(), 5u);
  const auto after_k = shares({.temperature = 1, .top_k = 2, .top_p = 0.5});
  EXPECT_EQ(after_k.size(), 1u) << "0.4 of 0.7 reaches half of what top_k left";
}

TEST(Sample, AFunctionOfSeedPromptAndPosition) {
  const auto draw = [](uint64_t seed, uint64_t prompt) {
    std::vector<int32_t> out;
    for (uint64_t i = 0; i < 50; ++i)
      out.push_back(sample(kLogits, {.temperature = 1, .seed = seed}, prompt, i));
    return out;
  };
  EXPECT_EQ(draw(1, 0), draw(1, 0));
  EXPECT_NE(draw(1, 0), draw(2, 0));
  EXPECT_NE(draw(1, 0), draw(1, 1));
}

TEST(Sample, WhatIsRuledOutIsNeverChosen) {
  std::vector<double> logits(3, -std::numeric_limits<double>::infinity());
  logits[2] = -40;
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(sample(logits, {.temperature = 2}, 0, i), 2);
}

}  // namespace
}  // namespace myriad
