// Planted faults in expert layers: each test plants one in a copy of the model or of the program
// and names the checks that see it. The same run without it passes all of them.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "passes/check.h"
#include "verify/caught.h"
#include "verify/golden.h"
#include "verify/layouts.h"
#include "verify/trial.h"

namespace myriad {
namespace {

struct Setup {
  std::string variant;  // verify/variants.h; or a folder of tests/golden
  Plan plan;
};

struct Fault {
  std::function<void(ModelConfig&)> model = {};  // in the layout under test alone
  std::function<void(Pieces&)> pieces = {};      // in the model: the same in every layout
  std::function<void(Program&)> program = {};    // in the layout under test alone
};

const Variant& variant(const std::string& name) {
  static const std::vector<Variant> all = all_variants();
  for (const Variant& v : all) {
    if (v.name == name) return v;
  }
  throw std::logic_error(name);
}

bool is_routing(const std::string& tensor) {
  return tensor.starts_with("tokens per expert") || tensor.starts_with("dropped");
}

Names seen_in(const Record& run, const Record& one) {
  Names names;
  for (const Deviation& d : compare(run, one)) {
    if (!(d.error <= kLayoutBound)) names.insert(is_routing(d.tensor) ? "routing" : "layouts");
  }
  for (const std::string& fault : run.faults)
    names.insert(fault.find("predicted") != std::string::npos ? "counts" : "copies");
  return names;
}

// Names of the checks that see the fault:
//   check_program  the checker refuses the program
//   counts         measured FLOPs, bytes, messages or memory are not those predicted
//   copies         ranks hold different bits of the same part
//   layouts        gradients, norms, losses or weights are not those of one rank
//   routing        tokens per expert or dropped choices are not
//   golden         numbers are not those of another implementation
Names caught(const Setup& setup, const Fault& fault) {
  Names names;
  Job::Options options;
  options.rewrite_pieces = fault.pieces;
  options.rewrite = [&](Program& p) {
    if (fault.program) fault.program(p);
    try {
      check_program(p);
    } catch (const Error&) {
      names.insert("check_program");
    }
  };
  Pool pool(2);
  if (setup.variant.starts_with("mixtral") || setup.variant.starts_with("qwen3_moe")) {
    const std::string folder = MYRIAD_SOURCE "/tests/golden/" + setup.variant;
    if (!verify_golden(folder, setup.plan, DType::f64, pool, KernelSet::ref, options).ok)
      names.insert("golden");
    return names;
  }
  Variant v = variant(setup.variant);
  const auto on = [&](Plan p) {
    return resolve(std::move(p), static_cast<int>(v.model.layers), v.rows);
  };
  Job::Options same_model;
  same_model.rewrite_pieces = fault.pieces;
  const Record one =
      run_trial(v, on({.micro_batches = v.by_micro_batch() ? setup.plan.micro_batches : 1}), pool,
                nullptr, same_model);
  if (fault.model) fault.model(v.model);
  try {
    names.merge(seen_in(run_trial(v, on(setup.plan), pool, nullptr, options), one));
  } catch (const Failure&) {
    names.insert("copies");
  }
  return names;
}

// All of `by` see the fault (others may), none of `not_by` does, and nothing is seen without it.
void expect_caught(const Setup& setup, const Fault& fault, const Names& by,
                   const Names& not_by = {}) {
  const Names clean = caught(setup, {});
  expect_seen(clean, caught(setup, fault), by, not_by);
}

// Rewrites.

// Moves of this kind of values in bodies, both by pattern, become local; at least one must be
// there.
std::function<void(Program&)> drop(const std::string& body_pattern,
                                   const std::string& value_pattern, MoveKind what) {
  return [=](Program& p) {
    int n = 0;
    for (LoweredBody& body : p.bodies) {
      if (!like(body_pattern, body.name)) continue;
      for (Step& step : body.steps) {
        if ((step.kind != StepKind::move && step.kind != StepKind::start) || step.what != what)
          continue;
        if (!like(value_pattern, (*body.graph)[body.versions[step.ins[0]].value].name)) continue;
        keep_own(body, step);
        ++n;
      }
    }
    ASSERT_GT(n, 0) << "no move of " << value_pattern << " in " << body_pattern;
  };
}

// Ops of a row in bodies by pattern, whose first output has such a name or gradient name.
template <class F>
std::function<void(Program&)> change(const std::string& body_pattern, Row row,
                                     const std::string& value_pattern, F f) {
  return [=](Program& p) {
    int n = 0;
    for (LoweredBody& body : p.bodies) {
      if (!like(body_pattern, body.name)) continue;
      for (Op& op : body.ops) {
        if (op.row != row || !like(value_pattern, (*body.graph)[op.outs[0]].name)) continue;
        f(op);
        ++n;
      }
    }
    ASSERT_GT(n, 0) << "no " << value_pattern << " in " << body_pattern;
  };
}

template <class F>
std::function<void(Pieces&)> change_model(Row row, const std::string& rule, F f) {
  return [=](Pieces& pieces) {
    int n = 0;
    for (Piece& piece : pieces.pieces) {
      for (Op& op : piece.forward.ops) {
        if (op.row != row ||
            fmt::format("{}->{}", fmt::join(op.in_labels, ","), op.out_labels[0]) != rule)
          continue;
        f(op);
        ++n;
      }
    }
    ASSERT_GT(n, 0) << "no " << rule;
  };
}

const Plan kDp2Ep2{.dp = 2, .ep = 2}, kTp2{.tp = 2}, kTp2Sp{.tp = 2, .sp = true};

Plan over_nodes(Dispatch dispatch) {
  return {.dp = 4, .ep = 4, .dispatch = dispatch, .ranks_per_node = 2};
}

// Gradients.

TEST(ExpertFaults, ExpertGradientsNormalisedByDpInsteadOfExpertDp) {
  const auto half =
      change("moe.backward.1", Row::contract, "d.e[gud].w", [](Op& op) { op.attrs.scale *= 0.5; });
  expect_caught({"experts", kDp2Ep2}, {.program = half}, {"layouts"});
}

TEST(ExpertFaults, ExpertGradientsNotReducedOverExpertDp) {
  expect_caught({"experts", {.dp = 2}},
                {.program = drop("moe.settle", "eg.w/g", MoveKind::all_reduce)}, {"copies"});
}

TEST(ExpertFaults, RouterGradientWithoutTheTpSum) {
  expect_caught({"experts", kTp2Sp},
                {.program = drop("moe.settle", "router.w/g", MoveKind::all_reduce)}, {"copies"});
}

TEST(ExpertFaults, NormCountsExpertReplicas) {
  expect_caught({"experts", {.dp = 2}}, {.program = drop("moe.square", "*", MoveKind::first)},
                {"layouts"});
}

TEST(ExpertFaults, NoGradientThroughTheWeightsOfChoices) {
  const auto stop =
      change_model(Row::contract, "ebsf,ebs->ebsf", [](Op& op) { op.attrs.stop = 1u << 1; });
  expect_caught({"experts", kDp2Ep2}, {.pieces = stop}, {}, {"layouts"});
  expect_caught({"mixtral", kDp2Ep2}, {.pieces = stop}, {"golden"});
}

// Losses and balance.

TEST(ExpertFaults, LossTimesMicroBatches) {
  const auto times = [](ModelConfig& m) { m.moe.routing.load_balance *= 2; };
  expect_caught({"experts", {.micro_batches = 2}}, {.model = times}, {"layouts"});
}

TEST(ExpertFaults, LossOverAllChoicesInsteadOfTokens) {
  const auto share = change_model(Row::contract, "x,x->", [](Op& op) { op.attrs.scale /= 2; });
  expect_caught({"experts", kDp2Ep2}, {.pieces = share}, {}, {"layouts"});
  expect_caught({"mixtral", kDp2Ep2}, {.pieces = share}, {"golden"});
}

TEST(ExpertFaults, BiasMovedByLocalCounts) {
  expect_caught({"groups", {.dp = 2}}, {.program = drop("moe.*", "cnt", MoveKind::all_reduce)},
                {"copies"});
}

// Rows.

TEST(ExpertFaults, CapacityOfTheTokensOfARank) {
  const auto part = change("moe.forward.0", Row::fits, "fit",
                           [](Op& op) { op.attrs.capacity = (op.attrs.capacity + 1) / 2; });
  expect_caught({"capacity", {.dp = 2}}, {.program = part}, {"layouts", "routing"});
}

TEST(ExpertFaults, CapacityInTheOrderOfPlaces) {
  const auto by_place = change("moe.forward.0", Row::fits, "fit", [](Op& op) { op.attrs.cp = 1; });
  expect_caught({"capacity", {.cp = 2}}, {.program = by_place}, {"layouts", "routing"});
}

TEST(ExpertFaults, WindowOffByOne) {
  const auto narrow = change("moe.*", Row::window, "*", [](Op& op) { --op.attrs.bound; });
  Plan rounds = kDp2Ep2;
  rounds.expert_rows_bound = 0.3;
  expect_caught({"experts", rounds}, {.program = narrow}, {"layouts", "counts"});
}

TEST(ExpertFaults, RowsNotSentBack) {
  expect_caught({"experts", kDp2Ep2},
                {.program = drop("moe.forward.1", "ey", MoveKind::all_to_all)},
                {"check_program", "layouts"});
}

TEST(ExpertFaults, GradientRowsNotExchanged) {
  expect_caught({"experts", kDp2Ep2},
                {.program = drop("moe.backward.1", "*", MoveKind::all_to_all)},
                {"check_program", "layouts"});
}

// Dispatch between nodes.

TEST(ExpertFaults, TokensNotGatheredFromOtherNodes) {
  expect_caught({"experts", over_nodes(Dispatch::node_gather)},
                {.program = drop("moe.forward.1", "xn2", MoveKind::all_gather)},
                {"check_program", "layouts", "counts"});
}

TEST(ExpertFaults, SumsOfOtherNodesLeftOut) {
  expect_caught({"experts", over_nodes(Dispatch::node_gather)},
                {.program = drop("moe.forward.2", "m", MoveKind::reduce_scatter)},
                {"check_program", "layouts", "counts"});
}

// Each choice crosses by itself: right, but not the rows that were promised.
TEST(ExpertFaults, EachChoiceLeads) {
  const auto each_by_itself = [](Op& op) {
    op.attrs.parts = op.attrs.experts;
    op.attrs.ranks_per_node = 1;
  };
  const auto alone = change("moe.*", Row::leads, "*", each_by_itself);
  const auto all = [=](Program& p) {
    alone(p);
    for (const Row row : {Row::spread, Row::collapse}) change("moe.*", row, "*", each_by_itself)(p);
  };
  expect_caught({"experts", over_nodes(Dispatch::node_relay)}, {.program = all}, {"counts"},
                {"layouts"});
}

TEST(ExpertFaults, NodesOfAnotherSize) {
  expect_caught({"experts", over_nodes(Dispatch::flat)},
                {.program = [](Program& p) { p.ranks_per_node = 1; }}, {"counts"},
                {"layouts", "copies"});
}

// Experts that all use.

TEST(ExpertFaults, SharedExpertCountedByEachRankOfEp) {
  const auto twice = change("moe.forward.2", Row::contract, "*", [](Op& op) {
    if (op.out_labels[0] == "bsd") op.attrs.scale *= 2;
  });
  expect_caught({"groups", kDp2Ep2}, {.program = twice}, {"layouts"});
}

TEST(ExpertFaults, SharedExpertNotSummedOverTp) {
  expect_caught({"groups", kTp2}, {.program = drop("moe.forward.2", "*", MoveKind::all_reduce)},
                {"check_program", "layouts"});
}

}  // namespace
}  // namespace myriad
