// What the tests of planted faults share: names of checks, and who must see a fault.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ir/flight.h"

namespace myriad {

using Names = std::set<std::string>;

inline std::string text(const Names& names) {
  return names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, ", "));
}

// All of `by` see the fault (others may), none of `not_by` does, and nothing is seen without it.
inline void expect_seen(const Names& clean, const Names& got, const Names& by,
                        const Names& not_by) {
  EXPECT_TRUE(clean.empty()) << "the clean run is refused by " << text(clean);
  fmt::print("  caught by {}\n", text(got));
  for (const std::string& name : by)
    EXPECT_TRUE(got.count(name)) << name << " does not see it; seen by " << text(got);
  for (const std::string& name : not_by) EXPECT_FALSE(got.count(name)) << name << " sees it too";
}

// Of names of bodies and values.
inline bool like(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// The version that the finish of a start makes.
inline int finished_as(const LoweredBody& body, const Step& start) {
  for (const Step& step : body.steps) {
    if (step.kind == StepKind::finish && step.ins == start.outs) return step.outs[0];
  }
  return -1;
}

// Every rank continues with what it has itself where this step begins a collective. The number of
// steps stays, and with it the memory plan: the finish makes the same copy once more.
inline void keep_own(LoweredBody& body, Step& begin) {
  begin.what = MoveKind::slice;
  if (begin.kind != StepKind::start) return;
  for (Step& finish : body.steps) {
    if (finish.kind != StepKind::finish || finish.ins != begin.outs) continue;
    begin.kind = finish.kind = StepKind::move;
    finish.what = MoveKind::slice;
    finish.ins = begin.ins;
    begin.outs = finish.outs;
    return;
  }
  FAIL() << body.name << " does not finish it";
}

}  // namespace myriad
