// The program that comes out of model and plan.
#include "passes/lower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ir/flight.h"
#include "passes/after_pass.h"
#include "passes/toy.h"

namespace myriad {
namespace {

Program lowered(const Toy& toy, Plan plan, LowerOptions options) {
  plan = resolve(plan, toy.layers, options.rows);
  const Emit emit = [&](int64_t n) { return toy_model(toy, n); };
  Lowering l(plan, options);
  run_passes(l, emit, [](const char*, const Lowering& now) { check_after_pass(now); });
  return std::move(l.program);
}

const LoweredBody& body(const Program& p, const std::string& name) {
  for (const LoweredBody& b : p.bodies) {
    if (b.name == name) return b;
  }
  throw Error("no body " + name);
}

std::set<std::string> names(const Program& p) {
  std::set<std::string> out;
  for (const LoweredBody& b : p.bodies) out.insert(b.name);
  return out;
}

// "all_reduce(tg) o", one a move that sends.
std::vector<std::string> transfers(const Program& p, const std::string& name) {
  std::vector<std::string> out;
  const LoweredBody& b = body(p, name);
  for (const Step& s : b.steps) {
    if (begins_collective(s)) {
      out.push_back(fmt::format("{}({}) {}", name_of(s.what), p.mesh.show(s.atoms),
                                (*b.graph)[b.versions[s.ins[0]].value].name));
    }
  }
  return out;
}

int count(const Program& p, int stage, Act act) {
  return static_cast<int>(std::count_if(p.actions[stage].begin(), p.actions[stage].end(),
                                        [&](const Action& a) { return a.act == act; }));
}

using Lines = std::vector<std::string>;

TEST(Lower, LayersShareTheirBodies) {
  const Program two = lowered({.layers = 2}, {}, {.rows = 2}),
                many = lowered({.layers = 40}, {}, {.rows = 2});
  EXPECT_EQ(names(two), names(many));
  EXPECT_EQ(two.bodies.size(), many.bodies.size());
  EXPECT_EQ(body(many, "layer.forward").ops.size(), 5u);  // reads are steps of their own
}

TEST(Lower, OneRankSendsNothing) {
  const Program p = lowered({}, {}, {.rows = 2});
  for (const std::string& name : names(p)) EXPECT_EQ(transfers(p, name), Lines{}) << name;
  EXPECT_EQ(p.mesh.ranks(), 1);
}

TEST(Lower, TensorParallelismIsOneReductionADirection) {
  const Program p = lowered({}, {.tp = 2}, {.rows = 2});
  EXPECT_EQ(transfers(p, "layer.forward"), Lines{"all_reduce(tg) o"});
  EXPECT_EQ(transfers(p, "layer.backward"), Lines{"all_reduce(tg) d.xn"});
}

TEST(Lower, SequenceParallelismGathersAndScatters) {
  const Program p = lowered({.sequence = 4}, {.tp = 2, .sp = true}, {.rows = 2});
  EXPECT_EQ(transfers(p, "layer.forward"), (Lines{"all_gather(tg) xn", "reduce_scatter(tg) o"}));
}

TEST(Lower, WantedLayoutsMayBeGiven) {
  const Wanted nothing = [](const Value&) { return Want{}; };
  const Program p = lowered({}, {.dp = 2}, {.rows = 2, .wanted = nothing});
  EXPECT_EQ(transfers(p, "finish.update"),
            (Lines{"all_reduce(dp) norm.sum", "all_reduce(dp) loss.sum"}));
  for (const std::string& name : names(p)) {
    if (name != "finish.update") {
      EXPECT_EQ(transfers(p, name), Lines{}) << name << ": all ranks do the same work";
    }
  }
}

TEST(Lower, RulesOfThePlanComeLast) {
  const Program p = lowered({.sequence = 4}, {.tp = 2, .rules = "u: f= s=tp\n"}, {.rows = 2});
  const LoweredBody& b = body(p, "layer.forward");
  std::set<std::string> layouts;
  for (const Version& v : b.versions) {
    if ((*b.graph)[v.value].name == "u") layouts.insert(show(v.layout, "bsf", p.mesh));
  }
  EXPECT_TRUE(layouts.count("s:tg"));
}

TEST(Lower, UnevenMicroBatchesGetBodiesOfTheirOwn) {
  const Program p = lowered({}, {.micro_batches = 2}, {.rows = 5});
  EXPECT_TRUE(names(p).count("layer.forward/2"));
  EXPECT_TRUE(names(p).count("layer.forward/3"));
  EXPECT_FALSE(names(p).count("layer.forward"));
  EXPECT_TRUE(names(p).count("layer.update")) << "the optimizer knows no rows";
}

TEST(Lower, ForwardOnlyKnowsParametersAndLossAlone) {
  const Program p = lowered({}, {.pp = 2}, {.rows = 2, .forward_only = true, .keep = {"logits"}});
  for (const State& s : p.states) EXPECT_TRUE(s.name.kind <= StateKind::scalar) << show(s.name);
  for (const std::string& name : names(p))
    EXPECT_TRUE(name.ends_with(".forward") || name == "finish.update") << name;
  const LoweredBody& head = body(p, "head.forward");
  EXPECT_EQ(
      std::count_if(head.outputs.begin(), head.outputs.end(),
                    [&](int v) { return (*head.graph)[head.versions[v].value].name == "logits"; }),
      1);
}

// Programs over the same parameters must place them alike: they share an arena.
TEST(Lower, ParametersComeFirstAmongStates) {
  const Program train = lowered({}, {.dp = 2, .zero = 1}, {.rows = 2}),
                forward = lowered({}, {.dp = 2, .zero = 1}, {.rows = 4, .forward_only = true});
  std::string kinds;
  for (const State& s : train.states) {
    if (kinds.empty() || kinds.back() != letter_of(s.name.kind)) kinds += letter_of(s.name.kind);
  }
  EXPECT_EQ(kinds, "psmvg");
  for (size_t i = 0; forward.states[i].name.kind == StateKind::parameter; ++i) {
    EXPECT_EQ(forward.states[i].name, train.states[i].name);
    EXPECT_EQ(forward.states[i].unit, train.states[i].unit);
    EXPECT_EQ(forward.states[i].stages, train.states[i].stages);
  }
}

TEST(Lower, StatesLieOnTheStageOfTheirUnit) {
  const Program p = lowered({.layers = 4}, {.pp = 2, .vpp = 2, .micro_batches = 2}, {.rows = 2});
  for (const State& s : p.states) {
    if (s.unit < 0) {
      EXPECT_EQ(s.stages, (std::vector<int>{0, 1})) << show(s.name);
      continue;
    }
    const int stage = s.unit == 0   ? 0
                      : s.unit == 5 ? 1
                                    : (s.unit - 1) % 2;  // virtual stage k lies on stage k mod pp
    EXPECT_EQ(s.stages, std::vector<int>{stage}) << show(s.name) << " of unit " << s.unit;
  }
}

TEST(Lower, EveryBoundaryIsCrossedOnceAMicroBatchAndDirection) {
  const Program p = lowered({.layers = 6}, {.pp = 3, .micro_batches = 4}, {.rows = 4});
  for (const auto& [stage, n] : {std::pair(0, 4), {1, 8}, {2, 4}}) {
    EXPECT_EQ(count(p, stage, Act::send), n);
    EXPECT_EQ(count(p, stage, Act::wait), n);
    EXPECT_EQ(count(p, stage, Act::recv), n);
  }
}

TEST(Lower, FirstRunsOfAStepSayThatAccumulationsWrite) {
  const Program p = lowered({}, {.micro_batches = 3}, {.rows = 3});
  std::set<std::pair<int, int>> first;
  for (const Action& a : p.actions[0]) {
    if (a.act != Act::run || !a.first) continue;
    EXPECT_TRUE(first.insert({a.body, a.unit}).second);
    EXPECT_EQ(a.micro_batch, 0);
  }
  EXPECT_EQ(first.size(), 4u);  // embedding, two layers, head
}

TEST(Lower, MeshOfAPlan) {
  const Mesh mesh = mesh_of({.dp = 3, .tp = 4, .pp = 2, .prices = {{"dp", 8}}}, toy_model({}, 1));
  std::string text;
  for (int a = 0; a < mesh.atoms(); ++a)
    text +=
        fmt::format("{} {} {}; ", mesh.axis(static_cast<Atom>(a)).name,
                    mesh.axis(static_cast<Atom>(a)).size, mesh.axis(static_cast<Atom>(a)).price);
  EXPECT_EQ(text, "pp 2 1; dp 3 8; tg 4 1; ");
  EXPECT_TRUE(mesh.knows("cp") && mesh.knows("tr"));
}

std::string refusal_of(Plan plan) {
  try {
    mesh_of(plan, toy_model({}, 1));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Lower, ExpertsLieOverProductsOfAtoms) {
  const auto expect = [](const Plan& plan, std::initializer_list<const char*> said) {
    const std::string what = refusal_of(plan);
    for (const char* text : said)
      EXPECT_NE(what.find(text), std::string::npos) << text << " is not in: " << what;
  };
  expect({.dp = 3, .tp = 4, .ep = 3, .etp = 2},
         {"ep is 3: etp 2 x ep 3 is no product of atoms of dp 3 x tp 4", "nearest: ep 2 or 6"});
  expect({.dp = 2, .tp = 2, .ep = 16}, {"ep is 16", "nearest: ep 4"});
  expect({.dp = 3, .tp = 4, .etp = 5}, {"etp is 5", "nearest: etp 4 or 12"});
  expect({.dp = 3, .tp = 4, .ep = 12, .dispatch = Dispatch::node_gather, .ranks_per_node = 6},
         {"the 6 ranks of etp 1 x ep 12 on a node of 6",
          "nearest: ranks_per_node 4; or dispatch node_relay or flat"});
  EXPECT_EQ(refusal_of({.dp = 3, .tp = 4, .ep = 6, .etp = 2}), "");
}

TEST(Lower, NodesOfExpertsCutTheirAtomsInTwo) {
  const Plan plan{.dp = 8, .ep = 8, .dispatch = Dispatch::node_relay, .ranks_per_node = 2};
  const Mesh mesh = mesh_of(plan, toy_model({}, 1));
  const auto aliases = aliases_of(plan, mesh);
  EXPECT_EQ(mesh.ranks(), 8);
  EXPECT_EQ(aliases.at("ep"), "dp.1,dp.0");
  EXPECT_EQ(aliases.at("ep_n"), "dp.1");
  EXPECT_EQ(aliases.at("near_d"), "dp.0");
  EXPECT_EQ(aliases.at("dp"), "dp.0,dp.1") << "what tells nodes apart comes last";
}

TEST(Lower, UnevenNodesOfExpertsAddTwoAtoms) {
  const Plan plan{.dp = 6,
                  .tp = 2,
                  .sp = true,
                  .ep = 3,
                  .etp = 2,
                  .dispatch = Dispatch::node_relay,
                  .ranks_per_node = 4};
  const Mesh mesh = mesh_of(plan, toy_model({}, 1));
  const auto aliases = aliases_of(plan, mesh);
  EXPECT_EQ(aliases.at("ep"), "dp.0");
  EXPECT_EQ(aliases.at("ep_n"), "node");
  EXPECT_EQ(aliases.at("near_d"), "dp.1");
  EXPECT_EQ(aliases.at("near_s"), "near,tg");
  EXPECT_EQ(aliases.at("home_s"), "tg");
}

TEST(Lower, MicroBatchesTileTheRows) {
  for (int64_t rows : {1, 5, 8, 13}) {
    for (int m = 1; m <= rows; ++m) {
      int64_t at = 0;
      for (int j = 0; j < m; ++j) {
        const Range r = micro_batch_rows(rows, m, j);
        EXPECT_EQ(r.lo, at);
        EXPECT_GE(r.size(), rows / m);
        EXPECT_LE(r.size(), (rows + m - 1) / m);
        at = r.hi;
      }
      EXPECT_EQ(at, rows);
    }
  }
}

TEST(Lower, UnknownAtomsInRulesAreRefused) {
  EXPECT_THROW(lowered({}, {.rules = "*: b=xp\n"}, {.rows = 1}), Error);
}

}  // namespace
}  // namespace myriad
