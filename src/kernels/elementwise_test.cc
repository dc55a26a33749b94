// Elementwise ops and the ops of the loss: fast kernels against the reference within a few
// roundings, at sizes around the lengths of vectors and blocks, and on values at the edges.
#include <limits>

#include "kernels/trial.h"

namespace myriad {
namespace {

constexpr double kEps = 0x1p-24, kInf = std::numeric_limits<double>::infinity();

const int64_t kSizes[] = {0, 1, 2, 7, 15, 16, 17, 31, 33, 64, 129, 16384, 16384 * 2 + 5};

std::string repeat(const std::string& l, int n, const std::string& to) {
  std::string rule = l;
  for (int i = 1; i < n; ++i) rule += "," + l;
  return rule + "->" + to;
}

TEST(Elementwise, AddEqualsRef) {
  for (int64_t n : kSizes) {
    for (int operands : {1, 2, 3, 6}) {
      Trial t(Row::add, repeat("d", operands, "d"), {"d", {n}}, DType::f32);
      const auto want = t.run_ref();
      expect_close(
          t.run(t.fast()), want, 0,
          [&](int64_t i) {
            double sum = 0;
            for (const Block& x : t.ins) sum += std::fabs(x.at(i));
            return operands * kEps * sum;
          },
          "add");
      expect_steady(t, t.fast(), "add");
      t.alias = true;
      expect_close(
          t.run(t.fast()), want, 0, [&](int64_t) { return operands * kEps * 16; }, "add in place");
    }
  }
}

TEST(Elementwise, SiluEqualsRef) {
  for (int64_t n : kSizes) {
    Trial t(Row::silu, "d->d", {"d", {n}}, DType::f32);
    Trial g(Row::silu_grad, "d,d->d", {"d", {n}}, DType::f32);
    for (int64_t i = 0; i < n; i += 3) {
      t.ins[0].set(i, t.ins[0].at(i) * 50);
      g.ins[0].set(i, g.ins[0].at(i) * 50);
    }
    // exp, sum, quotient and product: some roundings each; exp below -87 counts as 0
    expect_close(
        t.run(t.fast()), t.run_ref(), 0,
        [&](int64_t i) { return 8 * kEps * std::fabs(t.ins[0].at(i)); }, "silu");
    expect_close(
        g.run(g.fast()), g.run_ref(), 0,
        [&](int64_t i) {
          return 16 * kEps * std::fabs(g.ins[1].at(i)) * (1 + std::fabs(g.ins[0].at(i)));
        },
        "silu_grad");
    expect_steady(t, t.fast(), "silu");
    expect_steady(g, g.fast(), "silu_grad");
  }
}

TEST(Elementwise, GeluEqualsRef) {
  for (int64_t n : kSizes) {
    Trial t(Row::gelu, "d->d", {"d", {n}}, DType::f32);
    Trial g(Row::gelu_grad, "d,d->d", {"d", {n}}, DType::f32);
    for (int64_t i = 0; i < n; i += 3) {
      t.ins[0].set(i, t.ins[0].at(i) * 50);
      g.ins[0].set(i, g.ins[0].at(i) * 50);
    }
    // the exponent has a few roundings, and exp makes an error of its own size of each
    const auto rest = [](double x) {
      const double u = 1.6 * (std::fabs(x) + 0.045 * std::fabs(x * x * x));
      return (16 + 4 * u * std::exp(-u)) * kEps * (1 + std::fabs(x));
    };
    expect_close(
        t.run(t.fast()), t.run_ref(), 0, [&](int64_t i) { return rest(t.ins[0].at(i)); }, "gelu");
    expect_close(
        g.run(g.fast()), g.run_ref(), 0,
        [&](int64_t i) { return 4 * std::fabs(g.ins[1].at(i)) * rest(g.ins[0].at(i)); },
        "gelu_grad");
    expect_steady(t, t.fast(), "gelu");
    expect_steady(g, g.fast(), "gelu_grad");
  }
}

TEST(Elementwise, GeluOfExtremes) {
  Trial t(Row::gelu, "d->d", {"d", {5}}, DType::f32);
  Trial g(Row::gelu_grad, "d,d->d", {"d", {5}}, DType::f32);
  const double x[] = {-1e30, 1e30, NAN, -200, 0}, slope[] = {0, 1, NAN, 0, 0.5};
  for (int i = 0; i < 5; ++i) t.ins[0].set(i, x[i]), g.ins[0].set(i, x[i]), g.ins[1].set(i, 1);
  for (const auto& [y, dx] :
       {std::pair(t.run(t.fast()), g.run(g.fast())), {t.run_ref(), g.run_ref()}}) {
    for (int i = 0; i < 5; ++i) {
      if (i == 2) continue;
      EXPECT_NEAR(y[0].at(i), static_cast<float>(std::max(x[i], 0.0)), 1e-30) << i;
      EXPECT_NEAR(dx[0].at(i), slope[i], 1e-30) << i;
    }
    EXPECT_TRUE(std::isnan(y[0].at(2)));
    EXPECT_TRUE(std::isnan(dx[0].at(2)));
  }
}

TEST(Elementwise, SiluOfExtremes) {
  Trial t(Row::silu, "d->d", {"d", {5}}, DType::f32);
  const double x[] = {-1e30, 1e30, NAN, -200, 0};
  for (int i = 0; i < 5; ++i) t.ins[0].set(i, x[i]);
  const auto y = t.run(t.fast());
  EXPECT_NEAR(y[0].at(0), 0, 1e-6);
  EXPECT_EQ(y[0].at(1), static_cast<float>(1e30));
  EXPECT_TRUE(std::isnan(y[0].at(2)));
  EXPECT_NEAR(y[0].at(3), 0, 1e-30);
  EXPECT_EQ(y[0].at(4), 0);
}

TEST(Elementwise, SiluGradIsTheSlope) {
  Trial g(Row::silu_grad, "d,d->d", {"d", {40}}, DType::f64),
      lo(Row::silu, "d->d", {"d", {40}}, DType::f64), hi = lo;
  const double step = 1e-5;
  for (int64_t i = 0; i < 40; ++i) {
    lo.ins[0].set(i, g.ins[0].at(i) - step);
    hi.ins[0].set(i, g.ins[0].at(i) + step);
  }
  const auto dx = g.run_ref(), a = lo.run_ref(), b = hi.run_ref();
  for (int64_t i = 0; i < 40; ++i) {
    EXPECT_NEAR(dx[0].at(i), g.ins[1].at(i) * (b[0].at(i) - a[0].at(i)) / (2 * step), 1e-8);
  }
}

TEST(Elementwise, SmallRows) {
  Trial t(Row::rsqrt, "bs->bs", {"bs", {2, 3}}, DType::f64);
  t.op.attrs.a = 0.5, t.op.attrs.b = 20;
  Trial r(Row::recip, "bs->bs", {"bs", {2, 3}}, DType::f64),
      l(Row::log, "bs->bs", {"bs", {2, 3}}, DType::f64);
  for (int64_t i = 0; i < 6; ++i) l.ins[0].set(i, static_cast<double>(i) + 1);
  Trial v(Row::valid, "bs->bs", {"bs", {1, 3}}, DType::f64, 1, {DType::i32});
  v.ins[0].set(0, -100), v.ins[0].set(1, 0), v.ins[0].set(2, 9);
  const auto y = t.run_ref(), z = r.run_ref(), w = l.run_ref(), ok = v.run_ref();
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_DOUBLE_EQ(y[0].at(i), std::pow(0.5 * t.ins[0].at(i) + 20, -0.5));
    EXPECT_DOUBLE_EQ(z[0].at(i), 1 / r.ins[0].at(i));
    EXPECT_DOUBLE_EQ(w[0].at(i), std::log(static_cast<double>(i) + 1));
  }
  EXPECT_EQ(ok[0].at(0), 0);
  EXPECT_EQ(ok[0].at(1), 1);
  EXPECT_EQ(ok[0].at(2), 1);
}

TEST(Logits, FastEqualsRef) {
  for (int64_t v : {0, 1, 5, 16, 33, 1000, 9001}) {
    const LabelSizes sizes{"bsv", {2, 3, v}};
    Trial m(Row::max_stop, "bsv->bs", sizes, DType::f32);
    const auto maxima = m.run_ref();
    EXPECT_TRUE(same_bits(maxima, m.run(m.fast())));
    expect_steady(m, m.fast(), "max_stop");
    Trial s(Row::sum_exp, "bsv,bs->bs", sizes, DType::f32),
        e(Row::exp_scale, "bsv,bs,bs->bsv", sizes, DType::f32);
    for (int64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(maxima[0].at(i) == -kInf, v == 0);
      s.ins[1].set(i, maxima[0].at(i));
      e.ins[1].set(i, maxima[0].at(i));
    }
    const auto sums = s.run_ref();
    const double terms = static_cast<double>(std::min<int64_t>(v, 4096));
    expect_close(
        s.run(s.fast()), sums, 0, [&](int64_t i) { return (terms + 16) * kEps * sums[0].at(i); },
        "sum_exp");
    expect_close(
        e.run(e.fast()), e.run_ref(), 0,
        [&](int64_t i) { return 16 * kEps * std::fabs(e.ins[2].at(i / v)); }, "exp_scale");
    expect_steady(s, s.fast(), "sum_exp");
    expect_steady(e, e.fast(), "exp_scale");
  }
}

TEST(Logits, RowsWithoutNumbers) {
  for (KernelSet set : {KernelSet::ref, KernelSet::fast}) {
    Trial s(Row::sum_exp, "bsv,bs->bs", {"bsv", {1, 3, 20}}, DType::f32);
    for (int64_t i = 0; i < 20; ++i) s.ins[0].set(i, -kInf);
    s.ins[1].set(0, -kInf);  // all -inf: the sum is 0
    s.ins[1].set(1, 5);
    s.ins[0].set(20 + 7, NAN);  // not hidden
    s.ins[1].set(2, 5);
    s.ins[0].set(40, -kInf);
    const auto y = s.run(choose(s.op, s.op.size, s.real, set));
    EXPECT_EQ(y[0].at(0), 0);
    EXPECT_TRUE(std::isnan(y[0].at(1)));
    EXPECT_TRUE(std::isfinite(y[0].at(2)));
  }
}

TEST(Rope, FastEqualsRef) {
  for (const char* rule : {"bsgrh,bs->bsgrh", "bsgh,bs->bsgh"}) {
    for (int64_t h : {2, 6, 32, 34, 128}) {
      for (RopeStyle style : {RopeStyle::half, RopeStyle::interleaved}) {
        for (int top : {3, 4096, 2000000000}) {
          Trial t(Row::rope, rule, {"bsgrh", {2, 5, 3, 2, h}}, DType::f32, 1,
                  {DType::f32, DType::i32});
          std::vector<double> frequencies;
          for (int64_t i = 0; i < h / 2; ++i)
            frequencies.push_back(
                std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(h)));
          t.op.attrs.frequencies = std::make_shared<const std::vector<double>>(frequencies);
          t.op.attrs.style = style;
          t.op.attrs.mscale = 1.1;
          t.op.attrs.sign = top == 3 ? -1 : 1;
          t.fill_ids(1, 0, top);
          expect_close(
              t.run(t.fast()), t.run_ref(), 0, [&](int64_t) { return 8 * kEps * 5; }, rule);
          expect_steady(t, t.fast(), rule);
          t.alias = true;
          expect_close(
              t.run(t.fast()), t.run_ref(), 0, [&](int64_t) { return 8 * kEps * 5; }, "in place");
        }
      }
    }
  }
}

TEST(Rope, TurnsBack) {
  Trial t(Row::rope, "bsgh,bs->bsgh", {"bsgh", {2, 3, 2, 8}}, DType::f64, 1,
          {DType::f64, DType::i32});
  t.op.attrs.frequencies =
      std::make_shared<const std::vector<double>>(std::vector<double>{1, 0.1, 0.01, 0.001});
  t.fill_ids(1, 0, 100);
  Trial back = t;
  back.op.attrs.sign = -1;
  const auto y = t.run_ref();
  std::memcpy(back.ins[0].tensor.data, y[0].tensor.data, y[0].tensor.bytes());
  back.ins[1] = t.ins[1];
  expect_close(
      back.run_ref(), {t.ins[0]}, 0, [](int64_t) { return 1e-14; }, "there and back");
}

}  // namespace
}  // namespace myriad
