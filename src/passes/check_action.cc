// What can be said of one action without knowing what ran before: its indices, and whether the
// types of its buffers and states are those that the body expects.
#include "passes/check_action.h"

#include <algorithm>

#include "base/error.h"
#include "ir/print.h"
#include "passes/check_body.h"

namespace myriad {

void refuse_action(const Program& program, int s, const Action& a, const std::string& what) {
  throw Error(what, fmt::format("stage {}, action {} ({})", s, &a - program.actions[s].data(),
                                show(a, program)));
}

void check_indices(const Program& program, int s, const Action& a) {
  const auto where =
      fmt::format("stage {}, action {} ({})", s, &a - program.actions[s].data(), name_of(a.act));
  const auto need = [&](bool ok, std::string_view what) {
    if (!ok) throw Error(std::string(what), where);
  };
  const auto all = [](const std::vector<int>& list, size_t size) {
    return std::all_of(list.begin(), list.end(), [&](int i) { return within(i, size); });
  };
  const bool to_peer = a.act == Act::send || a.act == Act::wait || a.act == Act::recv;
  need(all(a.ins, program.buffers.size()) && all(a.outs, program.buffers.size()),
       "there is no such buffer");
  need(all(a.states, program.states.size()), "there is no such state");
  need(a.act == Act::run ? within(a.body, program.bodies.size()) : a.body == -1,
       "a run, and nothing else, has a body");
  need(!to_peer || (within(a.peer, program.actions.size()) && a.peer != s),
       "its peer is another stage");
  need(!to_peer || a.channel >= 0, "it needs a channel");
  const auto takes = [&](size_t ins, size_t outs, size_t states) {
    need(a.ins.size() == ins && a.outs.size() == outs && a.states.size() == states,
         fmt::format("it takes {} buffers and {} states and gives {} buffers; it has {}, {} and {}",
                     ins, states, outs, a.ins.size(), a.states.size(), a.outs.size()));
  };
  switch (a.act) {
    case Act::feed:
      return takes(0, a.outs.size(), 0);
    case Act::send:
    case Act::wait:
      return takes(1, 0, 0);
    case Act::recv:
      return takes(0, 1, 0);
    case Act::zero:
      return takes(0, 0, 1);
    case Act::run:
      break;
  }
  const LoweredBody& body = program.bodies[a.body];
  takes(body.inputs.size(), body.outputs.size(), body.states.size());
}

void need_alike(const Program& program, int s, const Action& a, const std::string& one,
                const Value& v, const Layout& l, const std::string& other, const Value& w,
                const Layout& k) {
  if (alike(v, l, w, k)) return;
  refuse_action(program, s, a,
                fmt::format("{} is {}, {} is {}", one, type_of(v, l, program.mesh), other,
                            type_of(w, k, program.mesh)));
}

void check_held(const Program& program, int s, const Action& a) {
  for (int i : a.states) {
    const auto& held = program.states[i].stages;
    if (std::find(held.begin(), held.end(), s) != held.end()) continue;
    refuse_action(program, s, a,
                  fmt::format("state {} ({}) is held by stages {}", i, program.states[i].name,
                              fmt::join(held, ",")));
  }
}

namespace {

// A sum over stages is seen by each of them as its own part.
Layout in_stage(const Program& program, Layout layout) {
  const int pp = program.mesh.find("pp");
  if (pp >= 0) layout.pending = static_cast<AtomSet>(layout.pending & ~(1u << pp));
  return layout;
}

}  // namespace

void check_types(const Program& program, int s, const Action& a) {
  const LoweredBody& body = program.bodies[a.body];
  const auto check_buffer = [&](int buffer, int version) {
    const Buffer& b = program.buffers[buffer];
    const Version& v = body.versions[version];
    const Value& w = (*body.graph)[v.value];
    need_alike(program, s, a, b.name, program.value(b), program.layout(b),
               body.name + "'s " + w.name, w, v.layout);
  };
  for (size_t i = 0; i < a.ins.size(); ++i) check_buffer(a.ins[i], body.inputs[i]);
  for (size_t i = 0; i < a.outs.size(); ++i) check_buffer(a.outs[i], body.outputs[i]);
  check_held(program, s, a);
  for (size_t i = 0; i < a.states.size(); ++i) {
    const State& state = program.states[a.states[i]];
    const LoweredBody& home = program.bodies[state.body];
    const StateUse &use = body.states[i], &rest = home.states[state.use];
    need_alike(program, s, a, fmt::format("state {}", state.name), (*home.graph)[rest.value],
               in_stage(program, rest.layout), fmt::format("{}'s {}", body.name, use.name),
               (*body.graph)[use.value], in_stage(program, use.layout));
  }
}

}  // namespace myriad
