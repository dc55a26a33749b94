#include "passes/actions.h"

#include <algorithm>
#include <tuple>

#include "passes/stage_actions.h"

namespace myriad {

namespace {

// Kind by kind (see StateKind), then unit by unit: programs over the same parameters place them
// alike.
void sort_states(Program& program) {
  std::vector<int> order(program.states.size()), rank(order.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  const auto key = [&](int i) {
    const State& s = program.states[i];
    return std::tie(s.name.kind, s.unit, s.name.of);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
  std::vector<State> sorted;
  for (size_t i = 0; i < order.size(); ++i) {
    rank[order[i]] = static_cast<int>(i);
    sorted.push_back(std::move(program.states[order[i]]));
    std::sort(sorted.back().stages.begin(), sorted.back().stages.end());
  }
  program.states = std::move(sorted);
  for (auto& actions : program.actions) {
    for (Action& a : actions) {
      for (int& s : a.states) s = rank[s];
    }
  }
}

}  // namespace

void make_actions(const LoweredPieces& lowered, const Plan& plan, const LowerOptions& options,
                  const Schedule& schedule, Program& program) {
  program.actions.assign(plan.pp, {});
  program.buffers.clear();
  program.states.clear();
  ActionContext all{
      .lowered = lowered, .plan = plan, .rows = options.rows, .program = program, .states = {}};
  for (int n = 0; n < plan.pp; ++n) {
    StageActions s{.all = all, .number = n, .buffers = {}};
    begin_step(s);
    for (const Slot& slot : schedule[n]) {
      const int k = slot.chunk * plan.pp + n;
      slot.forward ? forward_pass(s, k, slot.micro_batch) : backward_pass(s, k, slot.micro_batch);
    }
    wait_for_all_sends(s);
    options.forward_only ? finish_step(s) : optimize(s);
  }
  sort_states(program);
}

}  // namespace myriad
