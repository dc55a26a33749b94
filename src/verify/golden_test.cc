// The goldens under one rank and many layouts, in both precisions.
#include "verify/golden.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace myriad {
namespace {

const char* const kCases[] = {
    "llama_gqa", "llama_tied_llama3rope", "llama_packed", "qwen3_yarn", "telechat2", "gpt2"};

std::vector<Plan> layouts() {
  return {
      {},
      {.tp = 2},
      {.tp = 3, .sp = true},
      {.tp = 4},
      {.tp = 6, .sp = true},
      {.pp = 2, .micro_batches = 4, .schedule = "gpipe"},
      {.pp = 4, .micro_batches = 2, .recompute = Recompute::full},
      {.pp = 2, .vpp = 2, .micro_batches = 3},
      {.dp = 2, .zero = 1},
      {.dp = 3, .micro_batches = 2, .zero = 2},
      {.dp = 3, .zero = 3},
      {.dp = 5, .zero = 1},  // more than there are rows
      {.dp = 2, .tp = 2, .pp = 2, .vpp = 2, .micro_batches = 2, .zero = 1, .sp = true},
      {.dp = 2, .tp = 4, .zero = 3, .sp = true, .recompute = Recompute::full},
      {.tp = 2, .pp = 4, .micro_batches = 4, .sp = true, .stages = {1, 1, 1, 1}},
      {.dp = 2, .pp = 3, .micro_batches = 2, .zero = 2, .grad_reduce = GradReduce::step},
      {.cp = 2},
      {.cp = 3, .zero = 1},
      {.cp = 4, .tp = 2, .sp = true},
      {.cp = 2, .tp = 3, .zero = 3, .recompute = Recompute::full},
      {.dp = 2, .cp = 2, .pp = 2, .vpp = 2, .micro_batches = 2, .zero = 2},
  };
}

// Of expert models. Losses over a micro-batch make the number of micro-batches part of a case.
std::vector<Plan> expert_layouts(int micro_batches) {
  std::vector<Plan> plans = {
      {},
      {.dp = 2, .ep = 2},
      {.dp = 3, .zero = 1, .ep = 3},  // does not divide the experts
      {.dp = 2, .tp = 2, .ep = 4},
      {.dp = 4, .tp = 2, .zero = 3, .sp = true, .ep = 8},
      {.tp = 2, .ep = 2},  // across tp
      {.tp = 4, .sp = true, .ep = 2, .etp = 2},
      {.dp = 2, .tp = 2, .zero = 2, .etp = 2},
      {.dp = 2, .tp = 2, .pp = 2, .zero = 1, .ep = 2, .etp = 2},
      {.dp = 3, .pp = 2, .ep = 3, .expert_rows_bound = 0.3},
      {.dp = 2,
       .tp = 2,
       .zero = 3,
       .sp = true,
       .ep = 4,
       .expert_rows_bound = 0.3,
       .recompute = Recompute::full},
      {.dp = 4, .pp = 2, .zero = 2, .ep = 2, .recompute = Recompute::full},
      {.dp = 2, .tp = 3, .zero = 1, .sp = true, .ep = 3, .recompute = Recompute::full},
      {.tp = 6, .sp = true, .ep = 2, .etp = 3, .expert_rows_bound = 0.3},
  };
  plans.insert(plans.end(), {{.cp = 2, .ep = 2},
                             {.cp = 3, .tp = 2, .zero = 1, .sp = true, .ep = 3, .etp = 2},
                             {.dp = 2, .cp = 2, .tp = 2, .zero = 3, .sp = true, .ep = 8},
                             {.cp = 2, .pp = 2, .zero = 2, .recompute = Recompute::full}});
  // Each kind of dispatch between nodes: of dp, across tp with and without sp, of both; with
  // rounds, etp, ZeRO, and ranks that leave experts over.
  for (const Dispatch kind : {Dispatch::flat, Dispatch::node_gather, Dispatch::node_relay}) {
    std::vector<Plan> nodes = {
        {.dp = 4, .ep = 4, .ranks_per_node = 2},
        {.dp = 4, .tp = 2, .zero = 1, .sp = true, .ep = 8, .ranks_per_node = 2},
        {.dp = 2, .tp = 4, .zero = 3, .ep = 8, .expert_rows_bound = 0.3, .ranks_per_node = 2},
        {.dp = 4, .tp = 2, .zero = 2, .ep = 2, .etp = 2, .ranks_per_node = 2},
        {.dp = 3, .pp = 2, .ep = 3, .ranks_per_node = 1, .recompute = Recompute::full},
        {.dp = 2, .cp = 2, .ep = 4, .ranks_per_node = 2},
        {.cp = 4, .zero = 1, .ep = 4, .expert_rows_bound = 0.3, .ranks_per_node = 2},
    };
    if (kind == Dispatch::node_relay) {  // nodes that hold 2 and 1, 3 and 1 of a group's ranks
      nodes.push_back({.dp = 3, .zero = 1, .ep = 3, .ranks_per_node = 2});
      nodes.push_back(
          {.dp = 2, .tp = 2, .sp = true, .ep = 4, .expert_rows_bound = 0.3, .ranks_per_node = 3});
    }
    for (Plan& p : nodes) {
      p.dispatch = kind;
      plans.push_back(p);
    }
  }
  for (Plan& p : plans) p.micro_batches = micro_batches;
  if (micro_batches > 1) {
    plans.push_back(
        {.dp = 2, .pp = 2, .vpp = 2, .micro_batches = micro_batches, .zero = 1, .ep = 2});
    plans.push_back({.dp = 2,
                     .tp = 2,
                     .pp = 2,
                     .vpp = 2,
                     .micro_batches = micro_batches,
                     .zero = 2,
                     .sp = true,
                     .ep = 4,
                     .recompute = Recompute::full});
    plans.push_back(
        {.dp = 2, .tp = 2, .micro_batches = micro_batches, .zero = 3, .ep = 2, .etp = 2});
  }
  return plans;
}

void check(const std::string& name, const std::vector<Plan>& plans, DType real, KernelSet kernels) {
  Pool pool(2);
  for (const Plan& plan : plans) {
    const GoldenReport r = verify_golden(std::string(MYRIAD_SOURCE "/tests/golden/") + name, plan,
                                         real, pool, kernels);
    EXPECT_TRUE(r.ok) << r.name << " under " << r.layout << ": logits " << r.logits << ", loss "
                      << r.loss << ", gradient " << r.gradient << " (" << r.gradient_name
                      << "), norm " << r.norm << ", after " << r.after << ", routing " << r.routing;
  }
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, DoubleReference) { check(GetParam(), layouts(), DType::f64, KernelSet::ref); }
TEST_P(Golden, SingleFast) { check(GetParam(), layouts(), DType::f32, KernelSet::fast); }
TEST_P(Golden, Bf16Fast) { check(GetParam(), layouts(), DType::bf16, KernelSet::fast); }

INSTANTIATE_TEST_SUITE_P(Cases, Golden, testing::ValuesIn(kCases),
                         [](const auto& p) { return std::string(p.param); });

class ExpertGolden : public testing::TestWithParam<const char*> {};

int micro_batches_of(const std::string& name) { return name == "mixtral_micro" ? 2 : 1; }

TEST_P(ExpertGolden, DoubleReference) {
  check(GetParam(), expert_layouts(micro_batches_of(GetParam())), DType::f64, KernelSet::ref);
}
TEST_P(ExpertGolden, SingleFast) {
  check(GetParam(), expert_layouts(micro_batches_of(GetParam())), DType::f32, KernelSet::fast);
}
TEST_P(ExpertGolden, Bf16Fast) {
  check(GetParam(), expert_layouts(micro_batches_of(GetParam())), DType::bf16, KernelSet::fast);
}

INSTANTIATE_TEST_SUITE_P(Cases, ExpertGolden,
                         testing::Values("mixtral", "mixtral_micro", "mixtral_capacity",
                                         "qwen3_moe"),
                         [](const auto& p) { return std::string(p.param); });

TEST(GoldenTest, ReferenceKernelsInSinglePrecision) {
  check("llama_gqa", layouts(), DType::f32, KernelSet::ref);
}

TEST(GoldenTest, RefusesALayoutThatDoesNotFit) {
  Pool pool(1);
  EXPECT_THROW(verify_golden(MYRIAD_SOURCE "/tests/golden/llama_gqa", {.pp = 5}, DType::f64, pool),
               Error);
  EXPECT_THROW(verify_golden(MYRIAD_SOURCE "/tests/golden/llama_gqa", {.micro_batches = 5},
                             DType::f64, pool),
               Error);
  EXPECT_THROW(
      verify_golden(MYRIAD_SOURCE "/tests/golden/mixtral", {.micro_batches = 2}, DType::f64, pool),
      Error);
  EXPECT_THROW(verify_golden(MYRIAD_SOURCE "/tests/golden/mixtral_micro", {}, DType::f64, pool),
               Error);
  EXPECT_THROW(verify_golden(MYRIAD_SOURCE "/tests/no_such_case", {}, DType::f64, pool), Error);
}

}  // namespace
}  // namespace myriad
