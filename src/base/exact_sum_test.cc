#include "base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"

namespace myriad {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ExactSum sum_of(const std::vector<double>& terms) {
  ExactSum sum{};
  for (const double x : terms) sum.add(x);
  return sum;
}

bool same_bits(ExactSum a, ExactSum b) {
  a.normalise();
  b.normalise();
  return std::memcmp(&a, &b, sizeof a) == 0;
}

// Of all magnitudes that the sum may hold.
std::vector<double> wild_terms(uint64_t stream, int n, int exponents) {
  std::vector<double> terms;
  for (int i = 0; i < n; ++i) {
    const double exponent = (2 * uniform(1, stream, 2 * i) - 1) * exponents;
    terms.push_back(std::ldexp(normal(1, stream + 1, i), static_cast<int>(exponent)));
  }
  return terms;
}

TEST(ExactSum, SmallCases) {
  EXPECT_EQ(sum_of({}).value(), 0);
  EXPECT_EQ(sum_of({0.0, -0.0}).value(), 0);
  EXPECT_EQ(sum_of({1, 2, 3.5}).value(), 6.5);
  EXPECT_EQ(sum_of({-1, -2, -3.5}).value(), -6.5);
  EXPECT_EQ(sum_of({-0.1}).value(), -0.1);
  EXPECT_EQ(sum_of({0x1.fffffffffffffp+510}).value(), 0x1.fffffffffffffp+510);
  EXPECT_EQ(sum_of({-0x1p-512}).value(), -0x1p-512);
}

TEST(ExactSum, OrderAndGroupingDoNotMatter) {
  for (int round = 0; round < 50; ++round) {
    std::vector<double> terms = wild_terms(10 * round, 500, 500);
    const ExactSum forward = sum_of(terms);
    for (size_t i = terms.size(); i-- > 1;) {
      std::swap(terms[i], terms[random_bits(round, 7, i) % (i + 1)]);
    }
    EXPECT_TRUE(same_bits(forward, sum_of(terms)));
    ExactSum parts[7] = {}, grouped{};
    for (size_t i = 0; i < terms.size(); ++i) parts[random_bits(round, 8, i) % 7].add(terms[i]);
    for (int i = 6; i >= 0; --i) {
      if (i % 2) parts[i].normalise();
      grouped.add(parts[i]);
    }
    EXPECT_TRUE(same_bits(forward, grouped));
    EXPECT_EQ(forward.value(), grouped.value());
  }
}

TEST(ExactSum, HugeCancellation) {
  EXPECT_EQ(sum_of({1e150, 1, -1e150}).value(), 1);
  EXPECT_EQ(sum_of({1e150, 1e-150, -1e150, -1e-150}).value(), 0);
  EXPECT_EQ(sum_of({-1e150, 0x1.8p-460, 1e150}).value(), 0x1.8p-460);
  std::vector<double> terms = wild_terms(3, 1000, 500);
  const size_t n = terms.size();
  for (size_t i = 0; i < n; ++i) terms.push_back(-terms[n - 1 - i]);
  EXPECT_TRUE(same_bits(sum_of(terms), ExactSum{}));
}

TEST(ExactSum, TermsAreCutToTheGrid) {
  EXPECT_EQ(sum_of({5e-324, -5e-324, 1e-310, std::numeric_limits<double>::min()}).value(), 0);
  EXPECT_EQ(sum_of({0x1.8p-512, 0x1.8p-512}).value(), 0x1p-511);  // each by itself
  EXPECT_EQ(sum_of({0x1.8p-511}).value(), 0x1.8p-511);
  EXPECT_EQ(sum_of({0x1.cp-511}).value(), 0x1.8p-511);
  EXPECT_EQ(sum_of({-0x1.cp-511}).value(), -0x1.8p-511);
  EXPECT_EQ(sum_of({0x1.fp-513, 0x1p-600}).value(), 0);
}

TEST(ExactSum, NonFiniteAndTooLarge) {
  for (const double x : {kInfinity, -kInfinity, std::nan(""), 0x1p511, -0x1p900}) {
    ExactSum sum = sum_of({1, x, -x, 2});
    EXPECT_TRUE(std::isnan(sum.value())) << x;
    ExactSum other = sum_of({5});
    other.add(sum);
    other.normalise();
    EXPECT_TRUE(std::isnan(other.value())) << x;
    EXPECT_TRUE(same_bits(sum_of({kInfinity, 1}), sum_of({1, kInfinity, kInfinity})));
  }
}

// Against integers: terms k 2^-40 with |k| < 2^53, whose sum fits 128 bits.
TEST(ExactSum, AgainstIntegers) {
  for (int round = 0; round < 200; ++round) {
    ExactSum sum{};
    __int128 exact = 0;
    for (int i = 0; i < 300; ++i) {
      const uint64_t bits = random_bits(5, round, i);
      const int64_t k = static_cast<int64_t>(bits) >> (11 + bits % 50);
      exact += k;
      sum.add(std::ldexp(static_cast<double>(k), -40));
    }
    if (round % 3 == 0) sum.normalise();
    const double expected = std::ldexp(static_cast<double>(exact), -40);  // correctly rounded
    const double ulp = std::abs(std::nextafter(expected, kInfinity) - expected);
    EXPECT_NEAR(sum.value(), expected, ulp);
    if (exact > -(int64_t{1} << 53) && exact < (int64_t{1} << 53)) {
      EXPECT_EQ(sum.value(), expected);
    }
  }
}

TEST(ExactSum, AgainstLongDouble) {
  for (int round = 0; round < 100; ++round) {
    long double expected = 0, magnitude = 0;
    const std::vector<double> terms = wild_terms(1000 + 10 * round, 400, 30);
    for (const double x : terms) {
      expected += x;
      magnitude += std::abs(x);
    }
    const double value = sum_of(terms).value();
    const long double bound = 400 * magnitude * 0x1p-64L + std::abs(expected) * 0x1p-52L;
    EXPECT_LE(std::abs(value - expected), bound);
  }
}

TEST(ExactSum, ManyEqualTerms) {
  ExactSum sum{};
  constexpr int n = 5'000'000;
  for (int i = 0; i < n; ++i) sum.add(i % 2 ? 0x1.fffffffffffffp0 : 0x1.fffffffffffffp31);
  const auto one = static_cast<__int128>(0x1fffffffffffff);  // in units of 2^-52
  const __int128 expected = one * (n / 2) + (one << 31) * (n / 2);
  EXPECT_EQ(sum.value(), std::ldexp(static_cast<double>(expected), -52));
}

// The documented bound: 2^30 terms between normalisations, here made by doubling.
TEST(ExactSum, ManyTermsWithoutCarries) {
  for (const double x : {0x1.fffffffffffffp20, -0x1.fffffffffffffp20}) {
    ExactSum sum = sum_of({x});
    for (int k = 0; k < 60; ++k) {
      const ExactSum half = sum;
      sum.add(half);
    }
    EXPECT_EQ(sum.value(), std::ldexp(x, 60));
  }
}

}  // namespace
}  // namespace myriad
