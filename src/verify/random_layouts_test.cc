#include "verify/random_layouts.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace myriad {
namespace {

// MYRIAD_RANDOM_LAYOUTS="FIRST COUNT" tries other seeds.
TEST(RandomLayouts, ComputeTheSame) {
  int first = 1, count = 208;
  if (const char* text = std::getenv("MYRIAD_RANDOM_LAYOUTS"))
    std::sscanf(text, "%d %d", &first, &count);
  std::printf("seeds %d to %d\n", first, first + count - 1);
  double worst = 0;
  for (const RandomLayout& r : verify_random_layouts(static_cast<uint64_t>(first), count)) {
    EXPECT_TRUE(r.ok) << r.name << ": " << r.tensor << " (" << r.error << ")";
    worst = std::max(worst, r.error);
  }
  std::printf("worst error %.2g\n", worst);
}

}  // namespace
}  // namespace myriad
