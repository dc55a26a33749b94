// What a stage does before the passes of a step and after them. Before: sums of the step become
// zero, and the scalars that start backward passes come in. After: gradients are reduced, the
// squares of all of them are added to the norm, the finish body turns the norm into the clipping
// factor (all stages run it together, since the norm goes over all of them), and parameters move.
//
// A tied weight is held by the first and by the last stage. Each of them reduces the gradient sum
// of its own use, the two exchange the results, and then both add them and update their copies
// alike; only the first adds the squares to the norm.
#include <set>

#include "base/error.h"
#include "passes/stage_actions.h"

namespace myriad {

namespace {

// For bodies that read states only.
int no_input(const Value& v) { CHECK(false, "the body reads {}", v.name); }

WantedInputs inputs_fed_by(const ActionContext& all, int body, FedBy who) {
  WantedInputs wanted;
  for (int v : all.program.bodies[body].inputs) {
    if (fed_by(all.value(body, v).port) == who) wanted.emplace_back(body, v);
  }
  return wanted;
}

// lr and the bias corrections come in once a stage, with the first update.
void update(StageActions& s, int body, int unit, BufferScope scope) {
  feed(s, BufferScope::step, 0, -1, inputs_fed_by(s.all, body, FedBy::optimizer));
  run_body(s, body, unit, -1, [&](const Value& v) {
    const BufferKey own{scope, scope == BufferScope::unit ? unit : 0, -1, v.name};
    return find_buffer(s, has_buffer(s, own) ? own : step_key(v.name));
  });
}

// The first and the last stage exchange what each has reduced: `mine`.
void exchange_tied(StageActions& s, int mine, int other_reduce, bool is_first) {
  ActionContext& all = s.all;
  const int peer = is_first ? all.plan.pp - 1 : 0;
  const int base = 2 * all.virtual_stages();  // behind the channels of the pipeline
  const int out_channel = base + (is_first ? 0 : 1), in_channel = base + (is_first ? 1 : 0);
  Action& out = append(s, Act::send);
  out.ins = {mine};
  out.peer = peer;
  out.channel = out_channel;
  const int version = all.program.bodies[other_reduce].outputs[0];
  const BufferKey key = tied_key(all.value(other_reduce, version).name);
  const int theirs = add_buffer(s, key, -1, other_reduce, version);
  all.program.buffers[theirs].name += "/tied";
  receive(s, theirs, -1, peer, in_channel);
  Action& end = append(s, Act::wait);
  end.ins = {mine};
  end.peer = peer;
  end.channel = out_channel;
}

void reduce_tied(StageActions& s, bool has_first, bool has_last) {
  const OptimizerBodies& o = s.all.lowered.optimizer;
  const int reduce[2] = {o.reduce[s.all.pieces().tied], o.reduce_other};
  int mine = -1;
  if (has_first) mine = run_body(s, reduce[0], 0, -1, no_input, BufferScope::tied).outs[0];
  if (has_last)
    mine = run_body(s, reduce[1], s.all.head(), -1, no_input, BufferScope::tied).outs[0];
  if (!has_first || !has_last) exchange_tied(s, mine, reduce[has_first ? 1 : 0], has_first);
  run_body(
      s, o.sum, -1, -1, [&](const Value& v) { return find_buffer(s, tied_key(v.name)); },
      BufferScope::tied);
}

}  // namespace

void begin_step(StageActions& s) {
  ActionContext& all = s.all;
  const LoweredVariant& first = all.lowered.first();
  std::set<int> sums;
  const auto note_sums = [&](int body, int unit) {
    const auto& states = all.program.bodies[body].states;
    for (size_t i = 0; i < states.size(); ++i) {
      const StateKind kind = states[i].name.kind;
      if (kind == StateKind::scalar || kind == StateKind::counter)
        sums.insert(state_of(s, body, static_cast<int>(i), unit));
    }
  };
  note_sums(all.lowered.finish, -1);
  WantedInputs scalars;
  for (int u : all.units_of_stage(s.number)) {
    const int piece = first.pieces.units[u];
    for (int body : first.forward[piece]) note_sums(body, u);
    for (int body : first.backward[piece]) {
      for (const auto& input : inputs_fed_by(all, body, FedBy::step)) scalars.push_back(input);
    }
  }
  for (int state : sums) append(s, Act::zero).states = {state};
  feed(s, BufferScope::step, 0, -1, scalars);
}

void finish_step(StageActions& s) {
  const int body = s.all.lowered.finish;
  feed(s, BufferScope::step, 0, -1, inputs_fed_by(s.all, body, FedBy::optimizer));
  run_body(
      s, body, -1, -1, [&](const Value& v) { return find_buffer(s, step_key(v.name)); },
      BufferScope::step);
}

void optimize(StageActions& s) {
  ActionContext& all = s.all;
  const OptimizerBodies& o = all.lowered.optimizer;
  const std::vector<int>& piece_of = all.pieces().units;
  const int tied = all.pieces().tied;
  const std::vector<int> units = all.units_of_stage(s.number);
  const bool has_first = units.front() == 0, has_last = units.back() == all.head();
  const bool has_tied = tied >= 0 && (has_first || has_last);
  for (int u : units) {
    if (const int body = o.reduce[piece_of[u]]; body >= 0) run_body(s, body, u, -1, no_input);
  }
  if (has_tied) reduce_tied(s, has_first, has_last);
  for (int u : units) {
    if (const int body = o.square[piece_of[u]]; body >= 0) {
      run_body(s, body, u, -1,
               [&](const Value& v) { return find_buffer(s, unit_key(u, -1, v.name)); });
    }
  }
  if (has_tied && has_first) {
    run_body(s, o.square[tied], -1, -1,
             [&](const Value& v) { return find_buffer(s, tied_key(v.name)); });
  }
  finish_step(s);
  for (int u : units) {
    if (const int body = o.update[piece_of[u]]; body >= 0) update(s, body, u, BufferScope::unit);
  }
  if (has_tied) update(s, o.update[tied], -1, BufferScope::tied);
}

}  // namespace myriad
