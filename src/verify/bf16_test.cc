// Training in bf16 against fp32: the loss curve within the noise of seeds, gradients summed and
// masters kept in fp32.
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "verify/layouts.h"
#include "verify/trial.h"

namespace myriad {
namespace {

// Rows of a language with two rules: the next token is a function of the last, of four in one of
// that before the last.
Batch learnable(int64_t rows, int64_t sequence, int64_t vocabulary, int64_t step) {
  Batch b{.rows = rows, .sequence = sequence};
  const auto n = static_cast<uint64_t>(vocabulary);
  for (int64_t row = 0; row < rows; ++row) {
    const auto any = [&](int64_t at) {
      return random_bits(7, static_cast<uint64_t>(step),
                         static_cast<uint64_t>(row * (sequence + 2) + at));
    };
    std::vector<uint64_t> t = {any(0) % n, any(1) % n};
    for (int64_t at = 2; at < sequence + 2; ++at) {
      const uint64_t r = any(at);
      t.push_back((r % 4 == 0 ? t[t.size() - 2] + 7 : 5 * t.back() + 3) % n);
    }
    for (int64_t at = 0; at < sequence; ++at) {
      b.ids.push_back(static_cast<int32_t>(t[static_cast<size_t>(at) + 1]));
      b.targets.push_back(static_cast<int32_t>(t[static_cast<size_t>(at) + 2]));
      b.positions.push_back(static_cast<int32_t>(at));
      b.documents.push_back(0);
    }
  }
  return b;
}

constexpr int64_t kRows = 8, kSequence = 32, kVocabulary = 29, kSteps = 160, kWindow = 16;

JobConfig config(DType real) {
  return {.model = {.family = Family::llama,
                    .hidden = 48,
                    .layers = 2,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_dim = 12,
                    .ffn = 96,
                    .vocabulary = kVocabulary,
                    .positions = 64,
                    .norm_eps = 1e-5,
                    .tied = false,
                    .initializer_range = 0.1},
          .plan = resolve({.dp = 2, .micro_batches = 2}, 2, kRows),
          .rows = kRows,
          .sequence = kSequence,
          .real = real};
}

// Loss by window of steps.
std::vector<double> curve(DType real, uint64_t seed, const std::vector<Batch>& batches,
                          Pool& pool) {
  Job job(config(real), pool);
  job.initialise(seed);
  std::vector<double> out(static_cast<size_t>(kSteps / kWindow), 0.0);
  for (int64_t i = 0; i < kSteps; ++i) {
    const double lr = 3e-3 * std::min(1.0, static_cast<double>(i + 1) / 16);
    out[static_cast<size_t>(i / kWindow)] +=
        job.step(batches[static_cast<size_t>(i)], {.lr = lr, .step = i + 1}).loss() /
        static_cast<double>(kWindow);
  }
  return out;
}

// Seeds alone spread fp32's curves: `noise`, a window's standard deviation. The bf16 curve of a
// seed stays within one of them of the fp32 curve of the same seed in every window (with a floor of
// 0.003 nats, where seeds hardly differ), and a fifth of one on average.
TEST(Bf16, LossCurveWithinTheNoiseOfSeeds) {
  constexpr int kSeeds = 5;
  Pool pool(2);
  std::vector<Batch> batches;
  for (int64_t i = 0; i < kSteps; ++i)
    batches.push_back(learnable(kRows, kSequence, kVocabulary, i));
  std::vector<std::vector<double>> wide, narrow;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    wide.push_back(curve(DType::f32, seed, batches, pool));
    narrow.push_back(curve(DType::bf16, seed, batches, pool));
  }
  double total_noise = 0, total_apart = 0;
  for (size_t w = 0; w < wide[0].size(); ++w) {
    double mean = 0, square = 0, worst = 0, apart = 0;
    for (const auto& c : wide) mean += c[w] / kSeeds;
    for (const auto& c : wide) square += (c[w] - mean) * (c[w] - mean) / (kSeeds - 1);
    const double noise = std::sqrt(square);
    for (size_t s = 0; s < wide.size(); ++s) {
      worst = std::max(worst, std::abs(narrow[s][w] - wide[s][w]));
      apart += (narrow[s][w] - wide[s][w]) / kSeeds;
    }
    fmt::print(
        "  window {}: loss {:.3f}, noise of seeds {:.4f}, bf16 apart by at most {:.4f}, on average "
        "{:+.4f}\n",
        w, mean, noise, worst, apart);
    EXPECT_LE(worst, std::max(noise, 0.003)) << "window " << w;
    total_noise += noise;
    total_apart += std::abs(apart);
  }
  EXPECT_LE(total_apart, total_noise / 5);
  EXPECT_LT(wide[0].back(), 0.6 * wide[0].front()) << "nothing was learned: the test says nothing";
}

const Variant& variant(const std::string& name) {
  static const std::vector<Variant> all = all_variants();
  for (const Variant& v : all) {
    if (v.name == name) return v;
  }
  throw std::logic_error(name);
}

// Largest difference of the raw gradients of step 1 between four micro-batches and one, over the
// largest of the tensor. Activations are the same, row by row; only the order of sums differs.
double difference_of_micro_batches(Job::Options options) {
  Pool pool(1);
  const Variant& v = variant("bf16");
  const auto record = [&](int micro_batches) {
    return run_trial(v, resolve({.micro_batches = micro_batches}, 4, v.rows), pool, nullptr,
                     options);
  };
  double worst = 0;
  for (const Deviation& d : compare(record(4), record(1), kBf16GradientFloor)) {
    if (d.tensor.starts_with("gradient 1 ")) worst = std::max(worst, d.error);
  }
  return worst;
}

TEST(Bf16, GradientsAreSummedInF32) {
  constexpr double kBound = 1e-5;  // a rounding to bf16 is 2e-3
  EXPECT_LT(difference_of_micro_batches({}), kBound);
  // Planted: gradients of weights have the type that is computed with, so each micro-batch's is
  // rounded before it is added.
  const auto narrow_gradients = [](Pieces& pieces) {
    for (Piece& piece : pieces.pieces) {
      for (Value& value : piece.graph.values) {
        if (value.dtype == DType::bf16) value.from_state = false;
      }
    }
  };
  EXPECT_GT(difference_of_micro_batches({.rewrite_pieces = narrow_gradients}), 10 * kBound);
}

// An update of far less than a bf16's last bit: it is not lost.
TEST(Bf16, MastersAreF32) {
  Pool pool(1);
  Job job(config(DType::bf16), pool);
  job.initialise(1);
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  const std::vector<double> before = job.parameter(name);
  for (int64_t i = 0; i < 8; ++i)
    job.step(learnable(kRows, kSequence, kVocabulary, i), {.lr = 1e-7, .step = i + 1});
  const std::vector<double> after = job.parameter(name);
  int64_t moved = 0, by_little = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    moved += before[i] != after[i];
    by_little += std::abs(after[i] - before[i]) < 0x1p-9 * std::abs(before[i]);
  }
  EXPECT_GT(moved, std::ssize(before) * 9 / 10);
  EXPECT_GT(by_little, std::ssize(before) * 9 / 10);
}

// A weight is gathered after it was made narrow: zero 3 sends half the bytes of fp32.
TEST(Bf16, Zero3GathersNarrowWeights) {
  Pool pool(1);
  const auto gathered = [&](DType real) {
    JobConfig c = config(real);
    c.plan = resolve({.dp = 2, .zero = 3}, 2, kRows);
    Job job(c, pool);
    return job.predicted().collectives.at("all_gather").bytes;
  };
  EXPECT_EQ(2 * gathered(DType::bf16), gathered(DType::f32));
}

}  // namespace
}  // namespace myriad
