// The checker lets all stages run their actions together, each as far as it can: an action that
// waits for another stage ends once that stage has come as far. What a stage has written and
// received, and how far each unit's sums are, is all that it must remember. When none can continue
// and not all have ended, they wait for each other, and the chain of waits is the error message.
// What an action says of itself is checked in check_action.cc, what a body does in check_body.cc.
#include "passes/check.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "ir/flight.h"
#include "ir/print.h"
#include "passes/check_action.h"
#include "passes/check_body.h"
#include "passes/check_flight.h"

namespace myriad {

namespace {

// The first of a body's states that it adds to; -1: it adds to none.
int sum_of(const LoweredBody& body) {
  for (const Step& step : body.steps) {
    if (step.kind == StepKind::accum) return step.state;
  }
  return -1;
}

// Whether all stages run the body together: its collectives go over them.
bool joins_stages(const LoweredBody& body, const Mesh& mesh) {
  const int pp = mesh.find("pp");
  return pp >= 0 && std::any_of(body.steps.begin(), body.steps.end(), [&](const Step& step) {
           return (begins_collective(step) || ends_collective(step)) &&
                  (step.atoms.set() >> pp & 1);
         });
}

struct Message {
  int buffer;
  int micro_batch;
  bool received = false, waited = false;
};

struct Channel {
  int from, to;
  std::vector<Message> sent;
  size_t received = 0;
};

// Checks the actions of all stages together.
class Walk {
 public:
  explicit Walk(const Program& program) : program_(program), stages_(program.actions.size()) {
    for (const LoweredBody& body : program.bodies) {
      sums_.push_back(sum_of(body));
      joint_.push_back(joins_stages(body, program.mesh));
    }
    for (size_t s = 0; s < stages_.size(); ++s) {
      for (const Action& a : program.actions[s]) {
        check_indices(program, static_cast<int>(s), a);
        if (a.act == Act::run && is_backward(program.bodies[a.body].role))
          stages_[s].to_come.insert({a.unit, a.micro_batch});
      }
    }
  }

  CheckReport run() {
    const int n = static_cast<int>(stages_.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (int s = 0; s < n; ++s) {
        while (!ended(s) && step(s, current(s))) {
          ++stages_[s].next;
          moved = true;
        }
      }
    }
    refuse_deadlock();
    for (const auto& [number, channel] : channels_) {
      for (const Message& m : channel.sent) {
        if (m.waited) continue;
        throw Error(fmt::format("the send of {} on channel {} has no wait",
                                program_.buffers[m.buffer].name, number),
                    fmt::format("stage {}", channel.from));
      }
    }
    for (const Stage& s : stages_) report_.peak_live_micro_batches.push_back(s.most_live);
    return std::move(report_);
  }

 private:
  struct Stage {
    size_t next = 0;
    int joined = 0;  // runs together with all other stages
    // Buffer -> micro-batch of what it holds, -1: made once a step.
    std::unordered_map<int, int> written;
    // (unit, micro-batch): backward runs to come; forward runs that wait for one.
    std::set<std::pair<int, int>> to_come, live;
    // By unit, role of the body and state: runs that have added to it.
    std::map<std::tuple<int, BodyRole, int>, int> summed;
    int most_live = 0;
  };

  bool ended(int s) const { return stages_[s].next == program_.actions[s].size(); }
  const Action& current(int s) const { return program_.actions[s][stages_[s].next]; }
  const std::string& name(int buffer) const { return program_.buffers[buffer].name; }

  [[noreturn]] void refuse(int s, const Action& a, const std::string& what) const {
    refuse_action(program_, s, a, what);
  }

  int read(int s, const Action& a, int buffer) const {
    const auto at = stages_[s].written.find(buffer);
    if (at == stages_[s].written.end())
      refuse(s, a, fmt::format("{} is read before it is written", name(buffer)));
    if (a.micro_batch >= 0 && at->second >= 0 && a.micro_batch != at->second) {
      refuse(s, a, fmt::format("{} is of micro-batch {}", name(buffer), at->second));
    }
    return at->second;
  }

  void write(int s, const Action& a, int buffer, int micro_batch) {
    if (stages_[s].written.emplace(buffer, micro_batch).second) return;
    refuse(s, a, fmt::format("{} is written twice", name(buffer)));
  }

  // Whether the action is over; false: it waits for its peer.
  bool step(int s, const Action& a) {
    switch (a.act) {
      case Act::feed:
        for (int b : a.outs) write(s, a, b, a.micro_batch);
        return true;
      case Act::zero:
        check_held(program_, s, a);
        return true;
      case Act::run:
        if (joint_[a.body]) {
          if (stage_missing(s, a) >= 0) return false;
          ++stages_[s].joined;
        }
        run_body(s, a);
        return true;
      case Act::send:
        send(s, a);
        return true;
      case Act::wait:
        return wait(s, a);
      case Act::recv:
        return receive(s, a);
    }
    return true;
  }

  // A stage that has not yet come to the joint run that stage s is at; -1: all are there.
  int stage_missing(int s, const Action& a) const {
    for (int t = 0; t < static_cast<int>(stages_.size()); ++t) {
      if (stages_[t].joined > stages_[s].joined) continue;
      if (ended(t) || current(t).act != Act::run || !joint_[current(t).body]) return t;
      if (stages_[t].joined < stages_[s].joined) return t;
      if (current(t).body == a.body) continue;
      refuse(s, a,
             fmt::format("all stages run it together, but stage {} is at {}", t,
                         show(current(t), program_)));
    }
    return -1;
  }

  Channel& channel(int s, const Action& a) {
    const int from = a.act == Act::recv ? a.peer : s, to = a.act == Act::recv ? s : a.peer;
    Channel& c = channels_.try_emplace(a.channel, Channel{from, to, {}}).first->second;
    if (c.from != from || c.to != to) {
      refuse(s, a,
             fmt::format("channel {} leads from stage {} to stage {}", a.channel, c.from, c.to));
    }
    return c;
  }

  void send(int s, const Action& a) {
    const int b = a.ins[0], holds = read(s, a, b);
    channel(s, a).sent.push_back({b, holds >= 0 ? holds : a.micro_batch});
    ++report_.messages;
  }

  bool wait(int s, const Action& a) {
    auto& sent = channel(s, a).sent;
    const auto m = std::find_if(sent.rbegin(), sent.rend(), [&](const Message& x) {
      return x.buffer == a.ins[0] && !x.waited;
    });
    if (m == sent.rend())
      refuse(s, a,
             fmt::format("no send of {} on channel {} came before", name(a.ins[0]), a.channel));
    m->waited = m->received;
    return m->received;
  }

  bool receive(int s, const Action& a) {
    Channel& c = channel(s, a);
    if (c.received == c.sent.size()) return false;
    Message& m = c.sent[c.received++];
    const Buffer &from = program_.buffers[m.buffer], &to = program_.buffers[a.outs[0]];
    if (a.micro_batch >= 0 && m.micro_batch >= 0 && a.micro_batch != m.micro_batch) {
      refuse(s, a,
             fmt::format("message {} on channel {} is {} of micro-batch {}", c.received - 1,
                         a.channel, from.name, m.micro_batch));
    }
    need_alike(program_, s, a, from.name, program_.value(from), program_.layout(from), to.name,
               program_.value(to), program_.layout(to));
    m.received = true;
    write(s, a, a.outs[0], m.micro_batch >= 0 ? m.micro_batch : a.micro_batch);
    return true;
  }

  void run_body(int s, const Action& a) {
    for (int b : a.ins) read(s, a, b);
    check_types(program_, s, a);
    for (int b : a.outs) write(s, a, b, a.micro_batch);
    if (a.micro_batch >= 0) pass(s, a);
  }

  // Order of the passes of a unit, and how many await their backward.
  void pass(int s, const Action& a) {
    Stage& stage = stages_[s];
    const BodyRole role = program_.bodies[a.body].role;
    const bool backward = is_backward(role);
    const auto key = std::pair(a.unit, a.micro_batch);
    const char* what = backward ? "backward" : "accumulating forward";
    if (const int sum = sums_[a.body]; sum >= 0) {
      // Micro-batches of other sizes run bodies of their own, which add to the same state.
      int& next = stage.summed[{a.unit, role, a.states[static_cast<size_t>(sum)]}];
      if (a.micro_batch != next) {
        refuse(s, a,
               fmt::format("{} of unit {}: micro-batch {} runs where {} is due", what, a.unit,
                           a.micro_batch, next));
      }
      ++next;
    }
    if (a.first != (backward && a.micro_batch == 0)) {
      refuse(s, a,
             fmt::format("it {} that it is the first backward run of unit {}",
                         a.first ? "says" : "does not say", a.unit));
    }
    if (backward) {
      stage.to_come.erase(key);
      stage.live.erase(key);
    } else if (a.unit >= 0 && stage.to_come.contains(key)) {
      stage.live.insert(key);
      stage.most_live = std::max(stage.most_live, static_cast<int>(stage.live.size()));
    }
  }

  int waits_for(int s) const {
    const Action& a = current(s);
    return a.act == Act::run ? stage_missing(s, a) : a.peer;
  }

  std::string waiting(int s) const {
    const Action& a = current(s);
    const std::string what =
        a.act == Act::run
            ? program_.bodies[a.body].name
            : fmt::format("c{} ({})", a.channel, name(a.act == Act::recv ? a.outs[0] : a.ins[0]));
    return fmt::format("waits in {} {} for stage {}", name_of(a.act), what, waits_for(s));
  }

  // When nothing moves any more: every stage is at its end, or one that waits leads to a cycle or
  // to one that is at its end.
  void refuse_deadlock() const {
    int s = 0;
    while (s < static_cast<int>(stages_.size()) && ended(s)) ++s;
    if (s == static_cast<int>(stages_.size())) return;
    std::vector<int> chain;
    while (!ended(s) && std::find(chain.begin(), chain.end(), s) == chain.end()) {
      chain.push_back(s);
      s = waits_for(s);
    }
    const bool cycle = !ended(s);
    if (cycle) chain.erase(chain.begin(), std::find(chain.begin(), chain.end(), s));
    std::string text = fmt::format("{}stage {} ", cycle ? "deadlock: " : "", chain[0]);
    for (int i : chain) text += fmt::format("{}{}", i == chain[0] ? "" : ", which ", waiting(i));
    throw Error(text + (cycle ? "" : ", which has ended"));
  }

  const Program& program_;
  std::vector<int> sums_;  // by body
  std::vector<bool> joint_;
  std::vector<Stage> stages_;
  std::map<int, Channel> channels_;
  CheckReport report_;
};

void check_tables(const Program& p) {
  const auto need = [](bool ok, const std::string& what) {
    if (!ok) throw Error(what, "program");
  };
  const int pp = p.mesh.find("pp");
  need(p.stages >= 1 && p.actions.size() == static_cast<size_t>(p.stages),
       fmt::format("{} stages have {} action lists", p.stages, p.actions.size()));
  need(p.stages == 1 ? pp < 0 : pp == 0 && p.mesh.axis(0).size == p.stages,
       fmt::format("{} stages need a mesh whose first atom is pp, of that size", p.stages));
  for (const LoweredBody& b : p.bodies)
    need(b.graph != nullptr, fmt::format("body {} has no graph", b.name));
  for (const Buffer& b : p.buffers) {
    need(within(b.body, p.bodies.size()) && within(b.version, p.bodies[b.body].versions.size()),
         fmt::format("buffer {} has no type", b.name));
  }
  for (const State& s : p.states) {
    need(within(s.body, p.bodies.size()) && within(s.use, p.bodies[s.body].states.size()),
         fmt::format("state {} has no type", s.name));
  }
}

}  // namespace

CheckReport check_program(const Program& program) {
  check_tables(program);
  for (const LoweredBody& body : program.bodies) check_body(body, program);
  CheckReport report = Walk(program).run();
  check_flight(program);
  return report;
}

}  // namespace myriad
