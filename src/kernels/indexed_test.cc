// Ops with indices on a rank that holds a part of the vocabulary: fast kernels against the
// reference, indices outside the part, and transposes as transposes.
#include "kernels/trial.h"

namespace myriad {
namespace {

constexpr double kEps = 0x1p-24;

// Local range of v: [40, 40 + v) of ids in [-100, 100).
Trial indexed(Row row, const std::string& rule, const LabelSizes& sizes, int ids) {
  std::vector<DType> types(static_cast<size_t>(ids) + 1, DType::f32);
  types[ids] = DType::i32;
  Trial t(row, rule, sizes, DType::f32, 1, types);
  t.lo['v'] = 40;
  t.fill_ids(ids, -100, 100);
  return t;
}

const LabelSizes kSizes[] = {
    {"vdbs", {20, 33, 3, 50}},    {"vdbs", {0, 33, 3, 5}}, {"vdbs", {20, 0, 3, 5}},
    {"vdbs", {1000, 70, 1, 300}}, {"vdbs", {7, 5, 0, 5}},
};

LabelSizes only(const LabelSizes& s, const std::string& rule) {
  LabelSizes used;
  for (char c : rule) {
    if (s.find(c) >= 0) used.set(c, s.at(c));
  }
  return used;
}

TEST(Indexed, PickAndUnpick) {
  for (const LabelSizes& s : kSizes) {
    Trial p = indexed(Row::pick, "bsv,bs->bs", only(s, "bsv"), 1),
          u = indexed(Row::unpick, "bs,bs->bsv", only(s, "bsv"), 1);
    const auto y = p.run(p.fast()), z = u.run(u.fast());
    EXPECT_TRUE(same_bits(z, u.run_ref()));
    expect_steady(u, u.fast(), "unpick");
    const int64_t v = s.at('v');
    for (int64_t i = 0; i < y[0].tensor.elements(); ++i) {
      const int64_t id = static_cast<int64_t>(p.ins[1].at(i)) - 40;
      EXPECT_EQ(y[0].at(i), id >= 0 && id < v ? p.ins[0].at(i * v + id) : 0);
      for (int64_t j = 0; j < v; ++j) ASSERT_EQ(z[0].at(i * v + j), j == id ? u.ins[0].at(i) : 0);
    }
  }
}

TEST(Indexed, GatherAndScatterRows) {
  for (const LabelSizes& s : kSizes) {
    Trial g = indexed(Row::gather_rows, "vd,bs->bsd", s, 1),
          c = indexed(Row::scatter_rows, "bsd,bs->vd", s, 1);
    const auto y = g.run(g.fast()), w = c.run(c.fast());
    EXPECT_TRUE(same_bits(y, g.run_ref()));
    EXPECT_TRUE(same_bits(w, c.run_ref()));
    expect_steady(g, g.fast(), "gather_rows");
    expect_steady(c, c.fast(), "scatter_rows");
    const int64_t v = s.at('v'), d = s.at('d'), n = s.at('b') * s.at('s');
    std::vector<double> want(static_cast<size_t>(v * d)), size(want);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t id = static_cast<int64_t>(g.ins[1].at(i)) - 40;
      for (int64_t k = 0; k < d; ++k) {
        const bool here = id >= 0 && id < v;
        ASSERT_EQ(y[0].at(i * d + k), here ? g.ins[0].at(id * d + k) : 0);
        if (here)
          want[id * d + k] += c.ins[0].at(i * d + k),
              size[id * d + k] += std::fabs(c.ins[0].at(i * d + k));
      }
    }
    for (int64_t i = 0; i < v * d; ++i)
      ASSERT_NEAR(w[0].at(i), want[i], static_cast<double>(n) * kEps * size[i]);
  }
}

TEST(Indexed, SliceAndPad) {
  Trial s(Row::slice, "aiy->aky", {"aiyk", {2, 7, 3, 4}}, DType::f32);
  s.op.attrs.label = 'i', s.op.attrs.to = 'k', s.op.attrs.lo = 2;
  Trial p(Row::pad, "aky->aiy", {"akyi", {2, 4, 3, 7}}, DType::f32);
  p.op.attrs = s.op.attrs;
  const auto y = s.run_ref(), z = p.run_ref();
  for (int64_t a = 0; a < 2; ++a)
    for (int64_t i = 0; i < 7; ++i)
      for (int64_t c = 0; c < 3; ++c) {
        const bool inside = i >= 2 && i < 6;
        const int64_t whole = (a * 7 + i) * 3 + c, part = (a * 4 + i - 2) * 3 + c;
        if (inside) {
          EXPECT_EQ(y[0].at(part), s.ins[0].at(whole));
        }
        EXPECT_EQ(z[0].at(whole), inside ? p.ins[0].at(part) : 0);
      }
}

TEST(Indexed, PlaceRows) {
  for (bool in_place : {false, true}) {
    Trial t(Row::place_rows, "btgh,bsgh,bs->btgh", {"btghs", {2, 5, 2, 3, 3}}, DType::f32, 1,
            {DType::f32, DType::f32, DType::i32});
    t.alias = in_place;
    const int places[] = {4, -1, 0, 2, 3, -1};
    for (int64_t i = 0; i < 6; ++i) t.ins[2].set(i, places[i]);
    const auto y = t.run_ref();
    expect_steady(t, t.fast(), "place_rows");
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t at = 0; at < 5; ++at)
        for (int64_t k = 0; k < 6; ++k) {
          double want = t.ins[0].at((b * 5 + at) * 6 + k);
          for (int64_t s = 0; s < 3; ++s) {
            if (places[b * 3 + s] == at) want = t.ins[1].at((b * 3 + s) * 6 + k);
          }
          EXPECT_EQ(y[0].at((b * 5 + at) * 6 + k), want) << b << " " << at;
        }
  }
}

}  // namespace
}  // namespace myriad
