#include "cluster/load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace myriad {
namespace {

TEST(ExpertLoad, TheBusiestOwnerOfAnUnevenCut) {
  EXPECT_EQ(busiest({}, 8, 4), 1);
  EXPECT_EQ(busiest({}, 8, 1), 1);
  EXPECT_DOUBLE_EQ(busiest({}, 8, 3), 3 * 3 / 8.0);  // 2, 3 and 3 experts
  const ExpertLoad two{{{0.5, 0.1, 0.2, 0.2}, {0.25, 0.25, 0.25, 0.25}}};
  EXPECT_DOUBLE_EQ(busiest(two, 4, 2), (2 * 0.6 + 1) / 2);
  EXPECT_DOUBLE_EQ(busiest(two, 4, 4), (4 * 0.5 + 1) / 2);
  EXPECT_DOUBLE_EQ(busiest(two, 4, 1), 1);
}

TEST(ExpertLoad, ZipfFallsWithTheRank) {
  const ExpertLoad load = parse_load("zipf:1", 16);
  ASSERT_EQ(load.layers.size(), 1u);
  std::vector<double> share = load.layers[0];
  EXPECT_NEAR(std::accumulate(share.begin(), share.end(), 0.0), 1, 1e-12);
  std::sort(share.rbegin(), share.rend());
  for (size_t i = 1; i < share.size(); ++i)
    EXPECT_NEAR(share[i] * static_cast<double>(i + 1), share[0], 1e-12);
  EXPECT_NEAR(busiest(parse_load("zipf:0", 16), 16, 4), 1, 1e-12);
  EXPECT_GT(busiest(parse_load("zipf:1.5", 16), 16, 4), busiest(load, 16, 4));
}

TEST(ExpertLoad, RefusesWhatItIsNot) {
  EXPECT_TRUE(parse_load("even", 4).even());
  for (const char* text : {"zipf", "zipf:", "zipf:-1", "zipf:1x", "zipf:inf", "flat"})
    EXPECT_THROW(parse_load(text, 4), Error) << text;
}

}  // namespace
}  // namespace myriad
