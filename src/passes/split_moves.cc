#include "passes/split_moves.h"

#include <utility>

namespace myriad {

namespace {

void split_moves(LoweredBody& body) {
  std::vector<Step> steps;
  for (Step& step : body.steps) {
    if (step.kind != StepKind::move || !sends(step.what)) {
      steps.push_back(std::move(step));
      continue;
    }
    const Version& made = body.versions[step.outs[0]];
    const int in_flight = static_cast<int>(body.versions.size());
    body.versions.push_back({.value = made.value, .layout = made.layout, .in_flight = true});
    Step start = step, finish = step;
    start.kind = StepKind::start;
    start.outs = {in_flight};
    finish.kind = StepKind::finish;
    finish.ins = {in_flight};
    steps.push_back(std::move(start));
    steps.push_back(std::move(finish));
  }
  body.steps = std::move(steps);
}

}  // namespace

void split_moves(Program& program) {
  for (LoweredBody& body : program.bodies) split_moves(body);
}

}  // namespace myriad
