// The actions of whole programs, over a wide range of schedules.
#include "passes/actions.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/print.h"
#include "passes/check.h"
#include "passes/toy.h"

namespace myriad {
namespace {

// Lowers without the checker, whose result must be the same, and then asks it.
void expect_no_deadlock(Plan plan, int layers, LowerOptions options) {
  plan = resolve(plan, layers, options.rows);
  const Emit emit = [&](int64_t n) { return toy_model({.layers = layers}, n); };
  options.check = false;
  const Program program = lower(emit, plan, options);
  EXPECT_NO_THROW(check_program(program))
      << show(plan) << (options.forward_only ? ", forward only" : "");
}

// One send of a channel under way at a time is enough for every schedule.
TEST(Actions, NoScheduleDeadlocksWithOneSendOfAChannelUnderWay) {
  for (int pp = 1; pp <= 6; ++pp) {
    for (int vpp = 1; vpp <= 3; ++vpp) {
      for (int m = 1; m <= 14; ++m) {
        for (const char* schedule : {"gpipe", "1f1b", "interleaved"}) {
          const bool interleaved = std::string(schedule) == "interleaved";
          if (interleaved != (vpp > 1) || (interleaved && m < pp)) continue;
          const Plan plan{.pp = pp, .vpp = vpp, .micro_batches = m, .schedule = schedule};
          expect_no_deadlock(plan, pp * vpp, {.rows = m});
          if (m % 5 == 0) expect_no_deadlock(plan, pp * vpp, {.rows = m, .forward_only = true});
        }
      }
    }
  }
  expect_no_deadlock({.pp = 12, .vpp = 2, .micro_batches = 19}, 24, {.rows = 19});
  expect_no_deadlock({.pp = 16, .micro_batches = 40}, 16, {.rows = 40});
}

TEST(Actions, UnevenStagesAndRowsDoNotDeadlock) {
  expect_no_deadlock({.pp = 3, .micro_batches = 5, .stages = {1, 5, 2}}, 8, {.rows = 7});
  expect_no_deadlock({.pp = 2, .vpp = 2, .micro_batches = 3, .stages = {1, 4, 1, 2}}, 8,
                     {.rows = 4});
  expect_no_deadlock({.dp = 2, .pp = 4, .vpp = 2, .micro_batches = 7, .zero = 3}, 9, {.rows = 20});
}

TEST(Actions, CheckedAndUncheckedProgramsAreTheSame) {
  for (const Plan& wanted :
       {Plan{.pp = 4, .micro_batches = 6}, Plan{.pp = 4, .vpp = 2, .micro_batches = 8},
        Plan{.pp = 3, .vpp = 3, .micro_batches = 4}}) {
    const Plan plan = resolve(wanted, 9, 8);
    const Emit emit = [&](int64_t n) { return toy_model({.layers = 9}, n); };
    EXPECT_EQ(print_program(lower(emit, plan, {.rows = 8, .check = true})),
              print_program(lower(emit, plan, {.rows = 8, .check = false})))
        << show(plan);
  }
}

}  // namespace
}  // namespace myriad
