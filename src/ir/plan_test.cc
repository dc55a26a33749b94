// Plans: what is filled in, and what is refused with rule, value and nearest legal value.
#include "ir/plan.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"

namespace myriad {
namespace {

// The message must name all of `said`, and what is legal must be named too.
void expect_refused(Plan plan, int layers, int64_t rows, const std::vector<std::string>& said,
                    const std::string& legal) {
  try {
    resolve(plan, layers, rows);
    ADD_FAILURE() << show(plan) << " is not refused";
  } catch (const Error& e) {
    const std::string what = e.what();
    for (const std::string& word : said)
      EXPECT_NE(what.find(word), std::string::npos) << what << "\n  does not say " << word;
    EXPECT_EQ(e.where, "layout");
    EXPECT_NE(e.hint.find(legal), std::string::npos) << e.hint << "\n  does not say " << legal;
  }
}

TEST(Plan, SizesBelowOneAreRefused) {
  expect_refused({.dp = 0}, 4, 4, {"dp", "0"}, "1 or more");
  expect_refused({.tp = -2}, 4, 4, {"tp", "-2"}, "1 or more");
  expect_refused({.pp = 0}, 4, 4, {"pp", "0"}, "1 or more");
  expect_refused({.vpp = 0}, 4, 4, {"vpp", "0"}, "1 or more");
  expect_refused({.micro_batches = 0}, 4, 4, {"micro_batches", "0"}, "1 or more");
}

TEST(Plan, UnknownZeroAndScheduleAreRefused) {
  expect_refused({.zero = 4}, 4, 4, {"zero", "4"}, "0, 1, 2, 3");
  expect_refused({.zero = -1}, 4, 4, {"zero", "-1"}, "0, 1, 2, 3");
  expect_refused({.schedule = "dualpipe"}, 4, 4, {"schedule", "dualpipe"},
                 "gpipe, 1f1b, interleaved");
}

TEST(Plan, ScheduleAndChunksMustFit) {
  expect_refused({.pp = 2, .micro_batches = 2, .schedule = "interleaved"}, 4, 4,
                 {"interleaved", "vpp", "1"}, "1f1b");
  expect_refused({.pp = 2, .vpp = 2, .micro_batches = 2, .schedule = "gpipe"}, 4, 4,
                 {"gpipe", "vpp", "2"}, "interleaved");
  expect_refused({.pp = 2, .vpp = 2, .micro_batches = 2, .schedule = "1f1b"}, 4, 4,
                 {"1f1b", "vpp", "2"}, "interleaved");
  expect_refused({.pp = 4, .vpp = 2, .micro_batches = 3}, 8, 8, {"interleaved", "4", "3"},
                 "micro_batches: 4");
}

TEST(Plan, EmptyVirtualStagesAreRefused) {
  expect_refused({.pp = 5, .micro_batches = 5}, 4, 8, {"pp 5", "4 layers"}, "at most 4");
  expect_refused({.pp = 2, .vpp = 3, .micro_batches = 2}, 5, 8, {"6 virtual stages", "5 layers"},
                 "pp 2, vpp 2");
  expect_refused({.pp = 2, .micro_batches = 2, .stages = {4, 0}}, 4, 8, {"stages", "0"},
                 "1 or more");
}

TEST(Plan, StagesMustBeAsManyAsVirtualStagesAndSumToTheLayers) {
  expect_refused({.pp = 2, .stages = {1, 1, 2}}, 4, 8, {"3 entries", "pp 2 x vpp 1"},
                 "2 layer counts");
  expect_refused({.pp = 2, .stages = {1, 2}}, 4, 8, {"sums to 3", "4 layers"}, "");
}

TEST(Plan, MoreMicroBatchesThanRowsAreRefused) {
  expect_refused({.micro_batches = 9}, 4, 8, {"9 micro-batches", "8 rows"}, "1 to 8");
  expect_refused({}, 4, 0, {"0 rows"}, "sequence_length");
}

TEST(Plan, DefaultsAreFilledIn) {
  const Plan p = resolve({.pp = 2, .micro_batches = 2}, 5, 4);
  EXPECT_EQ(p.schedule, "1f1b");
  EXPECT_EQ(p.stages, (std::vector<int>{2, 3}));
  EXPECT_EQ(p.grad_reduce, GradReduce::step);
  EXPECT_EQ(resolve({.vpp = 2}, 4, 4).schedule, "interleaved");
  for (int zero = 0; zero <= 3; ++zero) {
    EXPECT_EQ(resolve({.dp = 2, .zero = zero}, 4, 4).grad_reduce,
              zero >= 2 ? GradReduce::micro_batch : GradReduce::step)
        << zero;
  }
  EXPECT_EQ(resolve({.dp = 2, .zero = 3, .grad_reduce = GradReduce::step}, 4, 4).grad_reduce,
            GradReduce::step);
}

TEST(Plan, WhatHasNoEffectIsTakenOut) {
  EXPECT_FALSE(resolve({.tp = 1, .sp = true}, 4, 4).sp);
  EXPECT_EQ(resolve({.dp = 1, .zero = 3}, 4, 4).zero, 0);
  EXPECT_TRUE(resolve({.tp = 2, .sp = true}, 4, 4).sp);
}

TEST(Plan, ResolvingTwiceChangesNothing) {
  for (const Plan& p :
       {Plan{},
        Plan{.dp = 2, .tp = 3, .pp = 2, .vpp = 2, .micro_batches = 3, .zero = 2, .sp = true}}) {
    const Plan once = resolve(p, 7, 5);
    EXPECT_EQ(resolve(once, 7, 5), once);
  }
}

TEST(Plan, CutsOfLayersCoverThemEvenly) {
  for (int layers = 1; layers <= 20; ++layers) {
    for (int pp = 1; pp <= layers; ++pp) {
      const Plan p = resolve({.pp = pp}, layers, 4);
      EXPECT_EQ(std::accumulate(p.stages.begin(), p.stages.end(), 0), layers);
      for (int n : p.stages) EXPECT_TRUE(n == layers / pp || n == (layers + pp - 1) / pp);
    }
  }
}

// By definition: least rounds of (group, query) pairs on the busiest rank, ties to more groups.
TEST(Plan, CutOfHeadsOverTensorParallelRanks) {
  for (int tp = 1; tp <= 12; ++tp) {
    for (int64_t g = 1; g <= 9; ++g) {
      for (int64_t r = 1; r <= 8; ++r) {
        const int cut = kv_cut(tp, g, r);
        ASSERT_EQ(tp % cut, 0);
        const auto work = [&](int tg) {
          return (g + tg - 1) / tg * ((r + tp / tg - 1) / (tp / tg));
        };
        for (int tg = 1; tg <= tp; ++tg) {
          if (tp % tg == 0) {
            EXPECT_TRUE(work(cut) < work(tg) || (work(cut) == work(tg) && cut >= tg))
                << tp << " " << g << " " << r;
          }
        }
      }
    }
  }
  EXPECT_EQ(kv_cut(8, 8, 8), 8);
  EXPECT_EQ(kv_cut(8, 20, 1),
            8);  // the greatest common divisor, 4, would leave half of the ranks idle
  EXPECT_EQ(kv_cut(6, 2, 3), 2);
  EXPECT_EQ(kv_cut(4, 1, 8), 1);
}

TEST(Plan, ImbalanceIsWarnedOfWithItsCost) {
  const Plan p = resolve({.dp = 2, .tp = 4, .pp = 2, .micro_batches = 2}, 5, 6);
  const std::vector<std::string> w = warnings(
      p, {.rows = 6, .layers = 5, .kv_heads = 3, .heads = 6, .ffn = 104, .vocabulary = 131});
  std::string all;
  for (const std::string& line : w) all += line + "\n";
  for (const char* said : {"kv heads 3 over", "vocabulary 131 over 4",
                           "rows of a micro-batch 3 over 2", "5 layers over 2 virtual stages"}) {
    EXPECT_NE(all.find(said), std::string::npos) << said << "\n" << all;
  }
  EXPECT_EQ(all.find("ffn"), std::string::npos) << all;
  const CutSizes even{.rows = 4,
                      .sequence = 12,
                      .layers = 4,
                      .kv_heads = 2,
                      .heads = 4,
                      .ffn = 64,
                      .vocabulary = 128};
  EXPECT_TRUE(warnings(resolve({.dp = 2, .cp = 3, .tp = 2}, 4, 4), even).empty());
  const auto cut = warnings(resolve({.cp = 4}, 4, 4), even);
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_NE(cut[0].find("tokens of a row 12 over 8: the largest part is 2"), std::string::npos);
}

TEST(Plan, NodesOfAnEpGroup) {
  const auto nodes = [](int ep, int etp, int ranks_per_node) {
    return nodes_of_experts({.dp = 24, .ep = ep, .etp = etp, .ranks_per_node = ranks_per_node});
  };
  EXPECT_EQ(nodes(4, 1, 0), 1);
  EXPECT_EQ(nodes(4, 1, 8), 1);
  EXPECT_EQ(nodes(4, 1, 2), 2);
  EXPECT_EQ(nodes(4, 2, 2), 4);
  EXPECT_EQ(nodes(4, 2, 4), 2);
  EXPECT_EQ(nodes(4, 2, 1), 4);  // each etp group on two nodes of its own
  EXPECT_EQ(nodes(3, 1, 2), 0);
  EXPECT_EQ(nodes(4, 1, 6), 0);
  EXPECT_EQ(nodes(3, 2, 3), 0);
}

TEST(Plan, DispatchThatTellsNodesApartNeedsEqualOnes) {
  Plan p{.dp = 12, .ep = 4, .dispatch = Dispatch::node_gather, .ranks_per_node = 3};
  try {
    resolve(p, 4, 12);
    FAIL();
  } catch (const Error& e) {
    const std::string what = e.what();
    for (const char* said : {"layout.dispatch is node_gather", "ep 4 x etp 1",
                             "nodes of 3 ranks_per_node", "ranks_per_node: 2 or 4"})
      EXPECT_NE(what.find(said), std::string::npos) << what;
  }
  p.ranks_per_node = 4;  // inside a node nothing is left to tell apart
  EXPECT_EQ(resolve(p, 4, 12).dispatch, Dispatch::flat);
  p.ranks_per_node = 3;
  p.dispatch = Dispatch::node_relay;  // needs none
  EXPECT_EQ(resolve(p, 4, 12).dispatch, Dispatch::node_relay);
  p.ep = 1;
  EXPECT_EQ(resolve(p, 4, 12).dispatch, Dispatch::flat);
  p.dispatch = Dispatch::flat;
  EXPECT_EQ(resolve(p, 4, 12).ranks_per_node, 3);
  EXPECT_EQ(resolve({.dp = 12}, 4, 12).ranks_per_node, 12);
}

TEST(Plan, ANodeGatherThatSendsMoreIsWarnedOf) {
  Plan p{.dp = 8, .ep = 8, .dispatch = Dispatch::node_gather, .ranks_per_node = 2};
  const auto warned = [&](int64_t top_k) {
    return !warnings(resolve(p, 4, 8), {.rows = 8, .layers = 4, .top_k = top_k}).empty();
  };
  EXPECT_TRUE(warned(2));   // 3 rows a token against 1.5
  EXPECT_FALSE(warned(4));  // 3 against 3
  p.dispatch = Dispatch::node_relay;
  EXPECT_FALSE(warned(2));
}

TEST(Plan, ShownInOneLine) {
  const Plan p = resolve(
      {.dp = 2, .tp = 2, .pp = 2, .vpp = 2, .micro_batches = 4, .zero = 1, .sp = true}, 4, 8);
  EXPECT_EQ(show(p), "dp 2 x tp 2 x pp 2, vpp 2, 4 micro-batches, zero 1, sp, interleaved");
  EXPECT_EQ(p.ranks(), 8);
}

}  // namespace
}  // namespace myriad
