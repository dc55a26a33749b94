#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace myriad {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers of Random123 (kat_vectors, philox4x32 10).
TEST(Random, PhiloxKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, StreamsAreStable) {
  EXPECT_EQ(stream_of(""), 0xcbf29ce484222325u);
  EXPECT_EQ(stream_of("a"), 0xaf63dc4c8601ec8cu);  // published value of FNV-1a
  EXPECT_NE(stream_of("layers.0.up_proj"), stream_of("layers.1.up_proj"));
}

TEST(Random, BitsAreThoseOfPhilox) {
  EXPECT_EQ(random_bits(0, 0, 0), 0xe169c58d6627e8d5u);
  EXPECT_EQ(random_bits(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            0x94fdccebd16cfe09u);
  EXPECT_NE(random_bits(1, 2, 3), random_bits(1, 3, 2));
}

TEST(Random, MomentsOfUniform) {
  constexpr int n = 1 << 20;
  double sum = 0, squares = 0, lagged = 0, before = 0;
  for (int i = 0; i < n; ++i) {
    const double x = uniform(7, stream_of("u"), i);
    ASSERT_TRUE(x >= 0 && x < 1);
    sum += x;
    squares += x * x;
    lagged += (x - 0.5) * before;
    before = x - 0.5;
  }
  const double sigmas = 5 / std::sqrt(double{n});
  EXPECT_NEAR(sum / n, 0.5, sigmas * std::sqrt(1.0 / 12));
  EXPECT_NEAR(squares / n, 1.0 / 3, sigmas * std::sqrt(4.0 / 45));
  EXPECT_NEAR(lagged / n, 0, sigmas / 12);
}

TEST(Random, MomentsOfNormal) {
  constexpr int n = 1 << 20;
  double moment[5] = {};
  int beyond_two = 0;
  for (int i = 0; i < n; ++i) {
    const double x = normal(7, stream_of("n"), i);
    ASSERT_TRUE(std::isfinite(x));
    for (int k = 1; k <= 4; ++k) moment[k] += std::pow(x, k) / n;
    beyond_two += std::abs(x) > 2;
  }
  const double sigmas = 5 / std::sqrt(double{n});
  EXPECT_NEAR(moment[1], 0, sigmas);
  EXPECT_NEAR(moment[2], 1, sigmas * std::sqrt(2));
  EXPECT_NEAR(moment[3], 0, sigmas * std::sqrt(15));
  EXPECT_NEAR(moment[4], 3, sigmas * std::sqrt(96));
  EXPECT_NEAR(beyond_two / double{n}, 0.0455, sigmas * 0.21);
}

TEST(Random, PermutedIsAPermutation) {
  for (const uint64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 100, 1000, 4097}) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < n; ++i) seen.insert(permuted(1, 2, i, n));
    EXPECT_EQ(seen.size(), n);
    EXPECT_LT(*seen.rbegin(), n);
  }
  constexpr uint64_t wide = (uint64_t{1} << 63) + 12345;
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 1000; ++i) seen.insert(permuted(1, 2, wide - 1 - i, wide));
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_LT(*seen.rbegin(), wide);
}

// Over many seeds each index goes to each place equally often, and so does each pair of indices.
TEST(Random, PermutedIsFair) {
  constexpr int seeds = 20000;
  for (const int n : {2, 3, 5, 7, 8, 16, 20}) {
    std::vector<int> place(n * n), pair(n * n);
    for (int seed = 0; seed < seeds; ++seed) {
      for (int i = 0; i < n; ++i) ++place[i * n + permuted(seed, 0, i, n)];
      ++pair[permuted(seed, 0, 0, n) * n + permuted(seed, 0, 1, n)];
    }
    for (int k = 0; k < n * n; ++k) {
      const double one = seeds / double(n), two = seeds / double(n * (n - 1));
      EXPECT_NEAR(place[k], one, 5 * std::sqrt(one)) << "n " << n << " cell " << k;
      if (k / n != k % n) {
        EXPECT_NEAR(pair[k], two, 5 * std::sqrt(two)) << "n " << n << " cell " << k;
      }
    }
  }
}

}  // namespace
}  // namespace myriad
