#include "comm/boxes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace myriad {
namespace {

View view_of(void* data, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
  View view{.data = static_cast<std::byte*>(data), .dims = static_cast<int>(sizes.size())};
  std::copy(sizes.begin(), sizes.end(), view.size);
  std::copy(strides.begin(), strides.end(), view.stride);
  return view;
}

TEST(Boxes, AdjacentDimsAreJoined) {
  std::vector<float> a(240), b(240);
  const Boxes whole(
      {view_of(a.data(), {2, 3, 4}, {12, 4, 1}), view_of(b.data(), {2, 1, 3, 4}, {12, 7, 4, 1})});
  EXPECT_EQ(whole.rows, 1);
  EXPECT_EQ(whole.run, 24);
  const Boxes partly(
      {view_of(a.data(), {2, 3, 4}, {12, 4, 1}), view_of(b.data(), {2, 3, 4}, {20, 4, 1})});
  EXPECT_EQ(partly.rows, 2);
  EXPECT_EQ(partly.run, 12);
  const Boxes columns(
      {view_of(a.data(), {2, 3, 4}, {12, 4, 1}), view_of(b.data(), {2, 3, 4}, {60, 20, 5})});
  EXPECT_EQ(columns.rows, 24);
  EXPECT_EQ(columns.run, 1);
  const Boxes one({view_of(a.data(), {}, {}), view_of(b.data(), {1, 1}, {9, 9})});
  EXPECT_EQ(one.rows * one.run, 1);
  const Boxes none({view_of(a.data(), {3, 0}, {5, 1}), view_of(b.data(), {3, 0}, {0, 1})});
  EXPECT_EQ(none.rows * none.run, 0);
}

TEST(Boxes, CopyOfATranspose) {
  std::vector<int32_t> a(12), b(12);
  for (int i = 0; i < 12; ++i) b[i] = i;
  copy(Boxes({view_of(a.data(), {3, 4}, {4, 1}), view_of(b.data(), {3, 4}, {1, 3})}), DType::i32);
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) EXPECT_EQ(a[4 * i + j], i + 3 * j);
  }
}

TEST(Boxes, OrderOfASum) {
  std::vector<float> out(1), parts = {1e8f, 1, -1e8f, 1};
  const auto at = [&](int i) { return view_of(&parts[i], {1}, {1}); };
  reduce(Boxes({view_of(out.data(), {1}, {1}), at(0), at(1), at(2), at(3)}), DType::f32,
         Reduction::sum);
  EXPECT_EQ(out[0], 1);                                                     // ((1e8 + 1) - 1e8) + 1
  reduce(Boxes({at(2), at(0), at(2), at(1)}), DType::f32, Reduction::sum);  // over one of the parts
  EXPECT_EQ(parts[2], 1);
}

// 1 and 64 parts of half its last bit each: added in bf16 they would all be lost.
TEST(Boxes, Bf16IsSummedInFloatAndRoundedOnce) {
  std::vector<Bf16> parts(65, Bf16(0x1p-8)), out(1);
  parts[0] = Bf16(1);
  std::vector<View> views = {view_of(out.data(), {1}, {1})};
  for (Bf16& part : parts) views.push_back(view_of(&part, {1}, {1}));
  reduce(Boxes(views), DType::bf16, Reduction::sum);
  EXPECT_EQ(float{out[0]}, 1 + 64 * 0x1p-8f);
  reduce(Boxes({view_of(out.data(), {1}, {1}), views[2], views[1]}), DType::bf16, Reduction::max);
  EXPECT_EQ(float{out[0]}, 1);
}

TEST(Boxes, OfNothing) {
  std::vector<double> out(3, 7);
  const View view = view_of(out.data(), {3}, {1});
  reduce(Boxes({view}), DType::f64, Reduction::max);
  EXPECT_EQ(out, std::vector<double>(3, -std::numeric_limits<double>::infinity()));
  reduce(Boxes({view}), DType::f64, Reduction::sum);
  EXPECT_EQ(out, std::vector<double>(3, 0));
}

}  // namespace
}  // namespace myriad
