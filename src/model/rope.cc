#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace myriad {

namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// theta^(-2i/dim): Su et al. 2021, arXiv:2104.09864, section 3.2.2.
std::vector<double> plain(double theta, int64_t dim) {
  std::vector<double> f(dim / 2);
  for (size_t i = 0; i < f.size(); ++i) {
    f[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
  }
  return f;
}

// Llama 3.1: wave lengths above the original context are stretched by factor, short ones are kept,
// between them the share is linear in the number of turns over the original context
// (github.com/meta-llama/llama-models, apply_scaling).
std::vector<double> llama3(const RopeConfig& r, int64_t dim) {
  std::vector<double> f = plain(r.theta, dim);
  const double context = static_cast<double>(r.original_positions);
  for (double& x : f) {
    const double turns = context * x / kTurn;
    if (turns < r.low_freq_factor) {
      x /= r.factor;
    } else if (turns <= r.high_freq_factor) {
      const double keep = (turns - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
      x = (1 - keep) * x / r.factor + keep * x;
    }
  }
  return f;
}

// 0.1 m ln(s) + 1: Peng et al. 2023, arXiv:2309.00071, equation 22; m as DeepSeek-V2 added it.
double yarn_mscale(double factor, double m) {
  return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

// YaRN, sections 3.2-3.4 of the same. The ramp runs over pair numbers between the dims that make
// beta_fast and beta_slow turns over the original context; with truncate, rounded outwards.
RopeTable yarn(const RopeConfig& r, int64_t dim) {
  const double d = static_cast<double>(dim);
  auto dim_of = [&](double turns) {
    const double context = static_cast<double>(r.original_positions);
    return d * std::log(context / (turns * kTurn)) / (2 * std::log(r.theta));
  };
  double low = dim_of(r.beta_fast), high = dim_of(r.beta_slow);
  if (r.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, d - 1);
  if (low == high) high += 0.001;  // as Transformers does: no division by zero
  RopeTable t{.frequencies = plain(r.theta, dim), .mscale = r.attention_factor};
  for (size_t i = 0; i < t.frequencies.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& f = t.frequencies[i];
    f = f / r.factor * stretched + f * (1 - stretched);
  }
  if (t.mscale == 0) {
    t.mscale = r.mscale != 0 && r.mscale_all_dim != 0
                   ? yarn_mscale(r.factor, r.mscale) / yarn_mscale(r.factor, r.mscale_all_dim)
                   : yarn_mscale(r.factor, 1);
  }
  return t;
}

// TeleChat2: theta grows by alpha^(dim / (dim - 2)) with alpha = 2^ceil(log2(length / base_seqlen)
// + 1) - 1, and cos and sin by YaRN's factor of length / training_seqlen. length is at least
// training_seqlen, so below it nothing depends on the sequence (class RotaryEmbedding of
// modeling_telechat2.py in github.com/Tele-AI/TeleChat2).
RopeTable telechat(const RopeConfig& r, int64_t dim, int64_t sequence) {
  const double length = static_cast<double>(std::max(sequence, r.training_seqlen));
  const double doublings = std::ceil(std::log2(length / static_cast<double>(r.base_seqlen)) + 1);
  const double alpha = std::max(std::exp2(doublings) - 1, 1.0);
  const double d = static_cast<double>(dim);
  return {.frequencies = plain(r.theta * std::pow(alpha, d / (d - 2)), dim),
          .mscale = yarn_mscale(length / static_cast<double>(r.training_seqlen), 1)};
}

}  // namespace

RopeTable rope_table(const RopeConfig& rope, int64_t head_dim, int64_t sequence) {
  CHECK(head_dim >= 2 && head_dim % 2 == 0, "head_dim is {}", head_dim);
  switch (rope.kind) {
    case RopeKind::standard:
      return {.frequencies = plain(rope.theta, head_dim), .mscale = 1};
    case RopeKind::llama3:
      return {.frequencies = llama3(rope, head_dim), .mscale = 1};
    case RopeKind::yarn:
      return yarn(rope, head_dim);
    case RopeKind::telechat:
      return telechat(rope, head_dim, sequence);
  }
  CHECK(false, "rope kind {}", static_cast<int>(rope.kind));
  return {};
}

}  // namespace myriad
