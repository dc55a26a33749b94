// What the checker refuses of transfers that start and finish apart.
#include "passes/check_flight.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/difference.h"
#include "ir/print.h"
#include "passes/check.h"
#include "passes/memory.h"

namespace myriad {
namespace {

constexpr const char* kProgram = R"(program stages 1
mesh dp 2
graph 0 f32
  value w "d" 6 f32
  value d.w "d" 6 f32
  value d.w2 "d" 6 f32
  value w/new "d" 6 f32
body reduce piece 0 graph 0
  inputs
  state g:w of d.w [sum:dp]
  v0 d.w [sum:dp] = read g:w
  v1 d.w [whole] in_flight = start all_reduce [dp] (v0)
  outputs v1
body update piece 0 graph 0
  inputs v0 d.w [whole] in_flight
  state p:w of w [whole]
  v1 w [whole] = read p:w
  v2 d.w [whole] = finish all_reduce [dp] (v0)
  op 0 w/new = add "d,d->d" (w, d.w) [d=6]
  v3 w/new [whole] = run 0 (v1, v2)
  write p:w (v3)
  outputs
buffer g of reduce v1
buffer g2 of update v2
state 0 p:w of update use 0 stages 0
state 1 g:w of reduce use 0 stages 0
stage 0
  run reduce -> (g) states 1
  run update (g) states 0
  zero states 1
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

// Why the program is refused once `from` stands as `to`; empty: it is not.
std::string refusal(const std::string& from, const std::string& to,
                    const std::string& text = kProgram) {
  const Program p = parse_program(replaced(text, from, to));
  try {
    check_program(p);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

#define EXPECT_HAS(text, part) EXPECT_PRED2(has, text, part)
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(CheckFlight, AProgramThatIsRightReadsBackAndPasses) {
  const Program p = parse_program(kProgram);
  check_program(p);
  EXPECT_EQ(difference(p, parse_program(print_program(p))), "");
}

TEST(CheckFlight, NothingReadsBeforeTheFinish) {
  EXPECT_HAS(refusal("run 0 (v1, v2)", "run 0 (v1, v0)"), "d.w: it is read before it is finished");
  EXPECT_HAS(refusal("buffer g of reduce v1", "buffer g of update v2"),
             "its body and its buffer disagree on whether it is in flight");
  EXPECT_HAS(refusal("run reduce -> (g) states 1\n", "feed -> (g)\n"),
             "what is in flight stays on its rank");
}

TEST(CheckFlight, EveryStartHasOneFinish) {
  EXPECT_HAS(refusal("  run update (g) states 0\n  zero states 1\n", ""),
             "g: it is never finished");
  EXPECT_HAS(refusal("  zero states 1\n", "  run update (g) states 0\n"),
             "g: it is finished twice, or before it is started");
  EXPECT_HAS(refusal("  run reduce -> (g) states 1\n  run update (g) states 0\n",
                     "  run update (g) states 0\n  run reduce -> (g) states 1\n"),
             "g is read before it is written");
  EXPECT_HAS(refusal("finish all_reduce [dp] (v0)", "finish all_gather [dp] (v0)"),
             "g: its finish is not that of its start");
  EXPECT_HAS(refusal("  outputs v1\n",
                     "  v2 d.w [whole] = finish all_reduce [dp] (v1)\n"
                     "  outputs v1\n"),
             "a body hands on in flight what it has started, once");
  EXPECT_HAS(refusal("v1 d.w [whole] in_flight =", "v1 d.w [whole] ="),
             "a start makes a version in flight");
}

TEST(CheckFlight, NothingOverwritesWhatIsSent) {
  EXPECT_HAS(refusal("  run update (g) states 0\n", "  zero states 1\n  run update (g) states 0\n"),
             "state 1 (g:w) is overwritten while it is sent");
  EXPECT_HAS(refusal("  outputs v1\n",
                     "  op 0 d.w2 = add \"d,d->d\" (d.w, d.w) [d=6]\n"
                     "  v2 d.w2 [sum:dp] = run 0 (v0, v0)\n"
                     "  write g:w (v2)\n"
                     "  outputs v1\n"),
             "g:w is overwritten while it is sent");
}

// Two stages: stage 0 sends after the finish, stage 1 receives before it.
TEST(CheckFlight, AFinishOverStagesIsWaitedForTogether) {
  const std::string text = R"(program stages 2
mesh pp 2
graph 0 f32
  value x "d" 6 f32
body begin piece 0 graph 0
  inputs v0 x [sum:pp]
  v1 x [whole] in_flight = start all_reduce [pp] (v0)
  outputs v1
body end piece 0 graph 0
  inputs v0 x [whole] in_flight
  v1 x [whole] = finish all_reduce [pp] (v0)
  outputs v1
buffer x0 of begin v0
buffer x1 of begin v0
buffer f0 of begin v1
buffer f1 of begin v1
buffer y0 of end v1
buffer y1 of end v1
buffer z of end v1
stage 0
  feed -> (x0)
  run begin (x0) -> (f0)
  run end (f0) -> (y0)
  send (y0) to stage 1 channel 0
  wait (y0) to stage 1 channel 0
stage 1
  feed -> (x1)
  run begin (x1) -> (f1)
  run end (f1) -> (y1)
  recv -> (z) from stage 0 channel 0
)";
  EXPECT_EQ(refusal("mesh", "mesh", text), "");
  EXPECT_HAS(refusal("  run end (f1) -> (y1)\n  recv -> (z) from stage 0 channel 0\n",
                     "  recv -> (z) from stage 0 channel 0\n  run end (f1) -> (y1)\n", text),
             "deadlock: stage 0 waits in run end for stage 1");
}

// The sums lie in a buffer in flight until the update; their source is a state.
TEST(CheckFlight, TheResultLiesWhereItWasReceived) {
  const Program p = parse_program(kProgram);
  const MemoryPlan plan = plan_memory(p, 0, {});
  EXPECT_EQ(plan.actions[0].versions[1], plan.buffers[0]);
  EXPECT_EQ(plan.actions[1].versions[2], plan.buffers[0]);
  EXPECT_EQ(plan.state_bytes, 128);
  EXPECT_EQ(plan.peak_bytes, 256);  // and w/new
}

// What `begin` sends from is its own, but `other` runs before the transfer is finished.
TEST(CheckFlight, TheSourceKeepsItsMemoryUntilTheFinish) {
  const Program p = parse_program(R"(program stages 1
mesh dp 2
graph 0 f32
  value x "d" 6 f32
  value twice "d" 6 f32
body begin piece 0 graph 0
  inputs v0 x [sum:dp]
  op 0 twice = add "d,d->d" (x, x) [d=6]
  v1 twice [sum:dp] = run 0 (v0, v0)
  v2 twice [whole] in_flight = start all_reduce [dp] (v1)
  outputs v2
body other piece 0 graph 0
  inputs v0 x [sum:dp]
  op 0 twice = add "d,d->d" (x, x) [d=6]
  v1 twice [sum:dp] = run 0 (v0, v0)
  outputs v1
body end piece 0 graph 0
  inputs v0 twice [whole] in_flight
  v1 twice [whole] = finish all_reduce [dp] (v0)
  outputs v1
buffer x of begin v0
buffer sum of begin v2
buffer more of other v1
buffer y of end v1
stage 0
  feed -> (x)
  run begin (x) -> (sum)
  run other (x) -> (more)
  run end (sum) -> (y)
)");
  check_program(p);
  const MemoryPlan plan = plan_memory(p, 0, {});
  const int64_t source = plan.actions[1].versions[1];
  EXPECT_NE(plan.buffers[2], source);
  EXPECT_NE(plan.buffers[1], source);
  EXPECT_EQ(plan.buffers[3], plan.buffers[1]) << "finished in place";
  EXPECT_EQ(plan.peak_bytes, 4 * 64);  // x, the source, the sum, and what `other` makes
}

}  // namespace
}  // namespace myriad
