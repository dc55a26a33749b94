#include "ir/schedules.h"

#include <iterator>

#include "base/error.h"

namespace myriad {

namespace {

using enum ScheduleKind;

// clang-format off
constexpr ScheduleInfo kTable[] = {
    // kind, name, whether it needs several chunks a stage
    {gpipe, "gpipe", false},
    {one_f_one_b, "1f1b", false},
    {interleaved, "interleaved", true},
    {forward_only, "forward", false},
};
// clang-format on
constexpr int kOfPlans = static_cast<int>(forward_only);

constexpr bool in_order() {
  for (int i = 0; i < static_cast<int>(std::size(kTable)); ++i) {
    if (static_cast<int>(kTable[i].kind) != i) return false;
  }
  return std::size(kTable) == kOfPlans + 1;
}
static_assert(in_order(), "each schedule has an entry, in the order of ScheduleKind, forward last");

}  // namespace

std::span<const ScheduleInfo> plan_schedules() { return {kTable, kOfPlans}; }

std::vector<std::string> plan_schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleInfo& s : plan_schedules()) names.push_back(s.name);
  return names;
}

const ScheduleInfo* plan_schedule(std::string_view name) {
  for (const ScheduleInfo& s : plan_schedules()) {
    if (name == s.name) return &s;
  }
  return nullptr;
}

const char* default_schedule(int vpp) { return name_of(vpp > 1 ? interleaved : one_f_one_b); }

std::string schedule_rule() {
  const auto quoted = [](bool several_chunks) {
    std::vector<std::string> names;
    for (const ScheduleInfo& s : plan_schedules()) {
      if (s.several_chunks == several_chunks) names.push_back(fmt::format("`{}`", s.name));
    }
    return names;
  };
  const auto of_one = quoted(false), of_several = quoted(true);
  return fmt::format("{} ({} need vpp 1), {} (needs vpp 2 or more)", fmt::join(of_one, ", "),
                     of_one.size() == 2 ? "both" : "all", fmt::join(of_several, ", "));
}

const char* name_of(ScheduleKind kind) { return kTable[static_cast<int>(kind)].name; }

ScheduleKind schedule_named(std::string_view name) {
  std::string legal;
  for (const ScheduleInfo& s : kTable) {
    if (name == s.name) return s.kind;
    legal += fmt::format("{}{}", legal.empty() ? "" : ", ", s.name);
  }
  throw Error(fmt::format("there is no schedule \"{}\"", name), "", "schedules are " + legal);
}

}  // namespace myriad
