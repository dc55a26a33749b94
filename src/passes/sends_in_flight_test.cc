// The limit on sends in flight follows from the schedule; the checker of whole programs must agree.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/print.h"
#include "passes/actions.h"
#include "passes/check.h"
#include "passes/toy.h"

namespace myriad {
namespace {

// The least power of two with which the checker lets the program pass.
int limit_that_passes(const LoweredPieces& pieces, const Plan& plan, const LowerOptions& options,
                      Program& program) {
  for (int limit = 1;; limit *= 2) {
    make_actions(pieces, plan, options, schedule_of(plan, options), limit, program);
    try {
      check_program(program);
      return limit;
    } catch (const Error&) {
      if (limit > plan.micro_batches) throw;
    }
  }
}

void agree(Plan plan, int layers, const LowerOptions& options) {
  plan = resolve(plan, layers, options.rows);
  const Emit emit = [&](int64_t n) { return toy_model({.layers = layers}, n); };
  Lowering l(plan, options);
  run_passes(l, emit);
  EXPECT_EQ(sends_in_flight(schedule_of(plan, options), plan.vpp),
            limit_that_passes(l.pieces, plan, options, l.program))
      << show(plan) << (options.forward_only ? ", forward only" : "");
}

TEST(SendsInFlight, AreAsManyAsTheCheckerNeeds) {
  for (int pp = 1; pp <= 6; ++pp) {
    for (int vpp = 1; vpp <= 3; ++vpp) {
      for (int m = 1; m <= 14; ++m) {
        const LowerOptions options{.rows = m};
        for (const char* schedule : {"gpipe", "1f1b", "interleaved"}) {
          const bool interleaved = std::string(schedule) == "interleaved";
          if (interleaved != (vpp > 1) || (interleaved && m < pp)) continue;
          const Plan plan{.pp = pp, .vpp = vpp, .micro_batches = m, .schedule = schedule};
          agree(plan, pp * vpp, options);
          if (m % 5 == 0) agree(plan, pp * vpp, {.rows = m, .forward_only = true});
        }
      }
    }
  }
}

TEST(SendsInFlight, UnevenStagesAndRowsChangeNothing) {
  agree({.pp = 3, .micro_batches = 5, .stages = {1, 5, 2}}, 8, {.rows = 7});
  agree({.pp = 2, .vpp = 2, .micro_batches = 3, .stages = {1, 4, 1, 2}}, 8, {.rows = 4});
  agree({.dp = 2, .pp = 4, .vpp = 2, .micro_batches = 7, .zero = 3}, 9, {.rows = 20});
}

// Whether a program is checked does not change it.
TEST(SendsInFlight, CheckedAndUncheckedProgramsAreTheSame) {
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
