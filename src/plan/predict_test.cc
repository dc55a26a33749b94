#include "plan/predict.h"

#include <gtest/gtest.h>

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

TEST(Predict, TraceIsJsonWithASpanAnAction) {
  const Prediction p = predict(small_run({.pp = 2, .micro_batches = 2}, 2), small_cluster());
  const auto trace = nlohmann::json::parse(chrome_trace(p.simulation, p.program));
  EXPECT_GT(trace["traceEvents"].size(), 20u);
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
