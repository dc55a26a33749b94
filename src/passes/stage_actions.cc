// How actions are appended to a stage. A body names its inputs, outputs and states for itself; here
// they become buffers and states of the whole program. A buffer is found by its key, which says
// whose value it holds, so that two units of one kind, which share their bodies, do not meet.
#include "passes/stage_actions.h"

#include <algorithm>

#include "base/error.h"

namespace myriad {

const LoweredVariant& ActionContext::variant(int micro_batch) const {
  return lowered.variants.at(micro_batch_rows(rows, plan.micro_batches, micro_batch).size());
}

// The embedding joins the first virtual stage, the head the last.
std::vector<int> ActionContext::units_of_virtual_stage(int k) const {
  int lo = 1;
  for (int i = 0; i < k; ++i) lo += plan.stages[i];
  std::vector<int> units;
  if (k == 0) units.push_back(0);
  for (int i = 0; i < plan.stages[k]; ++i) units.push_back(lo + i);
  if (k == virtual_stages() - 1) units.push_back(head());
  return units;
}

std::vector<int> ActionContext::units_of_stage(int stage) const {
  std::vector<int> units;
  for (int chunk = 0; chunk < plan.vpp; ++chunk) {
    for (int u : units_of_virtual_stage(chunk * plan.pp + stage)) units.push_back(u);
  }
  return units;
}

const Value& ActionContext::value(int body, int version) const {
  const LoweredBody& b = program.bodies[body];
  return (*b.graph)[b.versions[version].value];
}

BufferKey unit_key(int unit, int micro_batch, std::string value) {
  return {BufferScope::unit, unit, micro_batch, std::move(value)};
}
BufferKey step_key(std::string value) { return {BufferScope::step, 0, -1, std::move(value)}; }
BufferKey tied_key(std::string value) { return {BufferScope::tied, 0, -1, std::move(value)}; }

Action& append(StageActions& s, Act act) {
  auto& actions = s.all.program.actions[s.number];
  actions.push_back({.act = act});
  return actions.back();
}

int add_buffer(StageActions& s, const BufferKey& key, int unit, int body, int version) {
  std::string name = s.all.value(body, version).name;
  if (unit >= 0) name += fmt::format("/{}", unit);
  if (key.micro_batch >= 0) name += fmt::format(".mb{}", key.micro_batch);
  auto& buffers = s.all.program.buffers;
  buffers.push_back({std::move(name), body, version});
  return s.buffers[key] = static_cast<int>(buffers.size()) - 1;
}

bool has_buffer(const StageActions& s, const BufferKey& key) { return s.buffers.contains(key); }

int find_buffer(const StageActions& s, const BufferKey& key) {
  const auto at = s.buffers.find(key);
  CHECK(at != s.buffers.end(), "stage {} has no {} of {}, micro-batch {}", s.number, key.value,
        key.index, key.micro_batch);
  return at->second;
}

namespace {

// The unit that owns a state. Scalars belong to no unit. Parameter and moments of a tied weight
// belong to the embedding, while embedding and head have a gradient sum each.
int owner_of(const ActionContext& all, int body, const StateName& state, int unit) {
  if (state.kind == StateKind::scalar) return -1;
  const Pieces& p = all.pieces();
  const int piece = all.program.bodies[body].piece;
  const bool sum = state.kind == StateKind::gradient_sum;
  if (piece == p.tied) return sum && body == all.lowered.optimizer.reduce_other ? all.head() : 0;
  if (sum) return unit;
  const int param = p.pieces[piece].find(state.of);
  return param >= 0 && p.pieces[piece].params[param].tied ? 0 : unit;
}

}  // namespace

int state_of(StageActions& s, int body, int use, int unit) {
  Program& program = s.all.program;
  const StateName& name = program.bodies[body].states[use].name;
  const int owner = owner_of(s.all, body, name, unit);
  const auto [at, is_new] =
      s.all.states.try_emplace({owner, name}, static_cast<int>(program.states.size()));
  if (is_new) program.states.push_back({owner, name, body, use, {}});
  std::vector<int>& held_by = program.states[at->second].stages;
  if (std::find(held_by.begin(), held_by.end(), s.number) == held_by.end())
    held_by.push_back(s.number);
  return at->second;
}

Action& run_body(StageActions& s, int body, int unit, int micro_batch, const InputOf& input,
                 BufferScope scope) {
  Action a{.act = Act::run, .body = body, .unit = unit, .micro_batch = micro_batch};
  const LoweredBody& b = s.all.program.bodies[body];
  for (int v : b.inputs) a.ins.push_back(input(s.all.value(body, v)));
  for (size_t i = 0; i < b.states.size(); ++i)
    a.states.push_back(state_of(s, body, static_cast<int>(i), unit));
  for (int v : b.outputs) {
    const BufferKey key{scope, scope == BufferScope::unit ? unit : 0, micro_batch,
                        s.all.value(body, v).name};
    a.outs.push_back(add_buffer(s, key, unit, body, v));
  }
  auto& actions = s.all.program.actions[s.number];
  actions.push_back(std::move(a));
  return actions.back();
}

void feed(StageActions& s, BufferScope scope, int index, int micro_batch,
          const WantedInputs& wanted) {
  Action a{.act = Act::feed, .micro_batch = micro_batch};
  for (const auto& [body, version] : wanted) {
    const BufferKey key{scope, index, micro_batch, s.all.value(body, version).name};
    if (!has_buffer(s, key)) a.outs.push_back(add_buffer(s, key, -1, body, version));
  }
  if (!a.outs.empty()) s.all.program.actions[s.number].push_back(std::move(a));
}

namespace {

void wait(StageActions& s, int channel, const StageActions::Sending& sending) {
  Action& a = append(s, Act::wait);
  a.ins = {sending.buffer};
  a.peer = sending.peer;
  a.channel = channel;
}

}  // namespace

void send(StageActions& s, int buffer, int peer, int channel) {
  if (const auto at = s.sending.find(channel); at != s.sending.end()) wait(s, channel, at->second);
  Action& a = append(s, Act::send);
  a.ins = {buffer};
  a.peer = peer;
  a.channel = channel;
  s.sending[channel] = {buffer, peer};
}

void receive(StageActions& s, int buffer, int micro_batch, int peer, int channel) {
  Action& a = append(s, Act::recv);
  a.micro_batch = micro_batch;
  a.outs = {buffer};
  a.peer = peer;
  a.channel = channel;
}

void wait_for_all_sends(StageActions& s) {
  for (const auto& [channel, sending] : s.sending) wait(s, channel, sending);
  s.sending.clear();
}

}  // namespace myriad
