// Why transfers apart cannot deadlock, given what is checked here and in check.cc. All ranks of a
// stage run one list of actions, so that all members of a group inside a stage start and finish
// their transfers in one order. A start never blocks; a finish waits for the finishes of its peers
// (comm/communicator.h). Take the first finish in that order that never ends: every member of its
// group stands at it or is past it, since whatever comes before it ends, and so has started it;
// then it can end. Groups over stages are the remaining case: check.cc takes a body with a half of
// such a transfer as one that all stages run together, as it does for a blocking move.
//
// Why nothing is read or overwritten too early. Only a finish may take a version in flight, so the
// destination is not read. The memory plan keeps source and destination until the finish, so other
// values cannot lie there; what is left are states, which have a place for the whole step: those
// that a source shows must not be written to, which is followed here, step by step and then action
// by action.

#include "passes/check_flight.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "ir/flight.h"
#include "ir/print.h"

namespace myriad {

namespace {

// By version: index of the body's state in whose memory it may lie, since it is read from it or
// written to it; -1: it lies in memory of its own.
std::vector<int> states_of(const LoweredBody& body) {
  std::vector<int> states(body.versions.size(), -1);
  for (const Step& step : body.steps) {
    if (step.kind == StepKind::read) states[step.outs[0]] = step.state;
    if (step.kind == StepKind::write && states[step.ins[0]] < 0) states[step.ins[0]] = step.state;
  }
  return states;
}

bool writes(const Step& step) {
  return step.kind == StepKind::write || step.kind == StepKind::accum;
}

struct Transfer {
  MoveKind what;
  AtomList atoms;
  int state = -1;  // that it sends from: of the body, in a program of the program; -1: none
};

class BodyFlight {
 public:
  explicit BodyFlight(const LoweredBody& body) : body_(body), states_(states_of(body)) {}

  void check() {
    for (int v : body_.inputs) {
      if (!in_flight(v)) continue;
      if (value(v).sparse()) refuse(v, "routed rows do not leave their body in flight");
      inputs_.insert(v);
    }
    for (const Step& step : body_.steps) {
      at_ = fmt::format(", step {} ({})", &step - body_.steps.data(), name_of(step.kind));
      if (step.kind == StepKind::start) {
        start(step);
      } else if (step.kind == StepKind::finish) {
        finish(step);
      } else {
        other(step);
      }
    }
    at_ = ", outputs";
    for (int v : body_.outputs) {
      if (in_flight(v)) output(v);
    }
    if (!open_.empty()) refuse(open_.begin()->first, "it is never finished");
    if (!inputs_.empty()) refuse(*inputs_.begin(), "it is never finished");
  }

 private:
  const Value& value(int v) const { return (*body_.graph)[body_.versions[v].value]; }
  bool in_flight(int v) const { return body_.versions[v].in_flight; }

  [[noreturn]] void refuse(int v, const std::string& what) const {
    throw Error(fmt::format("v{} {}: {}", v, value(v).name, what),
                fmt::format("body {}{}", body_.name, at_));
  }

  void start(const Step& step) {
    const int from = step.ins[0], to = step.outs[0];
    if (!sends(step.what)) refuse(to, fmt::format("a {} sends nothing", name_of(step.what)));
    if (in_flight(from)) refuse(from, "it is in flight and has to be finished first");
    if (!in_flight(to)) refuse(to, "a start makes a version in flight");
    open_.emplace(to, &step);
  }

  void finish(const Step& step) {
    if (step.ins.size() != 1 || step.outs.size() != 1)
      throw Error("a finish has one source and one destination",
                  fmt::format("body {}{}", body_.name, at_));
    const int from = step.ins[0], to = step.outs[0];
    if (!in_flight(from)) refuse(from, "it is not in flight");
    if (in_flight(to)) refuse(to, "a finish makes a version that may be read");
    const Version &a = body_.versions[from], &b = body_.versions[to];
    if (a.value != b.value || a.layout != b.layout)
      refuse(to, fmt::format("it is not what v{} will be", from));
    if (inputs_.erase(from) > 0) {
      if (step.once != body_.loop) refuse(from, "a loop finishes it in its first round");
      return;
    }
    const auto at = open_.find(from);
    if (at == open_.end()) refuse(from, "it is finished twice");
    const Step& begun = *at->second;
    if (begun.what != step.what || begun.atoms != step.atoms || begun.once != step.once)
      refuse(from, "its finish is not that of its start");
    open_.erase(at);
  }

  void other(const Step& step) {
    for (int v : step.ins) {
      if (in_flight(v)) refuse(v, "it is read before it is finished");
    }
    for (int v : step.outs) {
      if (in_flight(v)) refuse(v, "only a start makes a version in flight");
    }
    if (!writes(step)) return;
    for (const auto& [v, start] : open_) {
      if (states_[start->ins[0]] == step.state && start->ins != step.ins)
        refuse(v, fmt::format("{} is overwritten while it is sent", body_.states[step.state].name));
    }
  }

  void output(int v) {
    if (body_.loop) refuse(v, "a loop finishes what it starts");
    if (value(v).sparse()) refuse(v, "routed rows do not leave their body in flight");
    if (open_.erase(v) == 0) refuse(v, "a body hands on in flight what it has started, once");
  }

  const LoweredBody& body_;
  const std::vector<int> states_;
  std::map<int, const Step*> open_;  // by version in flight: its start
  std::set<int> inputs_;             // in flight and not finished yet
  std::string at_ = ", inputs";
};

// Which outputs a body leaves in flight, and which of its inputs it finishes.
struct Ends {
  std::map<int, Transfer> begun, finished;  // by place among outputs; among inputs
  std::set<int> written;                    // states of the body
};

Ends ends_of(const LoweredBody& body) {
  Ends ends;
  const std::vector<int> states = states_of(body);
  const auto place = [](const std::vector<int>& list, int v) {
    const auto at = std::find(list.begin(), list.end(), v);
    return at == list.end() ? -1 : static_cast<int>(at - list.begin());
  };
  for (const Step& step : body.steps) {
    if (writes(step)) ends.written.insert(step.state);
    if (step.kind == StepKind::start) {
      if (const int at = place(body.outputs, step.outs[0]); at >= 0)
        ends.begun.insert({at, {step.what, step.atoms, states[step.ins[0]]}});
    } else if (step.kind == StepKind::finish) {
      if (const int at = place(body.inputs, step.ins[0]); at >= 0)
        ends.finished.insert({at, {step.what, step.atoms}});
    }
  }
  return ends;
}

class StageFlight {
 public:
  StageFlight(const Program& program, const std::vector<Ends>& ends, int stage)
      : program_(program), ends_(ends), stage_(stage) {}

  void check() {
    for (const Action& a : program_.actions[stage_]) {
      if (a.act == Act::run) {
        run(a);
        continue;
      }
      for (const auto* list : {&a.ins, &a.outs}) {
        for (int b : *list) {
          if (in_flight(b)) refuse(a, b, "what is in flight stays on its rank");
        }
      }
      if (a.act == Act::zero) write(a, a.states[0]);
    }
    if (open_.empty()) return;
    throw Error(
        fmt::format("{}: it is never finished", program_.buffers[open_.begin()->first].name),
        fmt::format("stage {}", stage_));
  }

 private:
  bool in_flight(int buffer) const {
    const Buffer& b = program_.buffers[buffer];
    return program_.bodies[b.body].versions[b.version].in_flight;
  }

  [[noreturn]] void refuse(const Action& a, int buffer, const std::string& what) const {
    throw Error(fmt::format("{}: {}", program_.buffers[buffer].name, what),
                fmt::format("stage {}, action {} ({})", stage_,
                            &a - program_.actions[stage_].data(), show(a, program_)));
  }

  void write(const Action& a, int state) const {
    for (const auto& [buffer, transfer] : open_) {
      if (transfer.state == state)
        refuse(a, buffer,
               fmt::format("state {} ({}) is overwritten while it is sent", state,
                           program_.states[state].name));
    }
  }

  void run(const Action& a) {
    const LoweredBody& body = program_.bodies[a.body];
    const Ends& ends = ends_[a.body];
    for (int state : ends.written) write(a, a.states[state]);
    for (size_t i = 0; i < a.ins.size(); ++i) {
      const int b = a.ins[i];
      if (in_flight(b) != body.versions[body.inputs[i]].in_flight)
        refuse(a, b, in_flight(b) ? "it is read before it is finished" : "it is not in flight");
      if (!in_flight(b)) continue;
      const auto at = open_.find(b);
      if (at == open_.end()) refuse(a, b, "it is finished twice, or before it is started");
      const Transfer& end = ends.finished.at(static_cast<int>(i));
      if (end.what != at->second.what || end.atoms != at->second.atoms)
        refuse(a, b, "its finish is not that of its start");
      open_.erase(at);
    }
    for (size_t i = 0; i < a.outs.size(); ++i) {
      const int b = a.outs[i];
      if (in_flight(b) != body.versions[body.outputs[i]].in_flight)
        refuse(a, b, "its body and its buffer disagree on whether it is in flight");
      if (!in_flight(b)) continue;
      Transfer begun = ends.begun.at(static_cast<int>(i));
      if (begun.state >= 0) begun.state = a.states[begun.state];
      open_.insert({b, begun});
    }
  }

  const Program& program_;
  const std::vector<Ends>& ends_;
  const int stage_;
  std::map<int, Transfer> open_;  // by buffer
};

}  // namespace

void check_flight(const LoweredBody& body) { BodyFlight(body).check(); }

void check_flight(const Program& program) {
  std::vector<Ends> ends;
  for (const LoweredBody& body : program.bodies) ends.push_back(ends_of(body));
  for (int s = 0; s < program.stages; ++s) StageFlight(program, ends, s).check();
}

}  // namespace myriad
