// What a router computes of a token: scores by sigmoid or softmax, and the k best experts. The
// best are kept in a short sorted list, in one pass over the scores: k is small, so an insertion
// costs less than a heap. Ties go to the lower expert, as in the reference.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/call.h"
#include "kernels/fast/fast.h"
#include "kernels/fast/floats.h"
#include "kernels/fast/vector.h"

namespace myriad::fast {

namespace {

// The k largest of the scores offered so far, in falling order; among equals the lower index is
// first. NaN counts as -inf.
struct Best {
  int64_t k, n = 0;
  double score[kMostPicks];
  int32_t at[kMostPicks];

  explicit Best(int64_t k_) : k(k_) {}
  // Indices must be offered in rising order.
  void offer(double z, int64_t index) {
    if (n == k) {
      if (k == 0 || !(z > score[k - 1])) return;
    } else {
      if (std::isnan(z)) z = -std::numeric_limits<double>::infinity();
      ++n;
    }
    int64_t i = n - 1;
    for (; i > 0 && score[i - 1] < z; --i) score[i] = score[i - 1], at[i] = at[i - 1];
    score[i] = z, at[i] = static_cast<int32_t>(index);
  }
};

struct Scores {
  const float *x, *bias;
  double operator()(int64_t i) const {
    return static_cast<double>(x[i]) + (bias ? static_cast<double>(bias[i]) : 0);
  }
};

// Marks the groups whose experts may be chosen: those with the best sum of two scores.
void keep_groups(const Scores& score, const Attrs& a, int64_t size, bool* kept) {
  Best groups(a.kept_groups);
  for (int64_t g = 0; g < a.groups; ++g) {
    Best two(std::min<int64_t>(2, size));
    for (int64_t i = g * size; i < (g + 1) * size; ++i) two.offer(score(i), i);
    groups.offer(two.n < 2 ? two.score[0] : two.score[0] + two.score[1], g);
    kept[g] = false;
  }
  for (int64_t i = 0; i < groups.n; ++i) kept[groups.at[i]] = true;
}

}  // namespace

void sigmoid(const KernelCall& call) {
  begin_f32(call);
  parallel_blocks(call.pool, call.outs[0].elements(), 1, [&](int64_t lo, int64_t hi) {
    vec::sigmoid_row(call.ins[0].as<float>() + lo, call.outs[0].as<float>() + lo, hi - lo);
  });
}

void softmax(const KernelCall& call) {
  begin_f32(call);
  const Tensor& z = call.ins[0];
  const int64_t x = z.size[z.dims - 1], rows = x == 0 ? 0 : z.elements() / x;
  parallel_blocks(call.pool, rows, x, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      const float* from = z.as<float>() + i * x;
      float* to = call.outs[0].as<float>() + i * x;
      std::copy_n(from, x, to);
      const float sum = vec::exp_row(to, vec::max_row(from, x), x);
      vec::scale_row(to, 1 / sum, x);
    }
  });
}

void topk(const KernelCall& call) {
  begin_f32(call);
  check_topk(call);
  const Attrs& a = call.op->attrs;
  CHECK(a.k <= kMostPicks && a.groups <= kMostGroups && a.kept_groups <= kMostPicks,
        "{} choices, {} of {} groups", a.k, a.kept_groups, a.groups);
  const int64_t tokens = call.ins[0].size[0] * call.ins[0].size[1], x = call.ins[0].size[2];
  const float* bias = call.ins.size() > 1 ? call.ins[1].as<float>() : nullptr;
  const int64_t groups = std::max<int64_t>(1, a.groups), size = x / groups;
  parallel_blocks(call.pool, tokens, x, [&](int64_t lo, int64_t hi) {
    bool kept[kMostGroups] = {true};
    for (int64_t token = lo; token < hi; ++token) {
      const Scores score{call.ins[0].as<float>() + token * x, bias};
      if (a.groups > 0) keep_groups(score, a, size, kept);
      Best best(a.k);
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t i = g * size; kept[g] && i < (g + 1) * size; ++i) best.offer(score(i), i);
      }
      std::copy_n(best.at, a.k, call.outs[0].as<int32_t>() + token * a.k);
    }
  });
}

}  // namespace myriad::fast
