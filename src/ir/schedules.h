// The names of pipeline schedules: one table, which plans, the run file's key, the layouts that are
// tried and passes/schedule.cc all read. What each one's order is, passes/schedule.cc says.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace myriad {

// clang-format off
enum class ScheduleKind : uint8_t {
  gpipe,         // all forward passes, then all backward passes
  one_f_one_b,   // a forward pass for each later stage, then one forward and one backward in turn
  interleaved,   // as 1f1b, over several chunks a stage, by groups of micro-batches
  forward_only,  // forward passes alone
};
// clang-format on

struct ScheduleInfo {
  ScheduleKind kind;
  const char* name;     // as a run file says it
  bool several_chunks;  // needs vpp of 2 or more, else runs at vpp 1 alone
};

// Those that a plan may name, the schedules of training steps: in the order of ScheduleKind.
std::span<const ScheduleInfo> plan_schedules();
std::vector<std::string> plan_schedule_names();
const ScheduleInfo* plan_schedule(std::string_view name);  // null: a plan may not name it
const char* default_schedule(int vpp);
// "`gpipe`, `1f1b` (both need vpp 1), `interleaved` (needs vpp 2 or more)".
std::string schedule_rule();

// Also of the one that no plan names, "forward".
const char* name_of(ScheduleKind kind);
ScheduleKind schedule_named(std::string_view name);  // throws Error with the legal names

}  // namespace myriad
