// A cache changes no number: against full passes, for every family, on any layout, in any company.
#include "train/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "machine/profile.h"
#include "train/perplexity.h"

namespace myriad {
namespace {

constexpr int64_t kVocabulary = 37;

ModelConfig model_of(Family family) {
  ModelConfig m{.family = family,
                .hidden = 16,
                .layers = 3,
                .heads = 4,
                .kv_heads = 2,
                .head_dim = 4,
                .ffn = 22,
                .vocabulary = kVocabulary,
                .positions = 512,
                .norm_eps = 1e-5,
                .initializer_range = 0.3};
  if (family == Family::gpt2) m.kv_heads = m.heads, m.tied = true;
  if (family == Family::qwen3)
    m.rope = {.kind = RopeKind::yarn, .factor = 4, .original_positions = 128};
  if (family == Family::telechat || family == Family::telechat_moe)
    m.rope = {.kind = RopeKind::telechat, .base_seqlen = 128, .training_seqlen = 512};
  if (family == Family::mixtral || family == Family::qwen3_moe)
    m.moe = {.experts = 5,
             .top_k = 2,
             .expert_ffn = 6,
             .routing = {.capacity_factor = 0.5, .load_balance = 0.1}};
  if (family == Family::telechat_moe)
    m.moe = {.experts = 6,
             .top_k = 2,
             .expert_ffn = 5,
             .shared_experts = 1,
             .dense_layers = {0},
             .scores = Scores::sigmoid,
             .scaling = 2,
             .correction_bias = true,
             .groups = 3,
             .kept_groups = 2};
  return m;
}

constexpr Family kFamilies[] = {Family::llama,   Family::qwen3,     Family::telechat,
                                Family::mixtral, Family::qwen3_moe, Family::telechat_moe,
                                Family::gpt2};

JobConfig config_of(Family family, int64_t sequence, DType real = DType::f32,
                    const Plan& plan = {}) {
  JobConfig c{.model = model_of(family),
              .plan = resolve(plan, 3, 4),
              .rows = 4,
              .sequence = sequence,
              .real = real,
              .optimizer = {},
              .kernels = real == DType::f64 ? KernelSet::ref : KernelSet::fast};
  return c;
}

std::vector<int32_t> tokens(int64_t n, uint64_t seed) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back(
        static_cast<int32_t>(random_bits(seed, 1, static_cast<uint64_t>(i)) % kVocabulary));
  return ids;
}

// Full passes: logits [ids, vocabulary], without a capacity.
std::vector<double> full(JobConfig c, const std::vector<int32_t>& ids, Pool& pool) {
  c.plan = resolve({}, 3, 1);
  c.rows = 1;
  c.model.moe.routing = {};
  Job job(c, pool, {.train = false, .logits_rows = 1});
  job.initialise(5);
  Batch batch{.sequence = c.sequence};
  add_row(batch, ids, std::vector<int32_t>(ids.size(), -1));
  std::vector<double> logits = job.logits(batch);
  logits.resize(ids.size() * kVocabulary);
  return logits;
}

Job make_job(const JobConfig& c, int64_t rows, Pool& pool, bool train = false) {
  return Job(c, pool,
             {.train = train, .generation = {.rows = rows, .tokens = cache_places(c.sequence)}});
}

// Reads `ids` but the last `stepped`, which are stepped one by one in `row`; logits after each.
std::vector<std::vector<double>> cached(Decoder& d, int64_t row, const std::vector<int32_t>& ids,
                                        int64_t stepped) {
  const int64_t n = std::ssize(ids);
  d.read(row, std::span(ids).first(static_cast<size_t>(n - stepped)));
  std::vector<std::vector<double>> out;
  for (int64_t i = n - stepped; i < n; ++i) {
    std::vector<Decoder::Token> now(static_cast<size_t>(d.rows()));
    now[static_cast<size_t>(row)] = {ids[static_cast<size_t>(i)], i};
    const std::vector<double> all = d.step(now);
    out.emplace_back(all.begin() + row * kVocabulary, all.begin() + (row + 1) * kVocabulary);
  }
  return out;
}

double largest_difference(const std::vector<std::vector<double>>& rows,
                          const std::vector<double>& whole) {
  const std::ptrdiff_t first = std::ssize(whole) - std::ssize(rows) * kVocabulary;
  double most = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t v = 0; v < kVocabulary; ++v) {
      const double d =
          std::abs(rows[i][v] - whole[static_cast<size_t>(first) + i * kVocabulary + v]);
      most = d > most || std::isnan(d) ? d : most;
    }
  }
  return most;
}

// 150 tokens are three chunks of a prompt, the steps behind them cross the first 256 keys.
TEST(Decoder, GreedyTextIsThatOfFullPassesInEveryFamily) {
  for (Family family : kFamilies) {
    Pool pool(2);
    const JobConfig c = config_of(family, 300);
    Job job = make_job(c, 2, pool);
    job.initialise(5);
    Decoder d(job);
    std::vector<int32_t> ids = tokens(150, 7);
    d.read(1, std::span(ids).first(149));
    while (ids.size() < 300) {
      const Decoder::Token now[] = {{}, {ids.back(), std::ssize(ids) - 1}};
      const std::vector<double> logits = d.step(now);
      ids.push_back(
          static_cast<int32_t>(std::max_element(logits.begin() + kVocabulary, logits.end()) -
                               logits.begin() - kVocabulary));
    }
    const std::vector<double> logits = full(c, ids, pool);
    for (size_t i = 149; i + 1 < ids.size(); ++i) {
      const auto row = logits.begin() + static_cast<std::ptrdiff_t>(i * kVocabulary);
      ASSERT_EQ(std::max_element(row, row + kVocabulary) - row, ids[i + 1])
          << "family " << static_cast<int>(family) << ", token " << i + 1;
    }
  }
}

TEST(Decoder, LogitsAreThoseOfFullPassesInEveryFamily) {
  for (Family family : kFamilies) {
    Pool pool(2);
    const JobConfig c = config_of(family, 90, DType::f64);
    Job job = make_job(c, 2, pool);
    job.initialise(5);
    Decoder d(job);
    const std::vector<int32_t> ids = tokens(90, 3);
    EXPECT_LT(largest_difference(cached(d, 1, ids, 20), full(c, ids, pool)), 1e-12)
        << "family " << static_cast<int>(family);
  }
}

TEST(Decoder, AnyLayout) {
  for (Family family : {Family::llama, Family::gpt2, Family::qwen3_moe}) {
    for (Plan plan : {Plan{.tp = 2}, Plan{.tp = 4, .sp = true}, Plan{.dp = 3, .zero = 3},
                      Plan{.dp = 2, .tp = 2, .pp = 3, .micro_batches = 2, .zero = 1, .sp = true},
                      Plan{.pp = 1, .recompute = Recompute::full}}) {
      if (family == Family::qwen3_moe) plan.ep = plan.dp * plan.tp >= 4 ? 2 : 1;
      Pool pool(2);
      const JobConfig c = config_of(family, 20, DType::f64, plan);
      Job job = make_job(c, 5, pool, true);
      job.initialise(5);
      Decoder d(job);
      const std::vector<int32_t> ids = tokens(20, 3);
      for (int64_t row : {0, 3, 4}) {
        EXPECT_LT(largest_difference(cached(d, row, ids, 6), full(c, ids, pool)), 1e-12)
            << "family " << static_cast<int>(family) << ", " << show(c.plan) << ", row " << row;
      }
    }
  }
}

// To the bit: what another row reads, how many rows there are, and what lay in the row before.
TEST(Decoder, RowsDoNotKnowOfEachOther) {
  for (Family family : {Family::llama, Family::gpt2, Family::telechat, Family::mixtral}) {
    Pool pool(2);
    const JobConfig c = config_of(family, 120);
    const std::vector<int32_t> ids = tokens(100, 3);
    Job one = make_job(c, 1, pool);
    one.initialise(5);
    Decoder alone(one);
    const auto expected = cached(alone, 0, ids, 10);
    for (int64_t rows : {int64_t{2}, int64_t{7}, kMostRows}) {
      Job many = make_job(c, rows, pool);
      many.initialise(5);
      Decoder d(many);
      cached(d, rows - 1, tokens(120, 9), 1);  // longer, in the row that is used next
      std::vector<std::vector<int32_t>> others;
      for (int64_t r = 0; r + 1 < rows; ++r) {
        others.push_back(tokens(30 + 7 * r % 80, static_cast<uint64_t>(20 + r)));
        d.read(r, others.back());
      }
      d.read(rows - 1, std::span(ids).first(90));
      for (int64_t i = 90; i < 100; ++i) {
        std::vector<Decoder::Token> now;
        for (const auto& other : others)
          now.push_back({static_cast<int32_t>(i % kVocabulary), std::ssize(other) + i - 90});
        now.push_back({ids[static_cast<size_t>(i)], i});
        const std::vector<double> all = d.step(now);
        const std::vector<double> mine(all.end() - kVocabulary, all.end());
        ASSERT_EQ(mine, expected[static_cast<size_t>(i - 90)])
            << "family " << static_cast<int>(family) << ", " << rows << " rows, token " << i;
      }
    }
  }
}

// The same rule as for training steps: what the plan says is what is touched and computed.
TEST(Decoder, WhatWasPlannedIsMeasured) {
  for (const Plan& plan : {Plan{}, Plan{.dp = 2, .tp = 2, .zero = 1}}) {
    Pool pool(2);
    Job job = make_job(config_of(Family::llama, 90, DType::f32, plan), 3, pool);
    job.initialise(5);
    Decoder d(job);
    cached(d, 0, tokens(70, 3), 2);
    for (Compiled* c : {&job.decoding(), &job.prefilling()}) {
      EXPECT_TRUE(c->executor->measured() == profile(c->program, c->memory))
          << show(job.config().plan);
    }
  }
}

// Parameters and moments lie where no generation reaches.
TEST(Decoder, TrainingDoesNotNoticeIt) {
  const auto run = [](bool generates) {
    Pool pool(2);
    Job job = make_job(config_of(Family::llama, 24, DType::f32, {.dp = 2, .tp = 2, .zero = 1}), 3,
                       pool, true);
    job.initialise(5);
    Batch batch{.sequence = 24};
    for (uint64_t r = 0; r < 4; ++r) add_row(batch, tokens(24, r), tokens(24, r + 9));
    std::vector<double> losses;
    for (int64_t step = 1; step <= 3; ++step) {
      losses.push_back(job.step(batch, {.lr = 0.01, .step = step}).loss_sum);
      if (!generates) continue;
      Decoder d(job);
      cached(d, 2, tokens(20, 3), 4);
    }
    return losses;
  };
  EXPECT_EQ(run(true), run(false));
}

}  // namespace
}  // namespace myriad
