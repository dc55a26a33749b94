// Finishes moved away from their starts by hand, within bodies and across actions: the same bits
// and counts, and a peak that is the one planned.
#include "ir/flight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ir/difference.h"
#include "ir/print.h"
#include "machine/profile.h"
#include "passes/check.h"
#include "verify/trial.h"

namespace myriad {
namespace {

using Random = std::mt19937;

bool has(const std::vector<int>& list, int v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

// The state in which a version lies when it is read; -1: none.
int state_read(const LoweredBody& body, int version) {
  for (const Step& s : body.steps) {
    if (s.kind == StepKind::read && s.outs[0] == version) return s.state;
  }
  return -1;
}

bool writes(const Step& step, int state) {
  return (step.kind == StepKind::write || step.kind == StepKind::accum) && step.state == state;
}

// Moves each finish down by a random number of steps, at most to where its result is used or the
// state that it sends from is written to. Returns how many moved.
int move_within(LoweredBody& body, Random& random) {
  const std::vector<int> sources = sources_in_flight(body);
  int moved = 0;
  for (int t = static_cast<int>(body.steps.size()) - 1; t >= 0; --t) {
    if (body.steps[t].kind != StepKind::finish) continue;
    const int from = sources[body.steps[t].ins[0]], to = body.steps[t].outs[0];
    const int state = from < 0 ? -1 : state_read(body, from);
    int end = t + 1;
    while (end < static_cast<int>(body.steps.size()) && !has(body.steps[end].ins, to) &&
           !(state >= 0 && writes(body.steps[end], state)))
      ++end;
    const int by = static_cast<int>(random() % static_cast<unsigned>(end - t));
    std::rotate(body.steps.begin() + t, body.steps.begin() + t + 1,
                body.steps.begin() + t + 1 + by);
    moved += by > 0;
  }
  return moved;
}

// The place among outputs of what the last use of a finish hands on; -1: the finish has to stay.
int handed_on(const Program& p, const LoweredBody& body, const Step& finish) {
  const int pp = p.mesh.find("pp");
  const bool over_stages = pp >= 0 && (finish.atoms.set() >> pp & 1);
  if (finish.kind != StepKind::finish || body.loop || over_stages ||
      (*body.graph)[body.versions[finish.outs[0]].value].sparse() ||
      sources_in_flight(body)[finish.ins[0]] < 0)
    return -1;
  for (const Step& s : body.steps) {
    if (has(s.ins, finish.outs[0])) return -1;
  }
  const auto at = std::find(body.outputs.begin(), body.outputs.end(), finish.outs[0]);
  return at == body.outputs.end() ? -1 : static_cast<int>(at - body.outputs.begin());
}

LoweredBody only(const LoweredBody& body, Step finish) {
  LoweredBody f{.name = body.name + ".finish", .piece = body.piece, .graph = body.graph};
  f.versions = {body.versions[finish.ins[0]], body.versions[finish.outs[0]]};
  finish.ins = {0};
  finish.outs = {1};
  f.steps = {finish};
  f.inputs = {0};
  f.outputs = {1};
  return f;
}

// Takes the finish of output `out` out of the runs of a body, and puts a run of `finishing` before
// what first reads it or writes to the state that it is sent from; `version`: of the body, in
// flight.
void move_across(Program& p, int body, int out, int version, int state, int finishing) {
  for (auto& actions : p.actions) {
    for (size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].act != Act::run || actions[i].body != body) continue;
      const int to = actions[i].outs[out], in_flight = static_cast<int>(p.buffers.size());
      p.buffers.push_back({p.buffers[to].name + " in flight", body, version});
      actions[i].outs[out] = in_flight;
      const int of_program = state < 0 ? -1 : actions[i].states[state];
      const auto stops = [&](const Action& a) {
        if (has(a.ins, to)) return true;
        const auto at = std::find(a.states.begin(), a.states.end(), of_program);
        if (of_program < 0 || at == a.states.end()) return false;
        if (a.act == Act::zero) return true;
        const LoweredBody& b = p.bodies[a.body];
        return std::any_of(b.steps.begin(), b.steps.end(), [&](const Step& s) {
          return writes(s, static_cast<int>(at - a.states.begin()));
        });
      };
      size_t j = i + 1;
      while (j < actions.size() && !stops(actions[j])) ++j;
      actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(j),
                     {.act = Act::run,
                      .body = finishing,
                      .unit = actions[i].unit,
                      .micro_batch = actions[i].micro_batch,
                      .ins = {in_flight},
                      .outs = {to}});
    }
  }
}

int move_across(Program& p) {
  int moved = 0;
  const int n = static_cast<int>(p.bodies.size());
  for (int b = 0; b < n; ++b) {
    for (size_t t = 0; t < p.bodies[b].steps.size(); ++t) {
      const Step finish = p.bodies[b].steps[t];
      const int out = handed_on(p, p.bodies[b], finish);
      if (out < 0) continue;
      p.bodies.push_back(only(p.bodies[b], finish));
      LoweredBody& body = p.bodies[b];
      body.steps.erase(body.steps.begin() + static_cast<std::ptrdiff_t>(t--));
      body.outputs[out] = finish.ins[0];
      const int from = sources_in_flight(body)[finish.ins[0]];
      move_across(p, b, out, finish.ins[0], state_read(body, from),
                  static_cast<int>(p.bodies.size()) - 1);
      ++moved;
    }
  }
  return moved;
}

struct Moved {
  int within = 0, across = 0;
};

void expect_the_same(const Variant& variant, const Plan& plan, unsigned seed, Moved& moved) {
  SCOPED_TRACE(fmt::format("{} {} seed {}", variant.name, show(plan), seed));
  Pool pool(2);
  const Record before = run_trial(variant, plan, pool);
  Job::Options options;
  options.rewrite_lowered = [&](Program& p) {
    const bool loops =
        std::any_of(p.bodies.begin(), p.bodies.end(), [](const LoweredBody& b) { return b.loop; });
    const StepProfile plain = loops ? StepProfile{} : profile(p, {});
    Random random(seed);
    moved.across += move_across(p);
    for (LoweredBody& body : p.bodies) moved.within += move_within(body, random);
    check_program(p);
    EXPECT_EQ(difference(p, parse_program(print_program(p))), "");
    EXPECT_TRUE(loops || profile(p, {}) == plain) << "other counts or another order";
  };
  const Record after = run_trial(variant, plan, pool, nullptr, options);
  EXPECT_EQ(first_difference(before, after), "");
  EXPECT_EQ(before.faults, std::vector<std::string>{});
  EXPECT_EQ(after.faults, std::vector<std::string>{});  // the peak that is planned among them
}

void expect_the_same(const std::string& name, size_t most) {
  Moved moved;
  for (const Variant& v : all_variants()) {
    if (v.name != name) continue;
    std::vector<Plan> plans = all_plans(v, 4);
    std::erase_if(plans, [](const Plan& p) { return p.ranks() == 1; });
    plans = pairwise(plans, 5);
    plans.resize(std::min(plans.size(), most));
    unsigned seed = 0;
    for (const Plan& plan : plans) expect_the_same(v, plan, ++seed, moved);
  }
  EXPECT_GT(moved.within, 5);
  EXPECT_GT(moved.across, 5);
}

TEST(Flight, FinishesMoveAnywhere) { expect_the_same("base", 24); }
TEST(Flight, WithTiedWeights) { expect_the_same("tied", 8); }
TEST(Flight, WithExpertsInRounds) { expect_the_same("experts", 24); }
TEST(Flight, InBf16) { expect_the_same("bf16experts", 8); }

}  // namespace
}  // namespace myriad
