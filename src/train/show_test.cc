// What `show` prints reads back.
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/emit.h"
#include "passes/lower.h"
#include "train/show_layout.h"
#include "train/show_schedule.h"

namespace myriad {
namespace {

TEST(ScheduleText, ParsesBack) {
  for (const auto& [kind, stages, chunks, mbs] : {std::tuple(ScheduleKind::gpipe, 3, 1, 4),
                                                  {ScheduleKind::one_f_one_b, 4, 1, 7},
                                                  {ScheduleKind::interleaved, 2, 2, 5}}) {
    const Schedule s = make_schedule(kind, stages, chunks, mbs);
    EXPECT_EQ(parse_schedule("# a comment\n" + schedule_text(s, chunks)), s);
  }
  EXPECT_THROW(parse_schedule("stage 0: f0.0 g1\n"), Error);
}

TEST(LayoutText, ParsesBack) {
  const ModelConfig model{.hidden = 12,
                          .layers = 4,
                          .heads = 6,
                          .kv_heads = 3,
                          .head_dim = 4,
                          .ffn = 20,
                          .vocabulary = 23,
                          .norm_eps = 1e-5};
  const Emit emit = [&](int64_t rows) {
    return emit_model(model, rows, 6, DType::f32, OptimizerConfig());
  };
  for (const Plan& wanted :
       {Plan(),
        Plan{.dp = 3, .tp = 2, .pp = 2, .vpp = 2, .micro_batches = 2, .zero = 3, .sp = true}}) {
    const Plan plan = resolve(wanted, model.layers, 6);
    const LayoutListing listing = list_layouts(lower(emit, plan, {.rows = 6}), emit(1), plan);
    const std::string text = show(listing);
    const LayoutListing again = parse_layouts("# a comment\n" + text);
    EXPECT_EQ(again.rules, listing.rules);
    EXPECT_EQ(again.sections, listing.sections);
    EXPECT_EQ(show(again), text);
  }
  EXPECT_THROW(parse_layouts("mesh tp=2\nrules\nstates\n  w vd 4x3 f32 [v:dp] rank 0: 4x3\n"),
               Error);
  EXPECT_THROW(parse_layouts("mesh tp=2\nrules\nstates\n  w vd 4 f32 [whole] rank 0: 4\n"), Error);
  EXPECT_THROW(parse_layouts("mesh tp=2\nrules\nstates\n  w v 4 f32 [whole] rank 2: 4\n"), Error);
}

}  // namespace
}  // namespace myriad
