// The replay against what is known of schedules, with durations that are given and not measured.
#include "train/timeline.h"

#include <gtest/gtest.h>

#include "model/emit.h"
#include "passes/lower.h"

namespace myriad {
namespace {

Program program_of(Plan plan) {
  const ModelConfig model{.hidden = 12,
                          .layers = 8,
                          .heads = 6,
                          .kv_heads = 3,
                          .head_dim = 4,
                          .ffn = 20,
                          .vocabulary = 23,
                          .norm_eps = 1e-5};
  const Emit emit = [&](int64_t rows) {
    return emit_model(model, rows, 6, DType::f32, OptimizerConfig{});
  };
  return lower(emit, resolve(plan, 8, 8), {.rows = 8});
}

// Forward runs of layers take `forward` seconds, backward runs `backward`, all else nothing. `slow`
// ranks take twice that.
std::vector<std::vector<Stroke>> strokes_of(const Program& p, double forward, double backward,
                                            int slow = -1) {
  std::vector<std::vector<Stroke>> strokes;
  for (int r = 0; r < p.mesh.ranks(); ++r) {
    std::vector<Stroke>& of = strokes.emplace_back();
    const auto& actions = p.actions[p.stage_of(r)];
    for (size_t a = 0; a < actions.size(); ++a) {
      const bool run = actions[a].act == Act::run;
      const size_t steps = run ? std::max<size_t>(1, p.bodies[actions[a].body].steps.size()) : 1;
      const std::string name = run ? p.bodies[actions[a].body].name : "";
      double busy = name.starts_with("layer.forward")    ? forward
                    : name.starts_with("layer.backward") ? backward
                                                         : 0;
      if (r == slow) busy *= 2;
      for (size_t s = 0; s < steps; ++s)
        of.push_back({.action = static_cast<int>(a), .busy = s == 0 ? busy : 0});
    }
  }
  return strokes;
}

TEST(Replay, EqualStagesHaveTheBubbleOfTheirSchedule) {
  for (const auto& [schedule, vpp] :
       {std::pair{"gpipe", 1}, std::pair{"1f1b", 1}, std::pair{"interleaved", 2}}) {
    const Program p = program_of({.pp = 4, .vpp = vpp, .micro_batches = 8, .schedule = schedule});
    const Timeline t = replay(p, strokes_of(p, 1, 2));
    EXPECT_NEAR(t.bubble(), 3.0 / (vpp * 8), 1e-9) << schedule;
    for (double useful : t.useful) EXPECT_NEAR(useful, 2 * 8 * 3, 1e-9) << schedule;
    EXPECT_NEAR(t.seconds, t.useful[0] + t.idle[0], 1e-9) << schedule;
  }
}

TEST(Replay, RanksOfACollectiveWaitForTheSlowest) {
  const Program p = program_of({.tp = 2, .micro_batches = 2});
  const Timeline t = replay(p, strokes_of(p, 1, 2, 1));
  EXPECT_NEAR(t.seconds, 2 * 8 * 2 * 3, 1e-9);
  double waited[2] = {0, 0};
  for (int r = 0; r < 2; ++r) {
    for (const Bar& b : t.ranks[r]) waited[r] += b.kind == BarKind::wait ? b.end - b.start : 0;
  }
  EXPECT_NEAR(waited[0], 8 * 2 * 3, 1e-9);
  EXPECT_NEAR(waited[1], 0, 1e-9);
}

}  // namespace
}  // namespace myriad
