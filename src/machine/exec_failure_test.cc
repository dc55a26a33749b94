// A kernel that fails ends the step with a reason, on all ranks and at once; nothing aborts.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "machine/exec.h"

namespace myriad {
namespace {

// Two ranks hold half of x "bd" each, add it to itself and gather the sums.
Program doubled() {
  Program p;
  p.mesh = Mesh({{"dp", 2}});
  auto graph = std::make_shared<Graph>();
  const int x = graph->add({.name = "x", .labels = "bd", .sizes = {4, 8}});
  const int y = graph->add({.name = "y", .labels = "bd", .sizes = {4, 8}});
  Layout whole(2), halves(2);
  halves.cuts[0] = {0};
  LoweredBody body;
  body.name = "layer.forward";
  body.ops = {{.row = Row::add,
               .ins = {x, x},
               .outs = {y},
               .in_labels = {"bd", "bd"},
               .out_labels = {"bd"},
               .in_types = {DType::f32, DType::f32},
               .out_types = {DType::f32},
               .size = {"bd", {4, 8}}}};
  body.versions = {{x, halves}, {y, halves}, {y, whole}};
  body.steps = {{.kind = StepKind::run, .op = 0, .ins = {0, 0}, .outs = {1}, .cuts = {{0}, {}}},
                {.kind = StepKind::move,
                 .ins = {1},
                 .outs = {2},
                 .what = MoveKind::all_gather,
                 .atoms = {0}}};
  body.inputs = {0};
  body.outputs = {2};
  body.graph = std::move(graph);
  p.bodies = {std::move(body)};
  p.buffers = {{"x", 0, 0}, {"y", 0, 2}};
  p.actions = {
      {{.act = Act::feed, .outs = {0}},
       {.act = Act::run, .body = 0, .unit = 3, .micro_batch = 1, .ins = {0}, .outs = {1}}}};
  return p;
}

MemoryPlan plan() {
  MemoryPlan plan;
  plan.buffers = {0, 128};
  plan.actions.resize(2);
  plan.actions[1] = {{0, 64, 128}, {0, 0}};
  plan.peak_bytes = 256;
  return plan;
}

std::atomic<bool> broken = false;

// The fast kernel, but on the ranks whose part does not begin at 0 while the device is broken.
KernelStatus add_unless_broken(const KernelCall& call) {
  if (broken && call.ins[0].lo[0] > 0) return KernelStatus::device_error;
  return choices(Row::add)[0].run(call);
}

const KernelChoice& planted(const Op& op, const LabelSizes& local, DType real, KernelSet set) {
  static const KernelChoice add{"planted.add", choices(Row::add)[0].declines, nullptr,
                                add_unless_broken};
  return op.row == Row::add ? add : choose(op, local, real, set);
}

void feed(int rank, const Value&, int, const Tensor& to) {
  for (int64_t i = 0; i < to.elements(); ++i) to.as<float>()[i] = static_cast<float>(rank + 1);
}

struct Ran {
  Outcome first, again;
  double seconds;
};

Ran run(Pool& pool, bool fails, std::vector<float>* gathered = nullptr) {
  const Program program = doubled();
  Arenas arenas({256, 256});
  Executor executor(program, {plan(), plan()}, arenas, pool,
                    {.kernels = {KernelSet::fast, planted}});
  if (gathered) {
    executor.set_tap([&](int rank, const Action&, int, const Tensor& y) {
      if (rank == 0) gathered->assign(y.as<float>(), y.as<float>() + y.elements());
    });
  }
  broken = fails;
  const auto start = std::chrono::steady_clock::now();
  Ran ran;
  ran.first = executor.step(feed);
  broken = false;
  ran.again = executor.step(feed);
  ran.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return ran;
}

TEST(ExecFailure, AStepWithoutFailureIsOk) {
  Pool pool(2);
  std::vector<float> y;
  const Ran ran = run(pool, false, &y);
  EXPECT_TRUE(ran.first.ok()) << ran.first.reason;
  EXPECT_TRUE(ran.again.ok()) << ran.again.reason;
  ASSERT_EQ(y.size(), 32u);
  EXPECT_EQ(y[0], 2);
  EXPECT_EQ(y[31], 4);
}

TEST(ExecFailure, AStepReturnsTheFailureOfAKernel) {
  for (int workers : {1, 2, 3}) {
    Pool pool(workers);
    const Ran ran = run(pool, true);
    EXPECT_EQ(ran.first.reason,
              "a device error on rank 1 in layer.forward (unit 3, micro-batch 1): "
              "y = add \"bd,bd->bd\", x, x");
    EXPECT_EQ(ran.again.reason, ran.first.reason) << "the executor stays failed";
    EXPECT_LT(ran.seconds, 20) << "rank 0, which waits for rank 1, is not left to the stall";
  }
}

}  // namespace
}  // namespace myriad
