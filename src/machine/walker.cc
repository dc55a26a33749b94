#include "machine/walker.h"

#include <vector>

#include "base/error.h"

namespace myriad {

namespace {

bool moved_on(Progress p) { return p != Progress::blocked && p != Progress::failed; }

}  // namespace

Walker::Walker(const Program& program, int rank)
    : program_(&program), at_{rank, program.stage_of(rank), 0, -1, 0} {}

void Walker::restart() { at_ = {at_.rank, at_.stage, 0, -1, 0}; }

Progress Walker::advance(Machine& machine) {
  const auto& actions = program_->actions[at_.stage];
  if (at_.action >= static_cast<int>(actions.size())) return Progress::done;
  const Action& action = actions[at_.action];
  if (action.act != Act::run) {
    if (const Progress p = machine.act(at_, action); !moved_on(p)) return p;
    ++at_.action;
    ++at_.flat;
    return Progress::advanced;
  }
  const LoweredBody& body = program_->bodies[action.body];
  if (at_.step < 0) {
    at_.step = 0;
    at_.round = 0;
    rounds_ = body.loop ? machine.rounds(at_, action, body) : 1;
  }
  if (at_.step < static_cast<int>(body.steps.size())) {
    const Step& step = body.steps[at_.step];
    if (!(step.once && at_.round > 0)) {
      if (const Progress p = machine.step(at_, action, body, step); !moved_on(p)) return p;
    }
    ++at_.step;
    ++at_.flat;
  }
  if (at_.step >= static_cast<int>(body.steps.size()) && at_.round + 1 < rounds_) {
    at_.flat -= static_cast<int>(body.steps.size());
    at_.step = 0;
    ++at_.round;
  } else if (at_.step >= static_cast<int>(body.steps.size())) {
    machine.ran(at_, action);
    ++at_.action;
    at_.step = -1;
  }
  return Progress::advanced;
}

void walk_all(const Program& program, Machine& machine) {
  std::vector<Walker> walkers;
  for (int r = 0; r < program.mesh.ranks(); ++r) walkers.emplace_back(program, r);
  for (bool all_done = false; !all_done;) {
    all_done = true;
    bool moved = false;
    for (Walker& w : walkers) {
      Progress p;
      while ((p = w.advance(machine)) == Progress::advanced) moved = true;
      if (p == Progress::failed) throw Error(fmt::format("rank {} failed", w.at().rank), "walk");
      all_done &= p == Progress::done;
    }
    if (!all_done && !moved) throw Error("deadlock: no rank can advance", "walk");
  }
}

}  // namespace myriad
