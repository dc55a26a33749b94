// The forward and backward pass of a virtual stage for one micro-batch: the caller's inputs, what
// comes from the neighbouring virtual stage, the bodies of each unit, what goes to the next one.
//
// Virtual stage k sends its last y to k + 1 over channel 2 k, and gets the gradient back over
// channel 2 k + 1. Virtual stages that lie on one stage hand over in place.
#include <set>

#include "base/error.h"
#include "passes/stage_actions.h"

namespace myriad {

namespace {

int forward_channel(int k) { return 2 * k; }
int backward_channel(int k) { return 2 * k + 1; }

// Where a body of a unit finds an input: with the neighbours, among the unit's own values of this
// micro-batch, among the scalars of the step, with the caller.
InputOf input_of(const StageActions& s, int k, int unit, int micro_batch) {
  return [&s, k, unit, micro_batch](const Value& v) {
    if (v.port == Port::x) return find_buffer(s, unit_key(unit - 1, micro_batch, name_of(Port::y)));
    if (v.port == Port::dy)
      return find_buffer(s, unit_key(unit + 1, micro_batch, name_of(Port::dx)));
    const BufferKey own = unit_key(unit, micro_batch, v.name), scalar = step_key(v.name);
    if (has_buffer(s, own)) return find_buffer(s, own);
    if (has_buffer(s, scalar)) return find_buffer(s, scalar);
    return find_buffer(s, {BufferScope::virtual_stage, k, micro_batch, v.name});
  };
}

// Inputs of forward bodies that no part of the piece and no neighbour makes.
WantedInputs from_caller(const ActionContext& all, const std::vector<int>& bodies) {
  WantedInputs wanted;
  std::set<std::string> made;
  for (int body : bodies) {
    for (int v : all.program.bodies[body].inputs) {
      const Value& value = all.value(body, v);
      if (value.port != Port::x && !made.count(value.name)) wanted.emplace_back(body, v);
    }
    for (int v : all.program.bodies[body].outputs) made.insert(all.value(body, v).name);
  }
  return wanted;
}

// Receives what the first of these bodies that reads `port` needs: a buffer of unit `from_unit`.
void receive_for(StageActions& s, const std::vector<int>& bodies, Port port, const BufferKey& key,
                 int peer, int channel) {
  for (int body : bodies) {
    for (int v : s.all.program.bodies[body].inputs) {
      if (s.all.value(body, v).port != port) continue;
      const int buffer = add_buffer(s, key, key.index, body, v);
      return receive(s, buffer, key.micro_batch, peer, channel);
    }
  }
  CHECK(false, "nobody takes {}", name_of(port));
}

}  // namespace

void forward_pass(StageActions& s, int k, int micro_batch) {
  ActionContext& all = s.all;
  const std::vector<int> units = all.units_of_virtual_stage(k);
  const LoweredVariant& v = all.variant(micro_batch);
  const auto bodies_of = [&](int unit) -> const std::vector<int>& {
    return v.forward[v.pieces.units[unit]];
  };
  WantedInputs wanted;
  for (int u : units) {
    for (const auto& input : from_caller(all, bodies_of(u))) wanted.push_back(input);
  }
  feed(s, BufferScope::virtual_stage, k, micro_batch, wanted);
  if (k > 0 && all.stage_of(k - 1) != s.number) {
    receive_for(s, bodies_of(units[0]), Port::x,
                unit_key(units[0] - 1, micro_batch, name_of(Port::y)), all.stage_of(k - 1),
                forward_channel(k - 1));
  }
  for (int u : units) {
    for (int body : bodies_of(u)) run_body(s, body, u, micro_batch, input_of(s, k, u, micro_batch));
  }
  if (k + 1 < all.virtual_stages() && all.stage_of(k + 1) != s.number) {
    send(s, find_buffer(s, unit_key(units.back(), micro_batch, name_of(Port::y))),
         all.stage_of(k + 1), forward_channel(k));
  }
}

void backward_pass(StageActions& s, int k, int micro_batch) {
  ActionContext& all = s.all;
  const std::vector<int> units = all.units_of_virtual_stage(k);
  const LoweredVariant& v = all.variant(micro_batch);
  if (k + 1 < all.virtual_stages() && all.stage_of(k + 1) != s.number) {
    receive_for(s, v.backward[v.pieces.units[units.back()]], Port::dy,
                unit_key(units.back() + 1, micro_batch, name_of(Port::dx)), all.stage_of(k + 1),
                backward_channel(k));
  }
  for (size_t i = units.size(); i-- > 0;) {
    const int u = units[i], piece = v.pieces.units[u];
    for (int body : v.recompute[piece])
      run_body(s, body, u, micro_batch, input_of(s, k, u, micro_batch));
    for (int body : v.backward[piece])
      run_body(s, body, u, micro_batch, input_of(s, k, u, micro_batch)).first = micro_batch == 0;
  }
  if (k > 0 && all.stage_of(k - 1) != s.number) {
    send(s, find_buffer(s, unit_key(units[0], micro_batch, name_of(Port::dx))), all.stage_of(k - 1),
         backward_channel(k - 1));
  }
}

}  // namespace myriad
