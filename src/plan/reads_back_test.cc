// Programs of whole models come back equal from their text.
#include <gtest/gtest.h>

#include "ir/difference.h"
#include "ir/print.h"
#include "model/emit.h"
#include "model/testing.h"
#include "passes/lower.h"

namespace myriad {
namespace {

struct Case {
  const char* model;  // of tests/golden
  DType dtype;
  Plan plan;
};

Program program_of(const Case& c, bool forward_only) {
  const ModelConfig model = read_config(golden(c.model), c.model);
  const Plan plan = resolve(c.plan, static_cast<int>(model.layers), 8);
  return lower([&](int64_t rows) { return emit_model(model, rows, 24, c.dtype, {}, 8); }, plan,
               {.rows = 8, .forward_only = forward_only});
}

TEST(ReadsBack, ProgramsOfLayouts) {
  const Case kCases[] = {
      {"gpt2", DType::f32, {}},
      {"llama_gqa", DType::bf16, {.dp = 2, .tp = 2, .zero = 3, .sp = true}},
      {"llama_packed", DType::bf16, {.dp = 2, .cp = 2, .micro_batches = 2, .zero = 1}},
      {"llama_tied_llama3rope", DType::f32, {.tp = 3, .pp = 2, .micro_batches = 3}},
      {"qwen3_yarn",
       DType::f64,
       {.pp = 2, .vpp = 2, .micro_batches = 4, .recompute = Recompute::selective}},
      {"mixtral_micro",
       DType::f32,
       {.pp = 2, .micro_batches = 3, .recompute = Recompute::full}},  // bodies of 2 and of 3 rows
      {"mixtral_capacity", DType::bf16, {.dp = 2, .cp = 2, .ep = 4}},
      {"mixtral",
       DType::bf16,
       {.dp = 2, .tp = 2, .micro_batches = 2, .zero = 2, .ep = 2, .etp = 2}},
      {"qwen3_moe",
       DType::bf16,
       {.dp = 8, .ep = 8, .dispatch = Dispatch::node_relay, .ranks_per_node = 2}},
      {"qwen3_moe",
       DType::f32,
       {.dp = 2, .tp = 2, .ep = 4, .dispatch = Dispatch::node_gather, .ranks_per_node = 2}},
      {"mixtral",
       DType::f32,
       {.dp = 4, .ep = 4, .dispatch = Dispatch::node_relay, .ranks_per_node = 3}},  // uneven nodes
      {"telechat2", DType::bf16, {.dp = 2, .tp = 2, .pp = 2, .zero = 3}},
  };
  for (const Case& c : kCases) {
    for (const bool forward_only : {false, true}) {
      SCOPED_TRACE(fmt::format("{}: {}", c.model, show(c.plan)));
      const Program program = program_of(c, forward_only);
      const std::string text = print_program(program);
      const Program back = parse_program(text);
      EXPECT_EQ(difference(back, program), "");
      EXPECT_EQ(print_program(back), text);
    }
  }
}

}  // namespace
}  // namespace myriad
