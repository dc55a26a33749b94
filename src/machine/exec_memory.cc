#include "machine/exec_memory.h"

namespace myriad {

RankMemory::RankMemory(const Program& program, int rank, MemoryPlan plan, std::byte* arena,
                       const Kernels& kernels)
    : program_(program), rank_(rank), plan_(std::move(plan)), arena_(arena) {
  for (const LoweredBody& body : program.bodies)
    bodies_.push_back(prepare_body(program.mesh, body, rank, kernels));
}

const BoxRows& RankMemory::rows_of(const Action& a, int action, int v) {
  const PreparedBody& body = bodies_[a.body];
  return rows_.get(place(a, action, body.table[v]), body.boxes[v]);
}

Tensor RankMemory::place(const Action& a, int action, int v) const {
  Tensor t = bodies_[a.body].versions[v];
  t.data = arena_ + plan_.actions[action].versions[v];
  return t;
}

Tensor RankMemory::version(const Action& a, int action, int v) {
  Tensor t = place(a, action, v);
  if (bodies_[a.body].table[v] >= 0) t.size[0] = rows_of(a, action, v).set.n;
  return t;
}

Tensor RankMemory::buffer(int index) const {
  const Buffer& b = program_.buffers[index];
  Tensor t = bodies_[b.body].versions[b.version];
  t.data = arena_ + plan_.buffers[index];
  return t;
}

Tensor RankMemory::state(int index) const {
  const State& s = program_.states[index];
  const LoweredBody& body = program_.bodies[s.body];
  const StateUse& use = body.states[s.use];
  Tensor t = describe(program_.mesh, (*body.graph)[use.value], use.layout, rank_);
  if (plan_.states[index] >= 0) t.data = arena_ + plan_.states[index];
  return t;
}

}  // namespace myriad
