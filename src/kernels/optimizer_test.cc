// The optimizer step, exact sums and clipping; moves of states; and what the meter measures.
#include "kernels/move.h"
#include "kernels/trial.h"

namespace myriad {
namespace {

constexpr double kEps = 0x1p-24;

Trial adamw(int64_t n, double factor) {
  const DType f = DType::f32, s = DType::f64;
  Trial t(Row::adamw, "d,d,d,d,,,,->d;d;d", {"d", {n}}, f, 1, {f, f, f, f, s, s, s, s});
  t.op.attrs.beta1 = 0.9, t.op.attrs.beta2 = 0.999, t.op.attrs.eps = 1e-8, t.op.attrs.decay = 0.1;
  const double scalars[] = {factor, 3e-4, 1 - std::pow(0.9, 7), 1 - std::pow(0.999, 7)};
  for (int i = 0; i < 4; ++i) t.ins[4 + i].set(0, scalars[i]);
  for (int64_t i = 0; i < n; ++i) t.ins[3].set(i, i % 5 == 0 ? 0 : t.ins[3].at(i) * t.ins[3].at(i));
  return t;
}

TEST(AdamW, FastEqualsRef) {
  for (int64_t n : {0, 1, 17, 1000, 40001}) {
    const Trial t = adamw(n, 0.7);
    const auto x = t.run(t.fast()), y = t.run_ref();
    // p: its own rounding, and about ten in the step
    expect_close(
        x, y, 0,
        [&](int64_t i) {
          const double p = std::fabs(t.ins[0].at(i));
          return 2 * kEps * p + 16 * kEps * (std::fabs(y[0].at(i) - t.ins[0].at(i)) + 3e-4 * p) +
                 16 * kEps * 3e-4 * std::fabs(t.ins[2].at(i)) /
                     (std::sqrt(y[2].at(i) / (1 - std::pow(0.999, 7))) + 1e-8);
        },
        "p");
    expect_close(
        x, y, 1,
        [&](int64_t i) {
          return 4 * kEps * (std::fabs(t.ins[2].at(i)) + std::fabs(t.ins[1].at(i)));
        },
        "m");
    expect_close(
        x, y, 2,
        [&](int64_t i) {
          return 4 * kEps * (t.ins[3].at(i) + 0.001 * t.ins[1].at(i) * t.ins[1].at(i));
        },
        "v");
    expect_steady(t, t.fast(), "adamw");
  }
}

TEST(AdamW, InPlace) {
  const Trial t = adamw(1000, 1);
  const auto want = t.run(t.fast());
  std::vector<Block> in = t.ins;
  std::vector<Tensor> ins, outs = {in[0].tensor, in[2].tensor, in[3].tensor};
  for (const Block& b : in) ins.push_back(b.tensor);
  const KernelCall call{.op = &t.op, .ins = ins, .outs = outs, .local = t.op.size};
  EXPECT_EQ(t.fast().run(call), KernelStatus::ok);
  EXPECT_EQ(std::memcmp(want[0].tensor.data, in[0].tensor.data, 4000), 0);
  EXPECT_EQ(std::memcmp(want[1].tensor.data, in[2].tensor.data, 4000), 0);
  EXPECT_EQ(std::memcmp(want[2].tensor.data, in[3].tensor.data, 4000), 0);
}

TEST(SumExact, FastEqualsRefToTheBit) {
  for (int64_t n : {0, 1, 100, 16384, 200000}) {
    for (const char* rule : {"d->", "d,d->", "d,d,d->"}) {
      Trial t(Row::sum_exact, rule, {"d", {n}}, DType::f32, static_cast<uint32_t>(n));
      t.out_types[0] = DType::exact;
      std::mt19937 random(9);
      for (const Block& x : t.ins) {
        for (int64_t i = 0; i < n; ++i) {  // from subnormals to the largest
          const int e = n % 3 == 0 ? static_cast<int>(random() % 270) - 148 : 0;
          x.set(i, std::ldexp(x.at(i), std::min(e, 120)));
        }
      }
      EXPECT_TRUE(same_bits(t.run(t.fast()), t.run_ref())) << rule << " " << n;
      expect_steady(t, t.fast(), rule);
    }
  }
}

TEST(SumExact, CancelsExactlyAndShowsNaN) {
  Trial t(Row::sum_exact, "d->", {"d", {4}}, DType::f32);
  t.out_types[0] = DType::exact;
  const double x[] = {1e30, 1, -1e30, 0x1p-140};
  for (int i = 0; i < 4; ++i) t.ins[0].set(i, x[i]);
  EXPECT_EQ(t.run(t.fast())[0].at(0), 1);  // 1 + 2^-140 rounds to 1
  t.ins[0].set(2, NAN);
  EXPECT_TRUE(std::isnan(t.run(t.fast())[0].at(0)));
}

struct Clipped {
  double factor, norm;
};
Clipped clip(double sumsq, double live, double max) {
  Trial t(Row::clip, ",->;", {}, DType::f64, 1, {DType::exact, DType::f64});
  t.op.attrs.max = max;
  t.ins[0].set(0, sumsq);
  t.ins[1].set(0, live);
  const auto y = t.run(t.fast());
  return {y[0].at(0), y[1].at(0)};
}

TEST(Clip, Cases) {
  EXPECT_DOUBLE_EQ(clip(16, 5, 1).factor, 1 / (4 + 1e-6));
  EXPECT_EQ(clip(16, 5, 1).norm, 4);
  EXPECT_EQ(clip(0.25, 5, 1).factor, 1);
  EXPECT_EQ(clip(16, 5, 0).factor, 1);
  EXPECT_TRUE(std::isnan(clip(16, 0, 1).factor));
  EXPECT_TRUE(std::isnan(clip(NAN, 5, 1).factor));
  EXPECT_TRUE(std::isnan(clip(INFINITY, 5, 0).factor));
}

// What clip says of a step without an update (live = 0) leaves p, m and v as they are, to the bit:
// signs of zero, subnormals, infinities and the bits of a NaN too.
TEST(Clip, AStepWithoutUpdateChangesNothing) {
  const double factor = clip(16, 0, 1).factor;
  ASSERT_TRUE(std::isnan(factor));
  for (int64_t n : {1, 100, 40001}) {
    Trial t = adamw(n, factor);
    const uint32_t odd[] = {0x80000000, 0x00000001, 0x7f800000, 0xffc12345, 0x7f812345};
    for (int in : {0, 2, 3}) {
      for (int64_t i = 0; i < std::min<int64_t>(n, 5); ++i)
        t.ins[in].tensor.as<uint32_t>()[i] = odd[i];
    }
    const size_t bytes = static_cast<size_t>(n) * sizeof(float);
    const int from[] = {0, 2, 3};
    Pool pool(2);
    for (KernelSet set : {KernelSet::ref, KernelSet::fast}) {
      const KernelChoice& kernel = choose(t.typed(), t.op.size, t.real, set);
      const auto y = t.run(kernel, &pool);
      for (int o = 0; o < 3; ++o) {
        EXPECT_EQ(std::memcmp(y[o].tensor.data, t.ins[from[o]].tensor.data, bytes), 0)
            << kernel.name << " output " << o << " of " << n;
      }
      std::vector<Block> in = t.ins;  // in place, as the executor runs it
      std::vector<Tensor> ins, outs = {in[0].tensor, in[2].tensor, in[3].tensor};
      for (const Block& b : in) ins.push_back(b.tensor);
      const KernelCall call{.op = &t.op, .ins = ins, .outs = outs, .local = t.op.size};
      EXPECT_EQ(kernel.run(call), KernelStatus::ok);
      for (int o : from) EXPECT_EQ(std::memcmp(in[o].tensor.data, t.ins[o].tensor.data, bytes), 0);
    }
  }
}

TEST(Move, CopyAndAccumulate) {
  Pool pool(2);
  for (DType type : {DType::f32, DType::f64, DType::exact}) {
    const int64_t n = type == DType::exact ? 3 : 40000;
    Trial t(Row::add, "d,d->d", {"d", {n}}, DType::f64, 1, {type, type});
    Meter meter;
    const double first = t.ins[0].at(n - 1) + t.ins[1].at(n - 1);
    accumulate(t.ins[0].tensor, t.ins[1].tensor, meter, &pool);
    EXPECT_EQ(meter.flops, static_cast<double>(n));
    EXPECT_NEAR(t.ins[0].at(n - 1), first, type == DType::f32 ? 1e-6 : 1e-15);
    copy(t.ins[1].tensor, t.ins[0].tensor, meter, &pool);
    EXPECT_TRUE(same_bits({t.ins[0]}, {t.ins[1]}));
  }
}

TEST(Meter, HighWaterAndFlops) {
  Trial t(Row::contract, "mk,nk->mn", {"mkn", {3, 5, 7}}, DType::f32);
  Meter meter;
  t.run(t.fast(), nullptr, &meter);
  EXPECT_EQ(meter.flops, 2 * 3 * 5 * 7);
  alignas(64) static std::byte arena[1024];
  meter.arena = arena;
  meter.touch(arena + 64, 10);
  EXPECT_EQ(meter.high, 128u);
  meter.touch(arena, 1);
  EXPECT_EQ(meter.high, 128u);
  meter.touch(arena + 700, 0);
  EXPECT_EQ(meter.high, 128u);
}

}  // namespace
}  // namespace myriad
