// Attention and its gradient against the definition and against finite differences, with documents,
// positions that are not in order, and queries that see nothing.
#include <limits>

#include "kernels/trial.h"

namespace myriad {
namespace {

constexpr double kEps = 0x1p-24, kInf = std::numeric_limits<double>::infinity();
const char kForward[] = "bsgrh,btgh,btgu,bs,bt,bs,bt->bsgru;bsgr";
const char kBackward[] = "bsgrh,btgh,btgu,bsgru,bsgr,bsgru,bs,bt,bs,bt->bsgrh;btgh;btgu";

enum class Places { causal, shuffled, packed, blind };

// Positions and documents of the last four operands.
void place(Trial& t, Places places) {
  const size_t first = t.ins.size() - 4;
  std::mt19937 random(5);
  for (size_t i = first; i < t.ins.size(); ++i) {
    const Tensor& x = t.ins[i].tensor;
    const bool is_doc = i >= first + 2;
    for (int64_t b = 0; b < x.size[0]; ++b)
      for (int64_t s = 0; s < x.size[1]; ++s) {
        double value = is_doc ? 0 : static_cast<double>(s);
        if (places == Places::shuffled && !is_doc) value = static_cast<double>(random() % 97);
        if (places == Places::packed)
          value = is_doc ? static_cast<double>(s / 60) : static_cast<double>(s % 60);
        // Every third query belongs to a document without keys, and one whole row of the batch to
        // none.
        if (places == Places::blind && is_doc && i == first + 2) value = b == 0 && s % 3 ? 0 : 99;
        t.ins[i].set(b * x.size[1] + s, value);
      }
  }
}

Trial forward(const LabelSizes& sizes, Places places, DType real) {
  Trial t(Row::attention, kForward, sizes, real, 3,
          {real, real, real, DType::i32, DType::i32, DType::i32, DType::i32});
  t.op.attrs.scale = 1 / std::sqrt(static_cast<double>(sizes.at('h')));
  place(t, places);
  return t;
}

// With o and lse as the forward kernel makes them.
Trial backward(const Trial& f) {
  std::vector<DType> types(6, f.real);
  types.resize(10, DType::i32);
  Trial t(Row::attention_grad, kBackward, f.op.size, f.real, 4, types);
  t.op.attrs = f.op.attrs;
  const auto made = f.run_ref();
  for (int i = 0; i < 3; ++i) t.ins[i] = f.ins[i];
  t.ins[3] = made[0], t.ins[4] = made[1];
  for (int i = 0; i < 4; ++i) t.ins[6 + i] = f.ins[3 + i];
  return t;
}

LabelSizes sizes(int64_t b, int64_t s, int64_t t, int64_t g, int64_t r, int64_t h, int64_t u) {
  return {"bsgrhtu", {b, s, g, r, h, t, u}};
}

const LabelSizes kShapes[] = {
    sizes(1, 1, 1, 1, 1, 2, 2),       sizes(2, 5, 7, 2, 3, 6, 4), sizes(2, 131, 300, 2, 1, 16, 8),
    sizes(2, 300, 300, 1, 2, 33, 17), sizes(2, 3, 0, 1, 2, 4, 4), sizes(2, 0, 5, 1, 2, 4, 4),
    sizes(0, 3, 3, 1, 1, 4, 4),       sizes(2, 3, 3, 0, 2, 4, 4), sizes(1, 129, 257, 3, 2, 8, 8),
};
const Places kPlaces[] = {Places::causal, Places::shuffled, Places::packed, Places::blind};

// Values are of the order of 1, results are their weighted means: what counts is the error of a
// score, a sum of h terms whose roundings add up at random, passed on by exp.
double tolerance(const LabelSizes& s) {
  return kEps * (8 + 4 * std::sqrt(static_cast<double>(s.at('h'))));
}

TEST(Attention, FastEqualsRef) {
  for (const LabelSizes& s : kShapes) {
    for (Places places : kPlaces) {
      const Trial f = forward(s, places, DType::f32);
      const auto x = f.run(f.fast()), y = f.run_ref();
      expect_close(
          x, y, 0, [&](int64_t) { return tolerance(s); }, "o");
      expect_close(
          x, y, 1, [&](int64_t) { return tolerance(s) + 8 * kEps; }, "lse");
      expect_steady(f, f.fast(), "attention");
    }
  }
}

TEST(AttentionGrad, FastEqualsRef) {
  for (const LabelSizes& s : kShapes) {
    for (Places places : kPlaces) {
      const Trial g = backward(forward(s, places, DType::f32));
      const auto x = g.run(g.fast()), y = g.run_ref();
      const double per_query = tolerance(s) * 8;
      expect_close(
          x, y, 0, [&](int64_t) { return per_query; }, "dq");
      // dk, dv: a key has a weight of the order of 1 from few queries
      for (size_t o : {1, 2})
        expect_close(
            x, y, o, [&](int64_t) { return 2 * per_query; }, "dk, dv");
      expect_steady(g, g.fast(), "attention_grad");
    }
  }
}

TEST(Attention, QueryWithoutKeys) {
  for (KernelSet set : {KernelSet::ref, KernelSet::fast}) {
    const Trial f = forward(sizes(2, 9, 9, 1, 1, 4, 4), Places::blind, DType::f32);
    const auto y = f.run(choose(f.op, f.op.size, f.real, set));
    const Trial g = backward(f);
    const auto d = g.run(choose(g.op, g.op.size, g.real, set));
    for (int64_t i = 0; i < 18; ++i) {
      const bool blind = i >= 9 || i % 3 == 0;
      EXPECT_EQ(y[1].at(i) == -kInf, blind);
      for (int64_t u = 0; u < 4 && blind; ++u) {
        EXPECT_EQ(y[0].at(i * 4 + u), 0);
        EXPECT_EQ(d[0].at(i * 4 + u), 0);
      }
    }
    for (const Block& x : d) {
      for (int64_t i = 0; i < x.tensor.elements(); ++i) EXPECT_TRUE(std::isfinite(x.at(i)));
    }
  }
}

TEST(Attention, NaNIsNotHidden) {
  for (KernelSet set : {KernelSet::ref, KernelSet::fast}) {
    Trial f = forward(sizes(1, 40, 40, 1, 1, 4, 4), Places::causal, DType::f32);
    f.ins[0].set(20 * 4, NAN);  // query 20
    const auto y = f.run(choose(f.op, f.op.size, f.real, set));
    for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(std::isnan(y[0].at(i * 4)), i == 20);
  }
}

// The loss is sum(o * d_o).
double loss(const Trial& f, const Block& d_o) {
  const auto y = f.run_ref();
  double sum = 0;
  for (int64_t i = 0; i < d_o.tensor.elements(); ++i) sum += y[0].at(i) * d_o.at(i);
  return sum;
}

TEST(AttentionGrad, RefIsTheSlope) {
  const Trial f = forward(sizes(2, 3, 4, 2, 2, 3, 2), Places::shuffled, DType::f64);
  const Trial g = backward(f);
  const auto d = g.run_ref();
  const double step = 1e-5;
  for (int o = 0; o < 3; ++o) {
    for (int64_t i = 0; i < f.ins[o].tensor.elements(); ++i) {
      Trial lo = f, hi = f;
      lo.ins[o].set(i, f.ins[o].at(i) - step);
      hi.ins[o].set(i, f.ins[o].at(i) + step);
      ASSERT_NEAR(d[o].at(i), (loss(hi, g.ins[5]) - loss(lo, g.ins[5])) / (2 * step), 1e-8)
          << o << " " << i;
    }
  }
}

TEST(Attention, RefIsAMeanOfVisibleValues) {
  Trial f = forward(sizes(1, 3, 3, 1, 1, 2, 1), Places::causal, DType::f64);
  for (int64_t i = 0; i < 6; ++i) f.ins[0].set(i, 0);  // equal weights
  const auto y = f.run_ref();
  for (int64_t s = 0; s < 3; ++s) {
    double mean = 0;
    for (int64_t t = 0; t <= s; ++t) mean += f.ins[2].at(t) / static_cast<double>(s + 1);
    EXPECT_NEAR(y[0].at(s), mean, 1e-15);
    EXPECT_NEAR(y[1].at(s), std::log(static_cast<double>(s + 1)), 1e-15);
  }
}

}  // namespace
}  // namespace myriad
