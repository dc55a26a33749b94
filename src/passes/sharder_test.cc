// What a sharder moves, and where.
#include "passes/sharder.h"

#include <gtest/gtest.h>

#include "ir/builder.h"
#include "ir/rows.h"

namespace myriad {
namespace {

// y = cast(sum over d of x), d cut in two, y free; the kinds of steps in order.
std::vector<std::string> steps_of(DType from, DType to) {
  const Mesh mesh({{"tp", 2}});
  const Wanted wanted = [&](const Value& v) {
    Want w;
    if (v.name == "x") {
      w.asked = true;
      w.cuts[1] = AtomList{};
      w.cuts[1].push(0);
    }
    return w;
  };
  auto graph = std::make_shared<Graph>();
  Body body{.name = "body", .ops = {}, .outputs = {}};
  Builder b(*graph, body);
  const int x = b.input("x", "bd", {6, 8}, from);
  const int y = b.cast(b.contract("bd->b", {x}, "sum"), to, "y");
  LayoutMemory memory;
  std::map<StateName, Layout> states;
  const LoweredBody lowered =
      Sharder(mesh, wanted, memory, graph, 0, states, 0).lower(body, {}, {{y, std::nullopt}});
  std::vector<std::string> out;
  for (const Step& s : lowered.steps) {
    if (s.kind == StepKind::run)
      out.push_back(info(lowered.ops[static_cast<size_t>(s.op)].row).name);
    if (s.kind == StepKind::move) out.push_back(name_of(s.what));
  }
  return out;
}

using Steps = std::vector<std::string>;

TEST(Sharder, ASumIsSettledBeforeItIsMadeNarrow) {
  EXPECT_EQ(steps_of(DType::f32, DType::bf16), (Steps{"contract", "all_reduce", "cast"}));
}

TEST(Sharder, APendingSumMayBeMadeWide) {
  EXPECT_EQ(steps_of(DType::bf16, DType::f32), (Steps{"contract", "cast"})) << "y stays pending";
}

}  // namespace
}  // namespace myriad
