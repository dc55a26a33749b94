// The order of a row over several ranks: each token once, and each rank as much of the causal
// square.
#include "ir/sequence.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ir/mesh.h"

namespace myriad {
namespace {

TEST(Sequence, EveryTokenStandsOnce) {
  for (int64_t n = 0; n <= 33; ++n) {
    for (int64_t cp = 1; cp <= 9; ++cp) {
      std::vector<int32_t> order = sequence_order(n, cp);
      std::vector<int32_t> all(static_cast<size_t>(n));
      std::iota(all.begin(), all.end(), 0);
      if (cp == 1) {
        ASSERT_EQ(order, all);
      }
      std::sort(order.begin(), order.end());
      ASSERT_EQ(order, all) << n << " over " << cp;
    }
  }
}

// Pairs of a query and a key that it sees: as many on each rank where 2 cp divides the row, and
// within a token of each of two chunks where it does not.
TEST(Sequence, RanksHaveAsMuchAttention) {
  for (int64_t n : {16, 24, 48, 96, 97, 101, 1000}) {
    for (int cp : {2, 3, 4, 6, 8}) {
      const std::vector<int32_t> order = sequence_order(n, cp);
      const Mesh mesh({{"cp", cp}});
      const int64_t all = n * (n + 1) / 2;
      for (int r = 0; r < cp; ++r) {
        const Range places = mesh.range(n, {0}, r);
        int64_t seen = 0;
        for (int64_t i = places.lo; i < places.hi; ++i) seen += order[static_cast<size_t>(i)] + 1;
        if (n % (2 * cp) == 0) {
          ASSERT_EQ(seen * cp, all) << n << " over " << cp;
        } else {
          ASSERT_LE(std::abs(seen * cp - all), 2 * cp * n) << n << " over " << cp;
        }
      }
    }
  }
}

TEST(Sequence, PutBackInOrder) {
  constexpr int64_t kRows = 3, kLength = 11, kWidth = 2;
  for (int64_t cp : {1, 2, 4}) {
    const std::vector<int32_t> order = sequence_order(kLength, cp);
    std::vector<int64_t> by_place, by_index;
    for (int64_t b = 0; b < kRows; ++b) {
      for (int64_t s = 0; s < kLength; ++s) {
        for (int64_t w = 0; w < kWidth; ++w) {
          by_index.push_back((b * kLength + s) * kWidth + w);
          by_place.push_back((b * kLength + order[static_cast<size_t>(s)]) * kWidth + w);
        }
      }
    }
    EXPECT_EQ(in_row_order(by_place, kRows, kLength, cp), by_index);
  }
}

}  // namespace
}  // namespace myriad
