// What the checker accepts and refuses, on pipelines of a small hand-written model. Programs of all
// schedules must pass; then one thing is broken at a time (a message, an order, a receive that
// comes too early, a layout), and the refusal must name it.
#include "passes/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "ir/print.h"
#include "passes/schedule.h"

namespace myriad {
namespace {

// Layers y = w x over two ranks a stage: y, d.x and the gradient sum of w, which stays pending
// until the update.
constexpr const char* kBodies = R"(
graph 0 f32
  value x "bsd" 4,2,6 f32
  value w "d" 6 f32
  value y "bsd" 4,2,6 f32
  value d.y "bsd" 4,2,6 f32 gradient_of y
  value d.x "bsd" 4,2,6 f32 gradient_of x
  value d.w "d" 6 f32 gradient_of w
  value w/new "d" 6 f32
body forward piece 0 graph 0
  inputs v0 x [b:dp]
  state p:w of w [whole]
  v1 w [whole] = read p:w
  op 0 y = contract "bsd,d->bsd" (x, w) [b=4 s=2 d=6]
  v2 y [b:dp] = run 0 (v0, v1) cut [b:dp]
  outputs v2
body backward piece 0 graph 0 role backward
  inputs v0 d.y [b:dp], v1 x [b:dp]
  state p:w of w [whole]
  state g:w of d.w [sum:dp]
  v2 w [whole] = read p:w
  op 0 d.x = contract "bsd,d->bsd" (d.y, w) [b=4 s=2 d=6]
  v3 d.x [b:dp] = run 0 (v0, v2) cut [b:dp]
  op 1 d.w = contract "bsd,bsd->d" (d.y, x) [b=4 s=2 d=6]
  v4 d.w [sum:dp] = run 1 (v0, v1) cut [b:dp]
  accum g:w (v4)
  outputs v3
body update piece 0 graph 0 role update
  inputs
  state p:w of w [whole]
  state g:w of d.w [sum:dp]
  v0 w [whole] = read p:w
  v1 d.w [sum:dp] = read g:w
  v2 d.w [whole] = move all_reduce [dp] (v1)
  op 0 w/new = add "d,d->d" (w, d.w) [d=6]
  v3 w/new [whole] = run 0 (v0, v2)
  write p:w (v3)
  outputs
)";
enum Bodies { kForward, kBackward, kUpdate };

// When the wait of a send comes: before the next send on its channel, or when all passes are done.
enum class Waits { next, end };

// One unit a virtual stage. The input and the gradient of the last output are fed.
class Maker {
 public:
  Maker(const Schedule& schedule, int chunks, Waits waits = Waits::next)
      : stages_(static_cast<int>(schedule.size())), depth_(stages_ * chunks), waits_(waits) {
    program_ = parse_program(
        fmt::format("program stages {}\nmesh pp {}, dp 2\n{}", stages_, stages_, kBodies));
    program_.actions.resize(stages_);
    for (int k = 0; k < depth_; ++k) {
      program_.states.push_back({k, *state_named("p:w"), kForward, 0, {k % stages_}});
      program_.states.push_back({k, *state_named("g:w"), kBackward, 1, {k % stages_}});
    }
    for (int s = 0; s < stages_; ++s) {
      for (const Slot& slot : schedule[s]) pass(s, slot);
      for (const auto& [channel, action] : open_) add(s, action);
      open_.clear();
      for (int k = s; k < depth_; k += stages_) {
        add(s, {.act = Act::run, .body = kUpdate, .unit = k, .states = {2 * k, 2 * k + 1}});
      }
    }
  }

  Program program() { return std::move(program_); }

 private:
  void add(int s, Action a) { program_.actions[s].push_back(std::move(a)); }

  // y of unit k (-1: the input), d.x of unit k (the depth: the gradient of the last y).
  int buffer(bool forward, int k, int j) {
    const std::string name = fmt::format("{}/L{}.mb{}", forward ? "y" : "d.x", k, j);
    const auto [at, is_new] = buffers_.try_emplace(name, static_cast<int>(program_.buffers.size()));
    if (is_new) program_.buffers.push_back({name, forward ? kForward : kBackward, forward ? 2 : 3});
    return at->second;
  }

  void receive(int s, bool forward, int k, int j) {
    const int source = forward ? k - 1 : k + 1, b = buffer(forward, source, j);
    if (source < 0 || source == depth_)
      return add(s, {.act = Act::feed, .micro_batch = j, .outs = {b}});
    if (stages_ == 1) return;
    add(s, {.act = Act::recv,
            .micro_batch = j,
            .outs = {b},
            .peer = source % stages_,
            .channel = channel(forward, source)});
  }

  int channel(bool forward, int source) const { return 2 * source + !forward; }

  void send(int s, bool forward, int k, int j) {
    const int to = forward ? k + 1 : k - 1, c = channel(forward, k);
    if (to < 0 || to == depth_ || stages_ == 1) return;
    const auto previous = open_.find(c);
    if (previous != open_.end() && waits_ == Waits::next) {
      add(s, previous->second);
      open_.erase(previous);
    }
    Action a{.act = Act::send,
             .micro_batch = j,
             .ins = {buffer(forward, k, j)},
             .peer = to % stages_,
             .channel = c};
    add(s, a);
    a.act = Act::wait;
    open_.emplace(c, std::move(a));
  }

  void pass(int s, const Slot& slot) {
    const int k = slot.chunk * stages_ + s, j = slot.micro_batch;
    receive(s, slot.forward, k, j);
    if (slot.forward) {
      add(s, {.act = Act::run,
              .body = kForward,
              .unit = k,
              .micro_batch = j,
              .ins = {buffer(true, k - 1, j)},
              .outs = {buffer(true, k, j)},
              .states = {2 * k}});
    } else {
      add(s, {.act = Act::run,
              .body = kBackward,
              .unit = k,
              .micro_batch = j,
              .ins = {buffer(false, k + 1, j), buffer(true, k - 1, j)},
              .outs = {buffer(false, k, j)},
              .states = {2 * k, 2 * k + 1},
              .first = j == 0});
    }
    send(s, slot.forward, k, j);
  }

  int stages_, depth_;
  Waits waits_;
  Program program_;
  std::map<std::string, int> buffers_;
  std::multimap<int, Action> open_;
};

Program made(ScheduleKind kind, int p, int v, int m, Waits waits = Waits::next) {
  return Maker(make_schedule(kind, p, v, m), v, waits).program();
}

TEST(Check, SchedulesPass) {
  using enum ScheduleKind;
  int programs = 0;
  for (int p = 1; p <= 6; ++p) {
    for (int v = 1; v <= 3; ++v) {
      for (int m = 1; m <= 2 * p + 3; ++m) {
        for (ScheduleKind kind : {gpipe, one_f_one_b, interleaved}) {
          if (kind == interleaved ? v == 1 || m < p : v > 1) continue;
          for (Waits waits : {Waits::next, Waits::end}) {
            SCOPED_TRACE(fmt::format("{} {} x {}, {} micro-batches", name_of(kind), p, v, m));
            CheckReport r;
            try {
              r = check_program(made(kind, p, v, m, waits));
            } catch (const Error& e) {
              ADD_FAILURE() << e.what();
              continue;
            }
            ++programs;
            EXPECT_EQ(r.messages, p == 1 ? 0 : 2 * (p * v - 1) * m);
            for (int s = 0; s < p; ++s) {
              const int live = r.peak_live_micro_batches[s];
              if (kind == interleaved) {
                EXPECT_LE(live, 2 * (p - s - 1) + (v - 1) * p + 1);
              } else {
                EXPECT_EQ(live, kind == gpipe ? m : std::min(m, p - s));
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(programs, 300);
}

TEST(Check, ProgramsReadBack) {
  for (auto [p, v, m] : {std::tuple(1, 2, 3), std::tuple(2, 2, 3), std::tuple(4, 3, 6)}) {
    const std::string text = print_program(made(ScheduleKind::interleaved, p, v, m));
    const Program back = parse_program(text);
    EXPECT_EQ(print_program(back), text);
    check_program(back);
  }
}

// The refusal of a program with a planted fault.
std::string refusal(const std::function<void(Program&)>& fault,
                    ScheduleKind kind = ScheduleKind::one_f_one_b, int p = 2, int v = 1,
                    int m = 3) {
  Program program = made(kind, p, v, m);
  check_program(program);
  fault(program);
  try {
    check_program(program);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// The n-th action of a kind on a stage.
size_t find(const Program& p, int stage, Act act, int n = 0) {
  for (size_t i = 0; i < p.actions[stage].size(); ++i) {
    if (p.actions[stage][i].act == act && n-- == 0) return i;
  }
  ADD_FAILURE() << "no such action";
  return 0;
}

size_t find_run(const Program& p, int stage, int body, int micro_batch) {
  for (size_t i = 0; i < p.actions[stage].size(); ++i) {
    const Action& a = p.actions[stage][i];
    if (a.body == body && a.micro_batch == micro_batch) return i;
  }
  ADD_FAILURE() << "no such run";
  return 0;
}

void drop(Program& p, int stage, size_t i) { p.actions[stage].erase(p.actions[stage].begin() + i); }

void swap(Program& p, int stage, size_t i, size_t j) {
  std::swap(p.actions[stage][i], p.actions[stage][j]);
}

#define EXPECT_HAS(text, part) EXPECT_PRED2(has, text, part)
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Check, MessagesAndOrder) {
  EXPECT_EQ(refusal([](Program& p) { drop(p, 0, find(p, 0, Act::wait, 2)); }),
            "stage 0: the send of y/L0.mb2 on channel 0 has no wait");
  EXPECT_EQ(refusal([](Program& p) { drop(p, 0, find(p, 0, Act::send, 2)); }),
            "deadlock: stage 0 waits in recv c3 (d.x/L1.mb2) for stage 1, which waits in recv c0 "
            "(y/L0.mb2) for stage 0");
  EXPECT_HAS(
      refusal([](Program& p) { swap(p, 0, find(p, 0, Act::send, 2), find(p, 0, Act::wait, 2)); }),
      "(wait mb 2 (y/L0.mb2) to stage 1 channel 0): no send of y/L0.mb2 on channel 0 came before");
  EXPECT_EQ(refusal([](Program& p) { drop(p, 1, find(p, 1, Act::recv, 2)); }),
            "stage 1, action 11 (run forward unit 1 mb 2 (y/L0.mb2) -> (y/L1.mb2) states 2): "
            "y/L0.mb2 is read before it is written");
  EXPECT_EQ(refusal([](Program& p) {
              const size_t i = find(p, 0, Act::send, 0), j = find(p, 0, Act::send, 1);
              const size_t w = find(p, 0, Act::wait, 0);
              EXPECT_LT(w, j);
              drop(p, 0, w);
              p.actions[0].insert(p.actions[0].begin() + j,
                                  p.actions[0][i]);  // behind the second send
              drop(p, 0, i);
              Action wait = p.actions[0][find(p, 0, Act::send, 1)];
              wait.act = Act::wait;
              p.actions[0].push_back(wait);
            }),
            "stage 1, action 0 (recv mb 0 -> (y/L0.mb0) from stage 0 channel 0): "
            "message 0 on channel 0 is y/L0.mb1 of micro-batch 1");
  EXPECT_HAS(refusal([](Program& p) { p.actions[0][find(p, 0, Act::recv)].channel = 0; }),
             "channel 0 leads from stage 0 to stage 1");
  EXPECT_HAS(refusal([](Program& p) { drop(p, 0, find(p, 0, Act::recv, 2)); }),
             "d.x/L1.mb2 is read before it is written");
  EXPECT_EQ(refusal([](Program& p) {
              const size_t i = find(p, 1, Act::recv, 2);
              p.actions[1].push_back(p.actions[1][i]);
            }),
            "stage 1 waits in recv c0 (y/L0.mb2) for stage 0, which has ended");
}

TEST(Check, Deadlock) {
  // Both send and wait for it, and only then receive: sound only if a link buffers.
  EXPECT_EQ(refusal([](Program& p) {
              for (int s : {0, 1}) {
                auto& list = p.actions[s];
                list.erase(std::remove_if(list.begin(), list.end(),
                                          [](const Action& a) { return a.act == Act::wait; }),
                           list.end());
                for (size_t i = 0; i < list.size(); ++i) {
                  if (list[i].act != Act::send) continue;
                  Action wait = list[i];
                  wait.act = Act::wait;
                  list.insert(list.begin() + ++i, wait);
                }
              }
            }),
            "deadlock: stage 0 waits in wait c0 (y/L0.mb1) for stage 1, which waits in wait c3 "
            "(d.x/L1.mb0) for stage 0");
  // A receive before what its producer needs.
  EXPECT_EQ(refusal([](Program& p) {
              const size_t i = find(p, 0, Act::recv, 0);
              std::rotate(p.actions[0].begin(), p.actions[0].begin() + i,
                          p.actions[0].begin() + i + 1);
            }),
            "deadlock: stage 0 waits in recv c3 (d.x/L1.mb0) for stage 1, which waits in recv c0 "
            "(y/L0.mb0) for stage 0");
  // The cycle leaves out the stage that merely waits for it.
  EXPECT_EQ(refusal(
                [](Program& p) {
                  const size_t i = find(p, 1, Act::recv, 2);
                  EXPECT_EQ(p.actions[1][i].channel, 5);
                  std::rotate(p.actions[1].begin(), p.actions[1].begin() + i,
                              p.actions[1].begin() + i + 1);
                },
                ScheduleKind::one_f_one_b, 3),
            "deadlock: stage 1 waits in recv c5 (d.x/L2.mb0) for stage 2, which waits in recv c2 "
            "(y/L1.mb0) for stage 1");
}

// Sums over stages, which all of them run together.
TEST(Check, JointRuns) {
  const auto add = [](Program& p, const char* name) {
    const Program joint = parse_program(fmt::format(R"(program stages 2
mesh pp 2, dp 2
graph 0 f32
  value norm "" exact
body {} piece 0 graph 0
  inputs
  state s:norm of norm [sum:pp]
  v0 norm [sum:pp] = read s:norm
  v1 norm [whole] = move all_reduce [pp] (v0)
  outputs
)",
                                                    name));
    p.bodies.push_back(joint.bodies[0]);
    const int body = static_cast<int>(p.bodies.size()) - 1;
    p.states.push_back({-1, *state_named("s:norm"), body, 0, {0, 1}});
    return Action{.act = Act::run, .body = body, .states = {static_cast<int>(p.states.size()) - 1}};
  };
  EXPECT_EQ(refusal([&](Program& p) {
              const Action a = add(p, "norm");
              for (auto& list : p.actions) list.push_back(a);
            }),
            "");
  EXPECT_EQ(
      refusal([&](Program& p) {
        const Action a = add(p, "norm"), b = add(p, "other");
        p.actions[0].insert(p.actions[0].end(), {a, b});
        p.actions[1].insert(p.actions[1].end(), {b, a});
      }),
      "stage 1, action 19 (run other states 5): all stages run it together, but stage 0 is at run "
      "norm states 4");
  EXPECT_EQ(
      refusal([&](Program& p) {
        const Action a = add(p, "norm");
        p.actions[0].push_back(a);
        p.actions[1].insert(p.actions[1].begin() + find(p, 1, Act::send, 2), a);
      }),
      "deadlock: stage 0 waits in recv c3 (d.x/L1.mb2) for stage 1, which waits in run norm for "
      "stage 0");
  EXPECT_EQ(refusal([&](Program& p) {
              const Action a = add(p, "norm");
              p.actions[0].insert(p.actions[0].end(), {a, a});
              p.actions[1].push_back(a);
            }),
            "stage 0 waits in run norm for stage 1, which has ended");
}

TEST(Check, Runs) {
  EXPECT_HAS(refusal([](Program& p) {
               p.actions[1][find_run(p, 1, kForward, 1)].ins =
                   p.actions[1][find_run(p, 1, kForward, 0)].ins;
             }),
             "y/L0.mb0 is of micro-batch 0");
  EXPECT_HAS(refusal([](Program& p) {
               swap(p, 1, find_run(p, 1, kForward, 0), find_run(p, 1, kBackward, 0));
             }),
             "backward unit 1 mb 0 first (d.x/L2.mb0, y/L0.mb0) -> (d.x/L1.mb0) states 2,3): "
             "d.x/L2.mb0 is read before");
  EXPECT_EQ(refusal([](Program& p) {
              p.actions[0].push_back(p.actions[0][find_run(p, 0, kForward, 2)]);
            }),
            "stage 0, action 19 (run forward unit 0 mb 2 (y/L-1.mb2) -> (y/L0.mb2) states 0): "
            "y/L0.mb2 is written twice");
  const auto out_of_order = [](Program& p) {
    std::stable_partition(p.actions[0].begin(), p.actions[0].end(),
                          [](const Action& a) { return a.act == Act::feed; });
    swap(p, 0, find_run(p, 0, kBackward, 0), find_run(p, 0, kBackward, 1));
  };
  EXPECT_HAS(refusal(out_of_order, ScheduleKind::gpipe, 1),
             "backward of unit 0: micro-batch 1 runs where 0 is due");
  EXPECT_HAS(refusal([](Program& p) { p.actions[0][find_run(p, 0, kBackward, 0)].first = false; }),
             "it does not say that it is the first backward run of unit 0");
  EXPECT_HAS(refusal([](Program& p) { p.actions[0][find_run(p, 0, kBackward, 1)].first = true; }),
             "it says that it is the first backward run of unit 0");
  EXPECT_HAS(refusal([](Program& p) { p.actions[0][find_run(p, 0, kForward, 1)].first = true; }),
             "it says that");
  EXPECT_HAS(refusal([](Program& p) { p.states[2].stages = {0}; }),
             "state 2 (p:w) is held by stages 0");
  EXPECT_HAS(refusal([](Program& p) {
               p.actions[1][find_run(p, 1, kBackward, 0)].states = {3, 3};
             }),
             "state g:w is (6) f32 [sum:dp], backward's p:w is (6) f32 [whole]");
  EXPECT_HAS(refusal([](Program& p) { p.actions[1][find_run(p, 1, kBackward, 0)].states = {3}; }),
             "2 states");
  EXPECT_HAS(refusal([](Program& p) { p.actions[1][find_run(p, 1, kBackward, 0)].ins[0] = 999; }),
             "no such buffer");
  EXPECT_HAS(refusal([](Program& p) { p.actions[0][find(p, 0, Act::send)].peer = 0; }),
             "its peer is another stage");
  EXPECT_HAS(refusal([](Program& p) { p.stages = 3; }), "3 stages have 2 action lists");
  EXPECT_HAS(refusal([](Program& p) {
               p.mesh = Mesh({{"dp", 2}, {"pp", 2}});
             }),
             "first atom is pp");
}

TEST(Check, Layouts) {
  EXPECT_HAS(refusal([](Program& p) { p.bodies[kForward].versions[2].layout = Layout(3); }),
             "body forward, step 1 (run): result 0 of contract, v2 y [whole], is not cut along b");
  EXPECT_HAS(refusal([](Program& p) { p.bodies[kUpdate].steps[2].what = MoveKind::all_gather; }),
             "all_gather over dp does not lead from v1 d.w [sum:dp] to v2 d.w [whole]");
  EXPECT_HAS(refusal([](Program& p) {
               std::swap(p.bodies[kUpdate].steps[1], p.bodies[kUpdate].steps[2]);
             }),
             "body update, step 1 (move): v1 d.w [sum:dp] is read before it is made");
  EXPECT_HAS(refusal([](Program& p) { p.bodies[kUpdate].steps[4].ins = {1}; }),
             "w is (6) f32 [sum:dp], state p:w is");
  EXPECT_HAS(refusal([](Program& p) {
               p.bodies.push_back(p.bodies[kUpdate]);  // no stage runs it
               p.bodies.back().versions[1].layout.pending |= 1;
             }),
             "that the ranks of a stage have not");
  EXPECT_HAS(refusal([](Program& p) { p.bodies[kUpdate].steps[3].outs = {2}; }),
             "result 0 of add is w/new, the step has d.w");
  EXPECT_HAS(refusal([](Program& p) {
               Program q = parse_program(print_program(p));
               LoweredBody other = q.bodies[kForward];
               other.name = "forward/whole";
               other.versions[0].layout = other.versions[2].layout = Layout(3);
               other.steps[1].cuts[0] = {};
               p.bodies.push_back(std::move(other));
               p.buffers.push_back({"whole", 3, 0});
               const int b = static_cast<int>(p.buffers.size()) - 1;
               p.actions[1][find(p, 1, Act::recv)].outs = {b};
             }),
             "y/L0.mb0 is (4,2,6) f32 [b:dp], whole is (4,2,6) f32 [whole]");
}

// Each kind of move, as the planner of reshards makes them, leads where it says; another kind does
// not.
TEST(Check, MovesLead) {
  const Mesh mesh({{"a", 2}, {"b", 2}, {"c", 3}});
  const char* layouts[] = {"whole", "x:a",     "x:a,b",     "y:a",   "x:b y:a",
                           "sum:a", "sum:a,b", "x:a sum:b", "y:c,a", "x:c sum:a,b"};
  int moves = 0;
  for (const char* from : layouts) {
    for (const char* to : layouts) {
      Program p{.mesh = mesh, .stages = 1};
      p.actions.resize(1);
      LoweredBody body{.name = "moves", .piece = 0, .graph = std::make_shared<Graph>()};
      body.graph->add({.name = "v", .labels = "xy", .sizes = {7, 5}});
      body.versions = {{0, parse_layout(from, "xy", mesh)}};
      body.inputs = {0};
      for (const MoveStep& m :
           reshard(parse_layout(from, "xy", mesh), parse_layout(to, "xy", mesh))) {
        const int v = static_cast<int>(body.versions.size());
        body.versions.push_back({0, m.after});
        body.steps.push_back({.kind = StepKind::move,
                              .ins = {v - 1},
                              .outs = {v},
                              .what = m.what,
                              .atoms = m.atoms});
      }
      p.bodies = {body};
      EXPECT_NO_THROW(check_program(p)) << print_program(p);
      for (Step& step : p.bodies[0].steps) {
        const MoveKind right = step.what;
        for (MoveKind k : {MoveKind::slice, MoveKind::first, MoveKind::reduce_scatter,
                           MoveKind::all_to_all, MoveKind::all_reduce, MoveKind::all_gather}) {
          if (k == right) continue;
          step.what = k;
          EXPECT_THROW(check_program(p), Error) << print_program(p);
          ++moves;
        }
        step.what = right;
      }
    }
  }
  EXPECT_GT(moves, 300);
}

}  // namespace
}  // namespace myriad
