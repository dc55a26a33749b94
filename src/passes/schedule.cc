// Schedules as orders of slots. `one_direction` lists the passes of one direction, `in_turn` merges
// forward and backward: some forward passes to fill the pipeline (`warm`), then one of each in
// turn, then the backward passes that are left. The kinds of schedule differ in how many are warm
// alone.
#include "passes/schedule.h"

#include <algorithm>

#include "base/error.h"

namespace myriad {

namespace {

using enum ScheduleKind;
using Slots = std::vector<Slot>;

// All passes of one direction: groups of `group` micro-batches; within a group chunk by chunk,
// forward in order of depth.
Slots one_direction(bool forward, int group, int chunks, int micro_batches) {
  Slots out;
  for (int lo = 0; lo < micro_batches; lo += group) {
    for (int c = 0; c < chunks; ++c) {
      const int chunk = forward ? c : chunks - 1 - c;
      for (int j = lo; j < std::min(lo + group, micro_batches); ++j)
        out.push_back({forward, chunk, j});
    }
  }
  return out;
}

// `warm` forward passes, then one forward and one backward in turn, then the backward passes that
// are left.
Slots in_turn(const Slots& forward, const Slots& backward, int warm) {
  const size_t w = std::min(static_cast<size_t>(warm), forward.size());
  Slots out(forward.begin(), forward.begin() + w);
  for (size_t i = w; i < forward.size(); ++i) {
    out.push_back(forward[i]);
    out.push_back(backward[i - w]);
  }
  out.insert(out.end(), backward.end() - w, backward.end());
  return out;
}

Slots slots_of(ScheduleKind kind, int stages, int stage, int chunks, int micro_batches) {
  const int later = stages - 1 - stage;
  const auto passes = [&](bool forward, int count) {
    return one_direction(forward, stages, chunks, count);
  };
  switch (kind) {
    case gpipe:
      return in_turn(passes(true, micro_batches), passes(false, micro_batches), micro_batches);
    case one_f_one_b:
      return in_turn(passes(true, micro_batches), passes(false, micro_batches), later);
    case forward_only:
      return passes(true, micro_batches);
    case interleaved:
      break;
  }
  const int padded = (micro_batches + stages - 1) / stages * stages;
  Slots out =
      in_turn(passes(true, padded), passes(false, padded), 2 * later + (chunks - 1) * stages);
  std::erase_if(out, [&](const Slot& s) { return s.micro_batch >= micro_batches; });
  return out;
}

void refuse_bad_numbers(ScheduleKind kind, int stages, int chunks, int micro_batches) {
  const std::string name = name_of(kind);
  const auto at_least_one = [&](const char* what, int n) {
    if (n < 1) {
      throw Error(fmt::format("schedule {} needs {} of at least 1: {} is {}", name, what, what, n),
                  "", fmt::format("{} 1 is the least", what));
    }
  };
  at_least_one("stages", stages);
  at_least_one("chunks", chunks);
  at_least_one("micro_batches", micro_batches);
  const ScheduleInfo* of_plans = plan_schedule(name);
  if (of_plans && !of_plans->several_chunks && chunks > 1) {
    throw Error(fmt::format("schedule {} has one chunk a stage: chunks is {}", name, chunks), "",
                fmt::format("chunks 1, or schedule {}", default_schedule(2)));
  }
  if (kind != interleaved) return;
  if (chunks == 1) {
    throw Error("schedule interleaved needs several chunks a stage: chunks is 1", "",
                "chunks 2 or more, or schedule 1f1b");
  }
  if (micro_batches < stages) {
    throw Error(
        fmt::format("schedule interleaved needs at least as many micro-batches as stages: "
                    "micro_batches is {}, "
                    "stages is {}",
                    micro_batches, stages),
        "",
        fmt::format(
            "micro_batches {} or more, or stages {} or fewer, or schedule 1f1b with chunks 1",
            stages, micro_batches));
  }
}

}  // namespace

Schedule make_schedule(ScheduleKind kind, int stages, int chunks, int micro_batches) {
  refuse_bad_numbers(kind, stages, chunks, micro_batches);
  Schedule out;
  for (int s = 0; s < stages; ++s) out.push_back(slots_of(kind, stages, s, chunks, micro_batches));
  return out;
}

void check_schedule(const Schedule& schedule, int chunks, int micro_batches, bool forward_only) {
  for (size_t s = 0; s < schedule.size(); ++s) {
    std::vector<int> forwards(chunks), backwards(chunks);
    for (const Slot& slot : schedule[s]) {
      const auto refuse = [&](const std::string& why) {
        throw Error(fmt::format("schedule, stage {}: {} of chunk {} micro-batch {} {}", s,
                                slot.forward ? "forward" : "backward", slot.chunk, slot.micro_batch,
                                why));
      };
      if (slot.chunk < 0 || slot.chunk >= chunks)
        refuse(fmt::format("is beyond the {} chunks", chunks));
      if (slot.micro_batch < 0 || slot.micro_batch >= micro_batches) {
        refuse(fmt::format("is beyond the {} micro-batches", micro_batches));
      }
      if (!slot.forward && forward_only) refuse("has no place in a forward-only schedule");
      int& next = (slot.forward ? forwards : backwards)[slot.chunk];
      if (slot.micro_batch != next) refuse(fmt::format("stands where micro-batch {} is due", next));
      if (!slot.forward && next >= forwards[slot.chunk]) refuse("comes before its forward");
      ++next;
    }
    for (int c = 0; c < chunks; ++c) {
      const int passes = forward_only ? forwards[c] : std::min(forwards[c], backwards[c]);
      if (passes == micro_batches) continue;
      throw Error(fmt::format(
          "schedule, stage {}: chunk {} has {} forward and {} backward passes of {} micro-batches",
          s, c, forwards[c], backwards[c], micro_batches));
    }
  }
}

}  // namespace myriad
