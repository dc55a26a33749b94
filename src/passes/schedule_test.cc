// Schedules against a small simulation of their own, with passes of given length and messages that
// take no time: every schedule ends, its bubble is that of the formula, and no more micro-batches
// are in flight than promised.
#include "passes/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"

namespace myriad {
namespace {

using enum ScheduleKind;

// Runs a schedule with passes of given length, messages that take no time: the time of the last
// stage to end, -1 for a deadlock.
int simulate(const Schedule& schedule, int chunks, int forward_time, int backward_time) {
  const int p = static_cast<int>(schedule.size()), depth = p * chunks;
  std::map<std::tuple<bool, int, int>, int> ended;  // (forward, virtual stage, micro-batch)
  std::vector<size_t> next(p);
  std::vector<int> time(p);
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < p; ++s) {
      for (; next[s] < schedule[s].size(); ++next[s]) {
        const auto [forward, chunk, j] = schedule[s][next[s]];
        const int k = chunk * p + s, before = forward ? k - 1 : k + 1;
        int start = time[s];
        if (before >= 0 && before < depth) {
          const auto need = ended.find({forward, before, j});
          if (need == ended.end()) break;
          start = std::max(start, need->second);
        }
        if (!forward && !ended.contains({true, k, j})) return -1;
        time[s] = start + (forward ? forward_time : backward_time);
        ended[{forward, k, j}] = time[s];
        moved = true;
      }
    }
  }
  for (int s = 0; s < p; ++s) {
    if (next[s] < schedule[s].size()) return -1;
  }
  return *std::max_element(time.begin(), time.end());
}

int most_in_flight(const std::vector<Slot>& slots) {
  int now = 0, most = 0;
  for (const Slot& s : slots) most = std::max(most, now += s.forward ? 1 : -1);
  return most;
}

TEST(Schedule, OneChunk) {
  for (int p = 1; p <= 9; ++p) {
    for (int m = 1; m <= 20; ++m) {
      for (ScheduleKind kind : {gpipe, one_f_one_b}) {
        SCOPED_TRACE(fmt::format("{} {} stages, {} micro-batches", name_of(kind), p, m));
        const Schedule schedule = make_schedule(kind, p, 1, m);
        check_schedule(schedule, 1, m);
        for (int s = 0; s < p; ++s) {
          EXPECT_EQ(most_in_flight(schedule[s]), kind == gpipe ? m : std::min(m, p - s));
        }
        EXPECT_EQ(simulate(schedule, 1, 1, 1), 2 * (m + p - 1));  // bubble (p - 1) / m
        EXPECT_EQ(simulate(schedule, 1, 1, 2), 3 * (m + p - 1));
      }
    }
  }
}

// Bubble (p - 1) / (v m): Narayanan et al. 2021, section 2.2. A last group of r micro-batches costs
// at most (v - 1)(p - r) more passes in each direction.
TEST(Schedule, Interleaved) {
  for (int p = 1; p <= 9; ++p) {
    for (int v = 2; v <= 5; ++v) {
      for (int m = p; m <= 3 * p + 2; ++m) {
        SCOPED_TRACE(fmt::format("{} stages, {} chunks, {} micro-batches", p, v, m));
        const Schedule schedule = make_schedule(interleaved, p, v, m);
        check_schedule(schedule, v, m);
        for (int s = 0; s < p; ++s) {
          EXPECT_LE(most_in_flight(schedule[s]),
                    std::min(v * m, 2 * (p - s - 1) + (v - 1) * p + 1));
        }
        const int time = simulate(schedule, v, 1, 1), ideal = 2 * (v * m + p - 1);
        if (m % p == 0) {
          EXPECT_EQ(time, ideal);
          EXPECT_EQ(simulate(schedule, v, 1, 2), 3 * (v * m + p - 1));
        } else {
          EXPECT_GE(time, ideal);
          EXPECT_LE(time, ideal + 2 * (v - 1) * (p - m % p));
        }
      }
    }
  }
}

TEST(Schedule, InterleavedByHand) {
  const Schedule s = make_schedule(interleaved, 2, 2, 2);
  const std::vector<Slot> first = {{true, 0, 0},  {true, 0, 1},  {true, 1, 0},  {true, 1, 1},
                                   {false, 1, 0}, {false, 1, 1}, {false, 0, 0}, {false, 0, 1}};
  const std::vector<Slot> last = {{true, 0, 0}, {true, 0, 1},  {true, 1, 0},  {false, 1, 0},
                                  {true, 1, 1}, {false, 1, 1}, {false, 0, 0}, {false, 0, 1}};
  EXPECT_EQ(s[0], first);
  EXPECT_EQ(s[1], last);
}

TEST(Schedule, ForwardOnly) {
  for (int p = 1; p <= 6; ++p) {
    for (int v = 1; v <= 4; ++v) {
      for (int m = 1; m <= 14; ++m) {
        SCOPED_TRACE(fmt::format("{} stages, {} chunks, {} micro-batches", p, v, m));
        const Schedule schedule = make_schedule(forward_only, p, v, m);
        check_schedule(schedule, v, m, true);
        const int time = simulate(schedule, v, 1, 1);
        EXPECT_GE(time, v * m + p - 1);
        EXPECT_LE(time, v * m + p - 1 + (v - 1) * (m % p ? p - m % p : 0));
        for (size_t i = 1; i < schedule[0].size(); ++i) {
          const Slot &a = schedule[0][i - 1], &b = schedule[0][i];
          if (a.micro_batch / p == b.micro_batch / p) {
            EXPECT_LE(a.chunk, b.chunk);
          }
        }
      }
    }
  }
}

std::string refusal(ScheduleKind kind, int p, int v, int m) {
  try {
    make_schedule(kind, p, v, m);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Schedule, Refusals) {
  EXPECT_EQ(
      refusal(interleaved, 6, 2, 3),
      "schedule interleaved needs at least as many micro-batches as stages: micro_batches is 3, "
      "stages is 6\n"
      "  hint: micro_batches 6 or more, or stages 3 or fewer, or schedule 1f1b with chunks 1");
  EXPECT_EQ(refusal(interleaved, 2, 1, 4),
            "schedule interleaved needs several chunks a stage: chunks is 1\n  hint: chunks 2 or "
            "more, or schedule 1f1b");
  EXPECT_EQ(refusal(one_f_one_b, 2, 3, 4),
            "schedule 1f1b has one chunk a stage: chunks is 3\n  hint: chunks 1, or schedule "
            "interleaved");
  EXPECT_EQ(
      refusal(gpipe, 0, 1, 1),
      "schedule gpipe needs stages of at least 1: stages is 0\n  hint: stages 1 is the least");
  EXPECT_NE(refusal(gpipe, 1, 2, 1), "");
  EXPECT_NE(refusal(forward_only, 1, 0, 1), "");
  EXPECT_NE(refusal(forward_only, 1, 1, -3), "");
}

TEST(Schedule, Names) {
  for (ScheduleKind k : {gpipe, one_f_one_b, interleaved, forward_only})
    EXPECT_EQ(schedule_named(name_of(k)), k);
  try {
    schedule_named("1f2b");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(
        e.what(),
        "there is no schedule \"1f2b\"\n  hint: schedules are gpipe, 1f1b, interleaved, forward");
  }
}

std::string fault(const Schedule& schedule, int chunks, int m, bool only = false) {
  try {
    check_schedule(schedule, chunks, m, only);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(CheckSchedule, Faults) {
  const Slot f0{true, 0, 0}, f1{true, 0, 1}, b0{false, 0, 0}, b1{false, 0, 1};
  EXPECT_EQ(fault({{f0, b0, f1, b1}}, 1, 2), "");
  EXPECT_EQ(
      fault({{f0, f1, b0, b1}, {f0, f1, b1, b0}}, 1, 2),
      "schedule, stage 1: backward of chunk 0 micro-batch 1 stands where micro-batch 0 is due");
  EXPECT_EQ(
      fault({{f1, f0, b0, b1}}, 1, 2),
      "schedule, stage 0: forward of chunk 0 micro-batch 1 stands where micro-batch 0 is due");
  EXPECT_EQ(fault({{b0, f0, f1, b1}}, 1, 2),
            "schedule, stage 0: backward of chunk 0 micro-batch 0 comes before its forward");
  EXPECT_EQ(fault({{f0, f1, b0}}, 1, 2),
            "schedule, stage 0: chunk 0 has 2 forward and 1 backward passes of 2 micro-batches");
  EXPECT_EQ(fault({{f0, b0}}, 2, 1),
            "schedule, stage 0: chunk 1 has 0 forward and 0 backward passes of 1 micro-batches");
  EXPECT_NE(fault({{f0, f0, b0, b0}}, 1, 1), "");
  EXPECT_NE(fault({{f0, b0}}, 1, 1, true), "");
  EXPECT_NE(fault({{{true, 1, 0}}}, 1, 1), "");
}

}  // namespace
}  // namespace myriad
