// Exact sums of one or two f32 factors. A product of two f32 has at most 48 bits, so products of
// equal exponent can be added as integers: one bin an exponent, emptied into the wide sum before
// 2^15 of them could overflow.
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/call.h"
#include "kernels/fast/fast.h"
#include "kernels/fast/floats.h"

namespace myriad::fast {

namespace {

constexpr int kExponents = 2048, kUnused = 5;  // low bits of a double that such a product leaves 0
constexpr int64_t kMostTasks = 8;

struct Bins {
  int64_t of[kExponents] = {};
  bool not_finite = false;

  void add(double x) {
    const uint64_t bits = std::bit_cast<uint64_t>(x);
    const int e = static_cast<int>(bits >> 52) & (kExponents - 1);
    if (e == 0) return;  // zero: no product of two f32 is a subnormal double
    if (e == kExponents - 1) {
      not_finite = true;
      return;
    }
    const int64_t mantissa =
        static_cast<int64_t>(((bits & ((uint64_t{1} << 52) - 1)) | (uint64_t{1} << 52)) >> kUnused);
    of[e] += (bits >> 63) != 0 ? -mantissa : mantissa;
  }

  void empty_into(ExactSum& sum) {
    for (int e = 0; e < kExponents - 1; ++e) {
      if (of[e] == 0) continue;
      const int64_t high = of[e] >> 32, low = of[e] - (high << 32);
      sum.add(std::ldexp(static_cast<double>(high), 32 + e - 1075 + kUnused));
      sum.add(std::ldexp(static_cast<double>(low), e - 1075 + kUnused));
      of[e] = 0;
    }
    if (not_finite) sum.add(HUGE_VAL);
  }
};

int64_t tasks_of(int64_t n) { return std::min(kMostTasks, ceil_div(n, kBlock)); }

void sum_range(const KernelCall& call, int64_t lo, int64_t hi, ExactSum& sum) {
  static_assert(kBlock <= 1 << 15);
  const float* x = call.ins[0].as<float>();
  const float* y = call.ins.size() > 1 ? call.ins[1].as<float>() : nullptr;
  Bins bins;
  sum.clear();
  for (int64_t first = lo; first < hi; first += kBlock) {
    const int64_t end = std::min(hi, first + kBlock);
    for (int64_t i = first; i < end; ++i)
      bins.add(static_cast<double>(x[i]) * (y ? static_cast<double>(y[i]) : 1.0));
    bins.empty_into(sum);
  }
  sum.normalise();
}

}  // namespace

size_t sum_exact_scratch(const Op& op, const LabelSizes& local, DType) {
  int64_t n = 1;
  for (char c : op.in_labels[0]) n *= local.at(c);
  return sizeof(ExactSum) * static_cast<size_t>(tasks_of(n));
}

void sum_exact(const KernelCall& call) {
  begin_f32(call);
  const int64_t n = call.ins[0].elements(), tasks = tasks_of(n);
  auto* parts = reinterpret_cast<ExactSum*>(call.scratch);
  parallel(call.pool, tasks,
           [&](int64_t i) { sum_range(call, i * n / tasks, (i + 1) * n / tasks, parts[i]); });
  ExactSum& sum = *call.outs[0].as<ExactSum>();
  sum.clear();
  for (int64_t i = 0; i < tasks; ++i) sum.add(parts[i]);
  sum.normalise();
}

}  // namespace myriad::fast
