// A job as its users rely on it: bits that do not depend on workers, steps without signal, and the
// search for a bad number.
#include "train/job.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "ir/print.h"
#include "plan/predict.h"
#include "train/forecast.h"
#include "train/model_folder.h"

namespace myriad {
namespace {

JobConfig config_of(const Plan& plan, DType real = DType::f32,
                    KernelSet kernels = KernelSet::fast) {
  JobConfig c{.model = {.hidden = 12,
                        .layers = 4,
                        .heads = 6,
                        .kv_heads = 3,
                        .head_dim = 4,
                        .ffn = 20,
                        .vocabulary = 23,
                        .norm_eps = 1e-5},
              .plan = {},
              .rows = 4,
              .sequence = 6,
              .real = real,
              .optimizer = {},
              .kernels = kernels};
  c.plan = resolve(plan, 4, c.rows);
  return c;
}

Batch batch_of(const JobConfig& c, uint64_t seed) {
  Batch b{.rows = c.rows, .sequence = c.sequence};
  for (int64_t i = 0; i < c.rows * c.sequence; ++i) {
    const auto token = [&](uint64_t stream) {
      return static_cast<int32_t>(random_bits(seed, stream, static_cast<uint64_t>(i)) % 23);
    };
    b.ids.push_back(token(0));
    b.targets.push_back(i % 5 == 0 ? -1 : token(1));
    b.positions.push_back(static_cast<int32_t>(i % c.sequence));
    b.documents.push_back(0);
  }
  return b;
}

constexpr const char* kIdeal = R"(
device: {memory_bytes: 1e12, memory_bandwidth: 1e30, peak_flops: {fp32: 1e12}, vector_flops: {fp32: 1e30}}
levels: [{name: ideal, bandwidth: 1e30, latency: 0}]
)";

// Every state of a job on every rank, byte by byte.
std::vector<std::vector<std::byte>> bits_of(Job& job) {
  std::vector<std::vector<std::byte>> all;
  const Program& p = job.train().program;
  for (size_t i = 0; i < p.states.size(); ++i) {
    const StateKind kind = p.states[i].name.kind;
    if (kind == StateKind::scalar || kind == StateKind::gradient_sum)
      continue;  // scratch of a step
    for (int r = 0; r < p.mesh.ranks(); ++r) {
      const Tensor t = job.train().executor->state(r, static_cast<int>(i));
      if (t.data) all.emplace_back(t.data, t.data + t.bytes());
    }
  }
  return all;
}

Plan eight_ranks() {
  return {.dp = 2, .tp = 2, .pp = 2, .vpp = 2, .micro_batches = 2, .zero = 1, .sp = true};
}

TEST(Job, BitsDoNotDependOnWorkers) {
  std::vector<std::vector<std::vector<std::byte>>> bits;
  std::vector<double> losses;
  for (int workers : {1, 2, 3}) {
    Pool pool(workers);
    Job job(config_of(eight_ranks()), pool);
    job.initialise(5);
    for (int step = 1; step <= 3; ++step)
      losses.push_back(
          job.step(batch_of(job.config(), static_cast<uint64_t>(step)), {.lr = 0.01, .step = step})
              .loss_sum);
    bits.push_back(bits_of(job));
  }
  EXPECT_EQ(bits[0], bits[1]);
  EXPECT_EQ(bits[0], bits[2]);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(losses[i] == losses[i + 3] && losses[i] == losses[i + 6]);
}

TEST(Job, InitialisedAlikeUnderAnyLayout) {
  Pool pool(1);
  Job one(config_of({}), pool), many(config_of(eight_ranks()), pool);
  one.initialise(9);
  many.initialise(9);
  ASSERT_EQ(one.parameters(), many.parameters());
  for (const std::string& name : one.parameters())
    EXPECT_EQ(one.parameter(name), many.parameter(name)) << name;
}

// A matrix with as many elements but another shape is not the model's: its bits mean something
// else.
TEST(Job, ATransposedWeightIsRefused) {
  Pool pool(1);
  Job job(config_of({}), pool);
  job.initialise(1);
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "transposed";
  std::filesystem::create_directories(folder);
  write_weights(job, folder / "right.safetensors");
  const SafeTensors right = SafeTensors::open(folder / "right.safetensors");
  EXPECT_NO_THROW(job.load({right}));

  const std::string name = "model.layers.1.self_attn.q_proj.weight";
  ASSERT_EQ(right.info(name).shape, (std::vector<int64_t>{24, 12}));
  std::vector<std::vector<std::byte>> bytes;
  for (const std::string& n : right.names()) bytes.push_back(right.bytes(n));
  std::vector<TensorEntry> entries;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const std::string& n = right.names()[i];
    entries.push_back({.name = n,
                       .type = Stored::f32,
                       .shape = n == name ? std::vector<int64_t>{12, 24} : right.info(n).shape,
                       .bytes = bytes[i]});
  }
  ASSERT_TRUE(write_safetensors(folder / "wrong.safetensors", entries).ok());
  try {
    job.load({SafeTensors::open(folder / "wrong.safetensors")});
    ADD_FAILURE() << "loaded";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("tensor " + name +
                                         " has shape [12, 24], the model needs [24, 12]"),
              std::string::npos)
        << e.what();
  }
  std::filesystem::remove_all(folder);
}

TEST(Job, AStepWithoutTargetsLeavesEverythingUntouched) {
  for (const Plan& plan : {Plan{}, eight_ranks()}) {
    Pool pool(2);
    Job job(config_of(plan), pool);
    job.initialise(5);
    Batch batch = batch_of(job.config(), 1);
    job.step(batch, {.lr = 0.01, .step = 1});  // moments are not zero
    const auto before = bits_of(job);
    batch.targets.assign(batch.targets.size(), -1);
    const StepResult r = job.step(batch, {.lr = 0.01, .step = 2});
    EXPECT_FALSE(r.updated);
    EXPECT_EQ(r.tokens, 0);
    EXPECT_EQ(r.loss(), 0);
    EXPECT_EQ(bits_of(job), before);
  }
}

JobConfig with_router_biases(const Plan& plan) {
  JobConfig config = config_of(plan);
  config.model.family = Family::telechat_moe;
  config.model.moe = {.experts = 4,
                      .top_k = 2,
                      .expert_ffn = 6,
                      .scores = Scores::sigmoid,
                      .correction_bias = true,
                      .routing = {.bias_update_rate = 0.5}};
  return config;
}

// Neither a step without targets nor one whose norm is not finite moves what routers choose by.
TEST(Job, AStepWithoutAnUpdateLeavesRouterBiases) {
  const JobConfig config = with_router_biases({.dp = 2, .ep = 2});
  Pool pool(2);
  Job job(config, pool);
  job.initialise(5);
  const std::string bias = "transformer.h.1.mlp.gate.e_score_correction_bias";
  const Batch batch = batch_of(config, 1);
  job.step(batch, {.lr = 0.01, .step = 1});
  const std::vector<double> moved = job.parameter(bias);
  EXPECT_NE(moved, std::vector<double>(4, 0.0));
  Batch masked = batch;
  masked.targets.assign(masked.targets.size(), -1);
  EXPECT_FALSE(job.step(masked, {.lr = 0.01, .step = 2}).updated);
  EXPECT_EQ(job.parameter(bias), moved);
  const Program& p = job.train().program;
  for (size_t i = 0; i < p.states.size(); ++i) {
    if (p.states[i].name == "p:emb.w")
      set_state(*job.train().executor, static_cast<int>(i),
                [](int64_t) { return std::numeric_limits<double>::quiet_NaN(); });
  }
  EXPECT_FALSE(job.step(batch, {.lr = 0.01, .step = 3}).updated);
  EXPECT_EQ(job.parameter(bias), moved);
}

// The update of a router's bias asks how many choices an expert gets on average in a whole step,
// which a program made from one micro-batch alone would get wrong.
TEST(Job, RunsTheProgramThatIsPredicted) {
  for (const Plan& plan : {Plan{.micro_batches = 4}, Plan{.dp = 2, .pp = 2, .micro_batches = 2},
                           Plan{.dp = 2, .micro_batches = 2, .zero = 3}}) {
    const JobConfig c = with_router_biases(plan);
    Pool pool(1);
    Job job(c, pool);
    const Cluster cluster = parse_cluster(kIdeal, "ideal");
    const Prediction p = predict({.model = c.model,
                                  .plan = c.plan,
                                  .rows = c.rows,
                                  .sequence = c.sequence,
                                  .optimizer = c.optimizer},
                                 cluster, {.memory = false});
    const std::string runs = print_program(job.train().program);
    EXPECT_EQ(print_program(p.program), runs) << show(c.plan);
    RunConfig file{.model = c.model, .plan = c.plan};  // what `myriad show program` prints
    file.train.sequence_length = c.sequence;
    file.train.tokens_per_step = c.rows * c.sequence;
    EXPECT_EQ(print_program(program_of(file)), runs) << show(c.plan);
  }
}

TEST(Job, ARankWithoutTargetsIsOrdinary) {
  Pool pool(2);
  Job one(config_of({}, DType::f64, KernelSet::ref), pool),
      two(config_of({.dp = 2}, DType::f64, KernelSet::ref), pool);
  Batch batch = batch_of(one.config(), 1);
  std::fill_n(batch.targets.begin(), batch.targets.size() / 2,
              -1);  // of the first data-parallel rank
  for (Job* job : {&one, &two}) job->initialise(5);
  const StepResult a = one.step(batch, {.lr = 0.01, .step = 1}),
                   b = two.step(batch, {.lr = 0.01, .step = 1});
  EXPECT_TRUE(b.updated);
  EXPECT_NEAR(a.loss(), b.loss(), 1e-12);
  EXPECT_NEAR(a.norm, b.norm, 1e-12 * a.norm);
}

TEST(Job, ABadWeightMakesNoUpdateAndIsFound) {
  for (const Plan& plan : {Plan{}, eight_ranks()}) {
    Pool pool(2);
    Job job(config_of(plan), pool);
    job.initialise(5);
    const Program& p = job.train().program;
    for (size_t i = 0; i < p.states.size(); ++i) {
      if (p.states[i].name == "p:up.w" && p.states[i].unit == 3) {
        set_state(*job.train().executor, static_cast<int>(i), [](int64_t k) {
          return k == 7 ? std::numeric_limits<double>::quiet_NaN() : 0.1;
        });
      }
    }
    const auto before = bits_of(job);
    const Batch batch = batch_of(job.config(), 1);
    const StepResult r = job.step(batch, {.lr = 0.01, .step = 1});
    EXPECT_FALSE(r.updated);
    EXPECT_FALSE(std::isfinite(r.norm));
    EXPECT_EQ(bits_of(job), before);
    const BadTensor bad = job.hunt(batch);
    EXPECT_NE(bad.name.find("layer.forward, unit 3, micro-batch 0"), std::string::npos) << bad.name;
    EXPECT_NE(bad.name.find("up.w"), std::string::npos) << bad.name;
    EXPECT_EQ(bits_of(job), before) << "hunting changes nothing";
  }
}

TEST(Job, AHealthyStepHasNothingBad) {
  Pool pool(2);
  Job job(config_of(eight_ranks()), pool);
  job.initialise(5);
  EXPECT_EQ(job.hunt(batch_of(job.config(), 1)).name, "");
}

TEST(Job, WhatWasPredictedIsMeasured) {
  for (const Plan& plan :
       {Plan{}, Plan{.dp = 3, .zero = 3}, Plan{.tp = 4, .sp = true, .recompute = Recompute::full},
        eight_ranks()}) {
    Pool pool(2);
    Job job(config_of(plan), pool);
    job.initialise(5);
    job.step(batch_of(job.config(), 1), {.lr = 0.01, .step = 1});
    EXPECT_TRUE(job.train().executor->measured() == job.predicted()) << show(job.config().plan);
  }
}

TEST(Job, EvaluationSumsTheSameLossAndTouchesNoState) {
  for (const Plan& plan : {Plan{}, eight_ranks()}) {
    Pool pool(2);
    Job job(config_of(plan, DType::f64, KernelSet::ref), pool, {.evaluation_rows = 4});
    job.initialise(5);
    const Batch batch = batch_of(job.config(), 1);
    const auto before = bits_of(job);
    const double evaluated = job.evaluate(batch).loss_sum;
    EXPECT_EQ(bits_of(job), before);
    EXPECT_NEAR(job.step(batch, {.lr = 0.01, .step = 1}).loss_sum, evaluated, 1e-12 * evaluated);
  }
}

}  // namespace
}  // namespace myriad
