// Predictions against what is known without a simulator: the formula of the bubble, FLOPs and bytes
// that can be counted by hand, and changes whose direction is certain. The clusters are ideal or
// small, so that one effect stands alone.
#include "plan/predict.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "machine/profile.h"
#include "machine/simulate_report.h"
#include "plan/explain.h"
#include "plan/testing.h"

namespace myriad {
namespace {

// Equal stages: an embedding that costs nothing (only products cost) and a head of one entry beside
// wide layers.
ModelConfig wide_model(int64_t layers) { return small_model(layers, 2048, 1); }

TEST(Bubble, IsStagesLessOneOverChunksTimesMicroBatches) {
  for (const auto& [pp, vpp, m] :
       {std::tuple(4, 1, 8), {4, 1, 4}, {2, 2, 4}, {4, 2, 8}, {4, 3, 4}, {8, 1, 16}, {1, 1, 3}}) {
    const Plan plan{.pp = pp, .vpp = vpp, .micro_batches = m};
    const Simulation s =
        predict(small_run(plan, m, wide_model(24), 64), ideal_cluster(), {.memory = false})
            .simulation;
    EXPECT_NEAR(s.bubble, static_cast<double>(pp - 1) / (vpp * m), 2e-3) << show(plan);
  }
  const Simulation gpipe =
      predict(small_run({.pp = 4, .micro_batches = 8, .schedule = "gpipe"}, 8, wide_model(8), 64),
              ideal_cluster())
          .simulation;
  EXPECT_NEAR(gpipe.bubble, 3.0 / 8, 2e-3);
}

TEST(Predict, CountsEveryFlopOnceAndRecomputingInHfuOnly) {
  const Simulation none =
      predict(small_run({.micro_batches = 2}, 2, wide_model(8), 64), ideal_cluster()).simulation;
  const Simulation full =
      predict(small_run({.micro_batches = 2, .recompute = Recompute::full}, 2, wide_model(8), 64),
              ideal_cluster())
          .simulation;
  EXPECT_NEAR(none.mfu, 1, 2e-3);  // attention makes its scores again in the backward pass
  EXPECT_NEAR(none.hfu, 1, 1e-9);
  EXPECT_NEAR(full.hfu, 1, 1e-9);
  EXPECT_GT(full.mfu, 0.75);  // the last product of a layer need not be made again
  EXPECT_LT(full.mfu, 0.82);
  EXPECT_GT(none.mfu_full_attention, none.mfu);
}

// Only what is bound by memory is made again: no product, so the FLOPs of the step hardly grow.
TEST(Predict, SelectiveRecomputingTradesMemoryForLittleTime) {
  const auto of = [](Recompute how) {
    return predict(small_run({.pp = 2, .micro_batches = 8, .recompute = how}, 8,
                             small_model(8, 256), 64),
                   small_cluster())
        .simulation;
  };
  const Simulation none = of(Recompute::none), selective = of(Recompute::selective),
                   full = of(Recompute::full);
  EXPECT_GT(selective.step_seconds, none.step_seconds);
  EXPECT_LT(selective.step_seconds, full.step_seconds);
  EXPECT_NEAR(selective.stages[0].seconds[static_cast<int>(Cost::matrix)],
              none.stages[0].seconds[static_cast<int>(Cost::matrix)], 1e-12);
  EXPECT_LT(selective.stages[0].peak_bytes, none.stages[0].peak_bytes);
  EXPECT_GT(selective.stages[0].peak_bytes, full.stages[0].peak_bytes);
}

TEST(Predict, MixedPrecisionMemoryIsEighteenBytesAParameter) {
  const PlannedRun run = small_run({}, 1, wide_model(2), 1);
  const Simulation s = predict(run, ideal_cluster()).simulation;
  const MemoryPlan::Kinds& k = s.stages[0].memory;
  const double n = static_cast<double>(parameter_count(run.model));
  EXPECT_NEAR(static_cast<double>(k.parameters), 2 * n, 1e3);
  EXPECT_NEAR(static_cast<double>(k.gradients), 4 * n, 2e3);
  EXPECT_NEAR(static_cast<double>(k.moments), 12 * n, 6e3);
}

TEST(Collectives, DirectFormulaSendsWhatTheProfileCounts) {
  for (const Plan& plan :
       {Plan{.dp = 2, .tp = 2, .pp = 2, .micro_batches = 2, .zero = 1, .sp = true},
        Plan{.dp = 4, .tp = 4, .zero = 3, .sp = true}, Plan{.dp = 4, .tp = 2}}) {
    const Cluster cluster = small_cluster();
    const Prediction p = predict(small_run(plan, 16), cluster);
    const Pricing as_stored{.dtype = "bf16", .bytes = ByteMap::fp32()};
    std::map<std::string, double> formula;
    for (int stage = 0; stage < p.program.stages; ++stage) {
      const int per_stage = p.program.mesh.ranks() / p.program.stages;
      for (int r = stage * per_stage; r < (stage + 1) * per_stage; ++r) {
        for (const Action& a : p.program.actions[stage]) {
          if (a.act != Act::run) continue;
          const LoweredBody& body = p.program.bodies[a.body];
          const BodyPrice price = price_body(cluster.device, as_stored, p.program.mesh, body, r,
                                             a.first, [](auto...) { return 0.0; });
          for (size_t t = 0; t < body.steps.size(); ++t) {
            if (!communicates(price.steps[t].cost)) continue;
            formula[name_of(body.steps[t].what)] +=
                direct_bytes(body.steps[t].what, price.steps[t].bytes,
                             p.program.mesh.parts(body.steps[t].atoms));
          }
        }
      }
    }
    const StepProfile counted = profile(p.program, {});
    for (const auto& [kind, bytes] : formula) {
      EXPECT_NEAR(bytes, static_cast<double>(counted.collectives.at(kind).bytes), 1e-3 * bytes)
          << kind << " " << show(plan);
    }
  }
}

TEST(SharedWorkers, OneRankIsHelpedByIdleOnes) {
  const auto seconds = [](int workers, double parallel) {
    Cluster c = small_cluster();
    c.host.workers = workers;
    c.host.parallel = parallel;
    return predict(small_run({.micro_batches = 2}, 2), c).simulation.step_seconds;
  };
  EXPECT_NEAR(seconds(4, 0), seconds(1, 0), 1e-12);
  EXPECT_NEAR(seconds(4, 0.75), seconds(1, 0) * (0.25 + 0.75 / 4), 1e-12);
  EXPECT_NEAR(seconds(4, 1), seconds(1, 0) / 4, 1e-12);
}

TEST(SharedWorkers, ManyRanksTakeTurns) {
  const auto seconds = [](int workers) {
    Cluster c = small_cluster();
    c.host.workers = workers;
    return predict(small_run({.dp = 8}, 8), c).simulation.step_seconds;
  };
  EXPECT_NEAR(seconds(2), 4 * seconds(8), 1e-12);
  EXPECT_NEAR(seconds(1), 8 * seconds(8), 1e-12);
}

TEST(Predict, RefusesAndWarns) {
  Cluster few = small_cluster();
  few.devices = 4;
  EXPECT_THROW(predict(small_run({.dp = 8}, 8), few), Error);
  const Simulation over = predict(small_run({.tp = 8}, 8), small_cluster(4)).simulation;
  ASSERT_FALSE(over.warnings.empty());
  EXPECT_NE(over.warnings[0].find("tp 8 spans nodes of 4"), std::string::npos);
}

TEST(Predict, SaysByHowMuchItDoesNotFit) {
  Cluster small = small_cluster();
  small.device.memory_bytes = 1000;
  const Simulation s = predict(small_run({}, 1), small).simulation;
  EXPECT_FALSE(s.fits);
  const nlohmann::json line = to_json(s, 1e9);
  for (const char* key : {"ranks", "step_seconds", "bubble", "mfu", "mfu_full_attention", "hfu",
                          "tokens_per_second", "exposed_communication_seconds", "peak_bytes",
                          "memory_limit_bytes", "fits", "device_hours"}) {
    EXPECT_TRUE(line.contains(key)) << key;
  }
  EXPECT_LT(line["memory_left_bytes"].get<int64_t>(), 0);
}

ModelConfig expert_model(int64_t top_k, int64_t hidden = 256) {
  ModelConfig m = small_model(4, hidden);
  m.family = Family::mixtral;
  m.moe = {.experts = 8, .top_k = top_k, .expert_ffn = hidden};
  return m;
}

// Rows are priced as they are expected: products of an expert model take what its FLOPs take.
TEST(Experts, ProductsAreThoseOfTheChosenRows) {
  for (const int64_t top_k : {1, 2, 8}) {
    const Simulation s =
        predict(small_run({}, 4, expert_model(top_k, 2048), 64), ideal_cluster()).simulation;
    EXPECT_NEAR(s.hfu, 1, 1e-9);
    EXPECT_GT(s.mfu, 0.7) << top_k;  // a round is made again in the backward pass
    EXPECT_LE(s.mfu, 1) << top_k;
  }
}

// Two nodes of four, between which all is slow.
TEST(Experts, DispatchCostsWhatCrossesNodes) {
  Cluster slow = small_cluster(4);
  for (auto& [n, b] : slow.levels[1].bandwidth.points) b /= 1e3;
  const auto seconds = [&](Dispatch dispatch, int64_t top_k) {
    const Plan plan{.dp = 8, .ep = 8, .dispatch = dispatch, .ranks_per_node = 4};
    const Simulation s = predict(small_run(plan, 32, expert_model(top_k), 64), slow).simulation;
    return s.exposed_communication_seconds;
  };
  const auto sum = [](const std::map<std::string, double>& kinds) {
    double all = 0;
    for (const auto& [kind, s] : kinds) all += s;
    return all;
  };
  // Of four choices two cross on average, but a token meets one other node.
  auto flat = seconds(Dispatch::flat, 4), relay = seconds(Dispatch::node_relay, 4);
  EXPECT_NEAR(flat["all_to_all"] / relay["all_to_all"], 2 * 70 / 69.0, 0.05);
  EXPECT_LT(sum(seconds(Dispatch::node_gather, 4)), sum(flat));
  // A single choice crosses every other time, where gathering sends all.
  EXPECT_GT(sum(seconds(Dispatch::node_gather, 1)), sum(seconds(Dispatch::flat, 1)));
}

TEST(Experts, UnevenLoadsCostTimeNotWork) {
  PlannedRun run = small_run({.dp = 4, .micro_batches = 2, .ep = 4}, 32, expert_model(2), 64);
  const auto simulated = [&](const char* load) {
    run.load = parse_load(load, 8);
    return predict(run, small_cluster()).simulation;
  };
  const Simulation even = simulated("even"), flat = simulated("zipf:0"),
                   steep = simulated("zipf:1");
  EXPECT_NEAR(flat.step_seconds, even.step_seconds, 1e-12);
  EXPECT_GT(steep.step_seconds, even.step_seconds);
  EXPECT_NEAR(steep.hfu * steep.step_seconds, even.hfu * even.step_seconds, 1e-12);
  double lost = 0;
  EXPECT_EQ(steep.stages[0].imbalance_seconds.size(), 4u);  // a layer each
  for (const auto& [unit, seconds] : steep.stages[0].imbalance_seconds) {
    EXPECT_GT(seconds, 0);
    lost += seconds;
  }
  EXPECT_LE(lost, 1.01 * (steep.step_seconds - even.step_seconds));
}

TEST(Experts, ExplainTriesTheOtherKindsOfDispatch) {
  const PlannedRun run = small_run({.dp = 8, .ep = 8}, 32, expert_model(4), 64);
  const std::string text = to_text(explain(run, small_cluster(4)));
  for (const char* change : {"dispatch flat -> node_gather", "dispatch flat -> node_relay"})
    EXPECT_NE(text.find(change), std::string::npos) << text;
  EXPECT_EQ(to_text(explain(run, small_cluster(8))).find("dispatch"), std::string::npos);
}

TEST(Predict, TraceIsJsonWithASpanAnAction) {
  const Prediction p = predict(small_run({.pp = 2, .micro_batches = 2}, 2), small_cluster());
  const auto trace = nlohmann::json::parse(chrome_trace(p.simulation, p.program));
  EXPECT_GT(trace["traceEvents"].size(), 20u);
}

TEST(Explain, TriesWhatTheRunDoesNotDo) {
  const auto tries = [](Recompute how, const std::string& what) {
    const Explanation e = explain(small_run({.recompute = how}, 2), small_cluster());
    return std::any_of(e.changes.begin(), e.changes.end(),
                       [&](const Change& c) { return c.what == what; });
  };
  EXPECT_TRUE(tries(Recompute::none, "recompute selective"));
  EXPECT_TRUE(tries(Recompute::none, "recompute full"));
  EXPECT_TRUE(tries(Recompute::full, "recompute off"));
  EXPECT_TRUE(tries(Recompute::full, "recompute selective"));
  EXPECT_FALSE(tries(Recompute::selective, "recompute selective"));
}

TEST(Explain, NamesAPlantedBottleneckFirst) {
  const PlannedRun run =
      small_run({.dp = 2, .tp = 2, .pp = 2, .micro_batches = 8, .zero = 1, .sp = true}, 16,
                small_model(8, 256), 64);
  Cluster slow = small_cluster(4);
  for (auto& [n, b] : slow.levels[1].bandwidth.points) b /= 1e3;
  slow.levels[1].send_bandwidth /= 1e3;
  EXPECT_NE(explain(run, slow).causes[0].text.find("link between"), std::string::npos)
      << to_text(explain(run, slow));

  PlannedRun full = small_run({.pp = 4, .micro_batches = 16, .stages = {2, 8, 1, 1}}, 16,
                              small_model(12, 256), 64);
  EXPECT_NE(explain(full, small_cluster()).causes[0].text.find("stage 1 is the fullest"),
            std::string::npos)
      << to_text(explain(full, small_cluster()));

  Cluster tight = small_cluster();
  const Simulation s = predict(full, tight).simulation;
  tight.device.memory_bytes = static_cast<double>(s.memory_needed_bytes - 1);
  EXPECT_NE(explain(full, tight).causes[0].text.find("stage 1 does not fit"), std::string::npos);

  const PlannedRun wide =
      small_run({.dp = 2, .tp = 8, .micro_batches = 2, .sp = true}, 16, small_model(8, 256), 64);
  EXPECT_NE(explain(wide, small_cluster(4)).causes[0].text.find("tp 8 spans nodes of 4"),
            std::string::npos)
      << to_text(explain(wide, small_cluster(4)));
}

}  // namespace
}  // namespace myriad
