// What a router computes of a token: scores, the k best experts (of groups of experts, if there are
// groups), and the update of the bias that balances them. Written for clarity: topk looks through
// all experts once for each choice.
#include <cmath>
#include <limits>

#include "kernels/call.h"
#include "kernels/ref/ref.h"

namespace myriad::ref {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Pick {
  double score;
  int64_t at;
  bool before(const Pick& o) const { return score > o.score || (score == o.score && at < o.at); }
};

// The scores of one token: x + bias, NaN as -inf; summed in double, so that f32 scores tie only if
// they are equal.
struct Scores {
  const Tensor &x, *bias;
  int64_t first;  // of the token in x
  double operator()(int64_t i) const {
    const double z = real_at(x, first + i) + (bias ? real_at(*bias, i) : 0);
    return std::isnan(z) ? -kInf : z;
  }
};

double sum_of_best_two(const Scores& score, int64_t from, int64_t n) {
  double best = -kInf, second = -kInf;
  for (int64_t i = from; i < from + n; ++i) {
    const double z = score(i);
    if (z > best) {
      second = best, best = z;
    } else {
      second = std::max(second, z);
    }
  }
  const double sum = n < 2 ? best : best + second;
  return std::isnan(sum) ? -kInf : sum;  // inf - inf
}

// A group stays if fewer than `kept` groups come before it.
bool stays(const double* of_group, int64_t groups, int64_t kept, int64_t group) {
  int64_t before = 0;
  for (int64_t g = 0; g < groups; ++g)
    before += Pick{of_group[g], g}.before({of_group[group], group});
  return before < kept;
}

}  // namespace

void softmax(const KernelCall& call) {
  begin(call);
  const Tensor& z = call.ins[0];
  const int64_t x = z.size[z.dims - 1], n = z.elements();
  by_real(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t first = 0; first < n; first += x) {
      const T* from = z.as<T>() + first;
      double max = -kInf, sum = 0;
      for (int64_t i = 0; i < x; ++i) max = std::max(max, static_cast<double>(from[i]));
      for (int64_t i = 0; i < x; ++i) sum += std::exp(static_cast<double>(from[i]) - max);
      for (int64_t i = 0; i < x; ++i) {
        call.outs[0].as<T>()[first + i] =
            static_cast<T>(std::exp(static_cast<double>(from[i]) - max) / sum);
      }
    }
  });
}

size_t topk_scratch(const Op& op, const LabelSizes&, DType) {
  return sizeof(double) * static_cast<size_t>(op.attrs.groups);
}

void topk(const KernelCall& call) {
  begin(call);
  check_topk(call);
  const Attrs& a = call.op->attrs;
  const int64_t tokens = call.ins[0].size[0] * call.ins[0].size[1], x = call.ins[0].size[2];
  const int64_t size = a.groups == 0 ? x : x / a.groups;
  double* of_group = reinterpret_cast<double*>(call.scratch);
  for (int64_t token = 0; token < tokens; ++token) {
    const Scores score{call.ins[0], call.ins.size() > 1 ? &call.ins[1] : nullptr, token * x};
    for (int64_t g = 0; g < a.groups; ++g) of_group[g] = sum_of_best_two(score, g * size, size);
    Pick last{kInf, -1};
    for (int64_t j = 0; j < a.k; ++j) {
      Pick best{-kInf, x};  // behind every expert
      for (int64_t i = 0; i < x; ++i) {
        const Pick p{score(i), i};
        if (!last.before(p) || !p.before(best)) continue;
        if (a.groups == 0 || stays(of_group, a.groups, a.kept_groups, i / size)) best = p;
      }
      call.outs[0].as<int32_t>()[token * a.k + j] = static_cast<int32_t>(best.at);
      last = best;
    }
  }
}

void balance(const KernelCall& call) {
  begin(call);
  const Attrs& a = call.op->attrs;
  const int64_t n = call.outs[0].elements();
  const double rate = std::isnan(scalar(call.ins[2])) ? 0 : a.a;
  by_real(call.outs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < n; ++i) {
      const double left = a.b - real_at(call.ins[1], i);
      const double sign = static_cast<double>(left > 0) - static_cast<double>(left < 0);
      call.outs[0].as<T>()[i] = static_cast<T>(real_at(call.ins[0], i) + rate * sign);
    }
  });
}

}  // namespace myriad::ref
