// Memory plans against a second account of who is alive, kept block by block.
#include "passes/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "ir/flight.h"
#include "ir/rows.h"
#include "passes/lower.h"
#include "passes/toy.h"

namespace myriad {
namespace {

constexpr int64_t kBlock = 64;

Program lowered(const Toy& toy, Plan plan, int64_t rows, bool forward_only = false) {
  plan = resolve(plan, toy.layers, rows);
  return lower([&](int64_t n) { return toy_model(toy, n); }, plan,
               {.rows = rows, .forward_only = forward_only});
}

size_t some_scratch(const Op& op, const LabelSizes& local, DType) {
  return op.row == Row::contract ? static_cast<size_t>(local.sizes[0]) * 24 + 8 : 0;
}

// Writes a program's values into an arena of owners: a block that is written must belong to nobody,
// and belongs to its value until the value's last reading. A transfer reads its source until it is
// finished, and its result lies where it was received.
class Account {
 public:
  Account(const Program& program, int rank, const MemoryPlan& plan)
      : p_(program), rank_(rank), plan_(plan) {}

  void run() {
    owner_.assign(static_cast<size_t>((plan_.peak_bytes + kBlock - 1) / kBlock), "");
    const auto& actions = p_.actions[p_.stage_of(rank_)];
    last_.assign(p_.buffers.size(), -1);
    for (size_t i = 0; i < actions.size(); ++i) {
      for (const auto& list : {actions[i].ins, actions[i].outs}) {
        for (int b : list) last_[b] = static_cast<int>(i);
      }
    }
    for (size_t i = 0; i < p_.states.size(); ++i) {
      const LoweredBody& body = p_.bodies[p_.states[i].body];
      const StateUse& use = body.states[p_.states[i].use];
      if (plan_.states[i] >= 0)
        take(plan_.states[i], local_bytes(p_.mesh, (*body.graph)[use.value], use.layout, rank_),
             "state " + show(p_.states[i].name));
    }
    EXPECT_EQ(most_, plan_.state_bytes) << "states lie first";
    for (size_t i = 0; i < actions.size(); ++i) act(static_cast<int>(i), actions[i]);
    EXPECT_EQ(most_, plan_.peak_bytes) << "the peak is the highest end";
    for (size_t i = static_cast<size_t>(plan_.state_bytes / kBlock); i < owner_.size(); ++i)
      EXPECT_EQ(owner_[i], "") << "is never given back";
  }

 private:
  int64_t bytes_of(int body, int version) const {
    const Version& v = p_.bodies[body].versions[version];
    return local_bytes(p_.mesh, (*p_.bodies[body].graph)[v.value], v.layout, rank_);
  }
  bool in_state(int64_t offset) const { return offset < plan_.state_bytes; }

  void take(int64_t offset, int64_t bytes, const std::string& who) {
    ASSERT_GE(offset, 0) << who;
    ASSERT_EQ(offset % kBlock, 0) << who;
    for (int64_t k = offset / kBlock; k < (offset + bytes + kBlock - 1) / kBlock; ++k) {
      ASSERT_LT(k, static_cast<int64_t>(owner_.size())) << who << " ends above the peak";
      ASSERT_EQ(owner_[static_cast<size_t>(k)], "") << who << " overwrites what is alive";
      owner_[static_cast<size_t>(k)] = who;
      most_ = std::max(most_, (k + 1) * kBlock);
    }
  }
  void give(int64_t offset, int64_t bytes) {
    for (int64_t k = offset / kBlock; k < (offset + bytes + kBlock - 1) / kBlock; ++k)
      owner_[static_cast<size_t>(k)].clear();
  }

  void take_buffer(int b) {
    if (!in_state(plan_.buffers[b]))
      take(plan_.buffers[b], bytes_of(p_.buffers[b].body, p_.buffers[b].version),
           "buffer " + p_.buffers[b].name);
  }
  void end_buffer(int b) {
    if (!in_state(plan_.buffers[b]) && !moved_.contains(b))
      give(plan_.buffers[b], bytes_of(p_.buffers[b].body, p_.buffers[b].version));
    last_[b] = -1;
  }

  void act(int index, const Action& a) {
    if (a.act == Act::run) {
      run_body(index, a);
    } else {
      for (int b : a.outs) take_buffer(b);
    }
    for (const auto& list : {a.ins, a.outs}) {
      for (int b : list) {
        if (last_[b] == index) end_buffer(b);
      }
    }
    for (int b : a.ins) {
      const auto at = sources_.find(b);
      if (at == sources_.end()) continue;
      const Source& s = at->second;
      if (s.buffer < 0) {
        give(s.offset, s.bytes);
      } else if (last_[s.buffer] == index) {
        end_buffer(s.buffer);
      }
      sources_.erase(at);
    }
  }

  // By version: its last step, and what a finish here makes of it (-1: nothing).
  struct Ends {
    std::vector<int> last, finished_as;
  };
  static Ends ends_of(const LoweredBody& body) {
    const std::vector<int> sources = sources_in_flight(body);
    const int end = static_cast<int>(body.steps.size());
    Ends e{std::vector<int>(body.versions.size(), -1), std::vector<int>(body.versions.size(), -1)};
    for (int t = 0; t < end; ++t) {
      const Step& step = body.steps[t];
      for (int v : step.ins) {
        e.last[v] = t;
        if (step.kind != StepKind::finish) continue;
        e.finished_as[v] = step.outs[0];
        if (sources[v] >= 0) e.last[sources[v]] = t;
      }
    }
    for (int v : body.outputs) {
      if (sources[v] >= 0) e.last[sources[v]] = end;
    }
    for (int v : body.inputs) {
      if (e.finished_as[v] >= 0) e.last[v] = std::max(e.last[v], e.last[e.finished_as[v]]);
    }
    return e;
  }

  void run_body(int index, const Action& a) {
    const LoweredBody& body = p_.bodies[a.body];
    const MemoryPlan::Run& run = plan_.actions[index];
    const Ends ends = ends_of(body);
    const std::vector<int>&last = ends.last, sources = sources_in_flight(body);
    const auto place = [&](const std::vector<int>& list, int v) {
      const auto at = std::find(list.begin(), list.end(), v);
      return at == list.end() ? -1 : static_cast<int>(at - list.begin());
    };
    for (size_t i = 0; i < body.inputs.size(); ++i)
      EXPECT_EQ(run.versions[body.inputs[i]], plan_.buffers[a.ins[i]]);
    for (size_t t = 0; t < body.steps.size(); ++t) {
      const Step& step = body.steps[t];
      const std::string who = fmt::format("{} step {}", body.name, t);
      for (int made : step.outs) {
        if (step.kind == StepKind::finish) {
          finish(body, a, run, step);
          continue;
        }
        const int v = ends.finished_as[made] >= 0 ? ends.finished_as[made] : made;
        EXPECT_EQ(run.versions[v], run.versions[made]) << who;
        const int out = place(body.outputs, v);
        if (in_state(run.versions[v]) && bytes_of(a.body, v) > 0) {
          shown(a, body, static_cast<int>(t), v, run);
        } else if (out >= 0) {
          EXPECT_EQ(run.versions[v], plan_.buffers[a.outs[out]]);
          take_buffer(a.outs[out]);
        } else {
          take(run.versions[v], bytes_of(a.body, v), who);
        }
      }
      const int64_t scratch =
          step.kind == StepKind::run
              ? static_cast<int64_t>(
                    some_scratch(body.ops[step.op],
                                 local_labels(p_.mesh, body.ops[step.op], step, rank_), DType::f32))
              : 0;
      take(run.scratch[t], scratch, who + " scratch");
      give(run.scratch[t], scratch);
      std::vector<int> sent;
      if (step.kind == StepKind::finish && sources[step.ins[0]] >= 0)
        sent.push_back(sources[step.ins[0]]);
      for (const auto& list : {sent, step.ins, step.outs}) {
        for (int v : list) {
          if (last[v] > static_cast<int>(t) || (ends.finished_as[v] >= 0 && sources[v] >= 0))
            continue;
          if (step.kind == StepKind::finish && v == step.outs[0] && sources[step.ins[0]] < 0)
            continue;  // it ends as the input does
          const int in = place(body.inputs, v);
          if (in >= 0 && last_[a.ins[in]] == index) end_buffer(a.ins[in]);
          if (in < 0 && place(body.outputs, v) < 0 && !in_state(run.versions[v]))
            give(run.versions[v], bytes_of(a.body, v));
        }
      }
    }
    for (size_t i = 0; i < body.outputs.size(); ++i) {
      const int v = sources[body.outputs[i]];
      if (v < 0 || in_state(run.versions[v])) continue;
      const int in = place(body.inputs, v), out = place(body.outputs, v);
      const int b = in >= 0 ? a.ins[in] : out >= 0 ? a.outs[out] : -1;
      if (b >= 0) last_[b] = std::max(last_[b], last_[a.outs[i]]);
      sources_[a.outs[i]] = {run.versions[v], bytes_of(a.body, v), b};
    }
  }

  void finish(const LoweredBody& body, const Action& a, const MemoryPlan::Run& run,
              const Step& step) {
    EXPECT_EQ(run.versions[step.outs[0]], run.versions[step.ins[0]]) << body.name;
    const auto in = std::find(body.inputs.begin(), body.inputs.end(), step.ins[0]);
    const auto out = std::find(body.outputs.begin(), body.outputs.end(), step.outs[0]);
    if (in == body.inputs.end() || out == body.outputs.end()) return;
    const int from = a.ins[static_cast<size_t>(in - body.inputs.begin())],
              to = a.outs[static_cast<size_t>(out - body.outputs.begin())];
    EXPECT_EQ(plan_.buffers[from], plan_.buffers[to]) << body.name;
    moved_.insert(from);
  }

  // A version that lies in a state: what was read from it, or what is made there because it will be
  // written there. In the second case nobody may read the old state afterwards, but the op itself
  // element by element.
  void shown(const Action& a, const LoweredBody& body, int made, int v,
             const MemoryPlan::Run& run) {
    if (body.steps[made].kind == StepKind::read) {
      EXPECT_EQ(run.versions[v], plan_.states[a.states[body.steps[made].state]]);
      return;
    }
    bool written = false;
    for (size_t t = static_cast<size_t>(made); t < body.steps.size(); ++t) {
      const Step& step = body.steps[t];
      written |= step.kind == StepKind::write && step.ins[0] == v &&
                 plan_.states[a.states[step.state]] == run.versions[v];
      if (step.kind == StepKind::finish && step.outs[0] == v) continue;
      for (int in : step.ins) {
        const bool old = in != v && run.versions[in] == run.versions[v] && bytes_of(a.body, in) > 0;
        const bool in_place = t == static_cast<size_t>(made) && step.kind == StepKind::run &&
                              info(body.ops[step.op].row).elementwise;
        EXPECT_TRUE(!old || in_place)
            << body.name << ": step " << t << " reads a state that is overwritten";
      }
    }
    EXPECT_TRUE(written) << body.name << ": version " << v
                         << " lies in a state to which it is not written";
  }

  const Program& p_;
  const int rank_;
  const MemoryPlan& plan_;
  std::vector<std::string> owner_;  // by block
  std::vector<int> last_;           // action by buffer
  struct Source {
    int64_t offset, bytes;
    int buffer;  // -1: memory of its own
  };
  std::map<int, Source> sources_;  // by buffer in flight: what it is sent from
  std::set<int> moved_;            // buffers in flight whose memory another has taken over
  int64_t most_ = 0;
};

void check(const Toy& toy, const Plan& plan, int64_t rows, bool forward_only = false) {
  const Program p = lowered(toy, plan, rows, forward_only);
  for (int r = 0; r < p.mesh.ranks(); ++r) {
    SCOPED_TRACE(fmt::format("{}, rank {}", show(plan), r));
    const MemoryPlan memory = plan_memory(p, r, some_scratch);
    Account(p, r, memory).run();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Memory, NothingAliveIsOverwritten) {
  const Toy odd{.layers = 4, .sequence = 5, .hidden = 7, .ffn = 11, .vocabulary = 13};
  for (int zero = 0; zero <= 3; ++zero) {
    for (bool sp : {false, true}) {
      check(odd, {.dp = 2, .tp = 2, .micro_batches = 2, .zero = zero, .sp = sp}, 5);
      check(odd,
            {.dp = 2,
             .tp = 3,
             .pp = 2,
             .micro_batches = 3,
             .zero = zero,
             .sp = sp,
             .recompute = Recompute::full},
            7);
    }
  }
  check(odd, {.pp = 4, .micro_batches = 6, .schedule = "gpipe"}, 6);
  check(odd, {.pp = 2, .vpp = 2, .micro_batches = 4}, 4);
  check(odd, {.dp = 3, .micro_batches = 1, .zero = 3}, 2);  // a rank without rows
  check(odd, {.dp = 2, .tp = 2, .pp = 2}, 4, true);
}

TEST(Memory, ValuesOfNoElementsTakeNoRoom) {
  const Toy toy{.vocabulary = 2};
  check(toy, {.tp = 5}, 1);
}

TEST(Memory, MicroBatchesDoNotAddToAPipelineOfOneStage) {
  const Toy toy{.layers = 2, .sequence = 32, .hidden = 64, .ffn = 64};
  const auto peak = [&](int micro_batches, int64_t rows) {
    return plan_memory(lowered(toy, {.micro_batches = micro_batches}, rows), 0, some_scratch)
        .peak_bytes;
  };
  EXPECT_EQ(peak(2, 2), peak(8, 8));
  EXPECT_LT(peak(8, 8), peak(1, 8));
}

TEST(Memory, RecomputeAndGpipeChangeThePeakAsTheyShould) {
  const Toy toy{.layers = 8, .sequence = 32, .hidden = 32, .ffn = 128};
  const auto peak = [&](Plan plan) {
    return plan_memory(lowered(toy, plan, 8), 0, some_scratch).peak_bytes;
  };
  const Plan base{.pp = 2, .micro_batches = 8};
  Plan gpipe = base, selective = base, full = base;
  gpipe.schedule = "gpipe";
  selective.recompute = Recompute::selective;
  full.recompute = Recompute::full;
  EXPECT_GT(peak(gpipe), peak(base));
  EXPECT_LT(peak(selective), peak(base));
  EXPECT_LT(peak(full), peak(selective));
}

TEST(Memory, ShownStates) {
  const Program p = lowered({}, {.dp = 2, .zero = 1}, 2);
  for (const LoweredBody& body : p.bodies) {
    const std::vector<int> shown = shown_states(body);
    for (const Step& step : body.steps) {
      if (step.kind == StepKind::read) {
        EXPECT_EQ(shown[step.outs[0]], step.state) << body.name;
      }
      if (step.kind == StepKind::accum) {
        EXPECT_NE(shown[step.ins[0]], step.state) << "what is added is not the sum";
      }
    }
    for (int v : body.inputs) EXPECT_EQ(shown[v], -1) << body.name;
  }
}

}  // namespace
}  // namespace myriad
