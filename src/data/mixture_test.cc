#include "data/mixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "base/error.h"

namespace myriad {
namespace {

// In whole numbers: | rows * W - n * w | < W after every row; rows of a source come in order.
void expect_exact(const Mixture& mixture, int64_t rows) {
  const int64_t period = mixture.period();
  std::vector<int64_t> taken(mixture.weights().size());
  for (int64_t n = 0; n < rows; ++n) {
    const Mixture::Place place = mixture.at(n);
    ASSERT_EQ(place.row, taken[static_cast<size_t>(place.source)]++);
    for (size_t s = 0; s < taken.size(); ++s)
      ASSERT_LT(std::abs(taken[s] * period - (n + 1) * mixture.weights()[s]), period)
          << "source " << s << " after " << n + 1 << " rows of "
          << fmt::format("{}", fmt::join(mixture.weights(), " : "));
  }
}

TEST(Mixture, ProportionsAreExactAfterEveryRow) {
  for (const auto& weights : std::vector<std::vector<int64_t>>{{1},
                                                               {1, 1},
                                                               {7, 3},
                                                               {1, 999},
                                                               {999, 1},
                                                               {2, 3, 5},
                                                               {1, 1, 1, 1, 1, 1, 94},
                                                               {1, 1, 2, 3, 5, 8, 13}})
    expect_exact(Mixture(weights), 3 * std::reduce(weights.begin(), weights.end()));
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<int64_t> weights(1 + random() % 12);
    for (int64_t& w : weights) w = 1 + random() % (trial % 2 ? 9 : 400);
    expect_exact(Mixture(weights), std::reduce(weights.begin(), weights.end()));
  }
}

TEST(Mixture, IsAFunctionOfTheIndex) {
  const Mixture mixture({7, 3});
  EXPECT_EQ(mixture.at(int64_t{10} << 40).row, int64_t{7} << 40);
  for (int64_t n = 0; n < 10; ++n) {
    const Mixture::Place near = mixture.at(n), far = mixture.at((int64_t{10} << 40) + n);
    EXPECT_EQ(far.source, near.source);
    EXPECT_EQ(far.row,
              near.row + (int64_t{mixture.weights()[static_cast<size_t>(near.source)]} << 40));
  }
}

TEST(WholeWeights, AreTheLeastOfTheProportion) {
  const auto of = [](std::vector<double> w) { return whole_weights(w, "here"); };
  EXPECT_EQ(of({0.7, 0.3}), (std::vector<int64_t>{7, 3}));
  EXPECT_EQ(of({0.001, 0.999}), (std::vector<int64_t>{1, 999}));
  EXPECT_EQ(of({4, 2, 2}), (std::vector<int64_t>{2, 1, 1}));
  EXPECT_EQ(of({123456.5}), (std::vector<int64_t>{1}));
  for (const std::vector<double>& bad : {std::vector<double>{0.0},
                                         {-1.0},
                                         {1e-7},
                                         {0.1234567},
                                         {1e7},
                                         {1.0, std::nan("")},
                                         {0.000001, 999999.0}})
    EXPECT_THROW(of(bad), Error) << bad[0];
}

}  // namespace
}  // namespace myriad
