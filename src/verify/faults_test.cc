// Planted faults: each test plants one of pitfalls.md in a copy of model, program or input and
// names the checks that see it. The same run without the fault passes all of them.
#include "verify/faults.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "ir/builder.h"
#include "verify/caught.h"

namespace myriad {
namespace {

// All of `by` see the fault (others may), and nothing is seen without it.
void expect_caught(const Setup& setup, const Fault& fault, const Names& by,
                   const Names& not_by = {}) {
  static std::map<std::string, Names> cleanly;  // many faults share a setup
  const std::string key = fmt::format("{} {} {} {}", setup.golden, show(setup.plan),
                                      setup.plan.rules, setup.head_scale);
  if (!cleanly.count(key)) cleanly[key] = caught(setup, {});
  const Names& clean = cleanly[key];
  expect_seen(clean, caught(setup, fault), by, not_by);
}

// Rewrites.

// Steps that move a value by this kind; at least one must be there.
template <class F>
void for_moves(Program& p, const std::string& body_pattern, const std::string& value_pattern,
               MoveKind what, F f) {
  int n = 0;
  for (LoweredBody& body : p.bodies) {
    if (!like(body_pattern, body.name)) continue;
    for (Step& step : body.steps) {
      if ((step.kind != StepKind::move && step.kind != StepKind::start) || step.what != what)
        continue;
      if (!like(value_pattern, (*body.graph)[body.versions[step.ins[0]].value].name)) continue;
      f(body, step);
      ++n;
    }
  }
  ASSERT_GT(n, 0) << "no move of " << value_pattern << " in " << body_pattern;
}

// Every rank continues with its own part only.
std::function<void(Program&)> drop(const std::string& body, const std::string& value,
                                   MoveKind what) {
  return [=](Program& p) { for_moves(p, body, value, what, keep_own); };
}

Piece& piece_named(Pieces& pieces, const std::string& name) {
  for (Piece& p : pieces.pieces) {
    if (p.name == name) return p;
  }
  throw Error("no piece " + name);
}

template <class F>
void for_ops(Body& body, Row row, F f) {
  int n = 0;
  for (Op& op : body.ops) {
    if (op.row != row) continue;
    f(op);
    ++n;
  }
  ASSERT_GT(n, 0) << "nothing to plant in " << body.name;
}

template <class F>
void for_actions(Program& p, F f) {
  for (auto& actions : p.actions) {
    for (Action& a : actions) f(a);
  }
}

const Plan kTp2{.tp = 2}, kTp2Sp{.tp = 2, .sp = true}, kDp2{.dp = 2},
    kPp2{.pp = 2, .micro_batches = 2};

// 3A, loss and gradient scale.

TEST(Faults, DivisorOfLocalTokens) {
  const auto local_mean = [](const Fed& f) {
    if (f.name != "inv_n") return;
    const int dp = f.program.mesh.find("dp");
    int64_t valid = 0;
    for (int j = 0; j < f.micro_batches; ++j) {
      const Range mb = micro_batch_rows(f.batch.rows, f.micro_batches, j);
      const Range mine = f.program.mesh.range(mb.size(), {static_cast<Atom>(dp)}, f.rank);
      for (int64_t i = (mb.lo + mine.lo) * f.batch.sequence;
           i < (mb.lo + mine.hi) * f.batch.sequence; ++i)
        valid += f.batch.targets[i] >= 0;
    }
    *f.to.as<double>() = 1.0 / (2 * static_cast<double>(valid));
  };
  expect_caught({"llama_packed", kDp2}, {.feed = local_mean}, {"layouts", "golden"});
}

TEST(Faults, GradientScaledByMicroBatches) {
  const auto scaled = [](const Fed& f) {
    if (f.name == "inv_n") *f.to.as<double>() *= f.micro_batches;
  };
  expect_caught({"llama_gqa", {.micro_batches = 2}}, {.feed = scaled}, {"layouts", "golden"});
}

TEST(Faults, AccumulationOverwrites) {
  const auto overwrite = [](Program& p) {
    for_actions(p, [&](Action& a) {
      const bool backward = a.act == Act::run && is_backward(p.bodies[a.body].role);
      a.first |= backward;
    });
  };
  expect_caught({"llama_gqa", {.micro_batches = 2}}, {.program = overwrite},
                {"check_program", "layouts", "golden", "counts"});
}

// 3B, missing or extra reductions.

TEST(Faults, DroppedReductionInALayer) {
  expect_caught({"llama_gqa", kTp2}, {.program = drop("layer.forward", "*", MoveKind::all_reduce)},
                {"check_program", "counts", "layouts", "golden"});
}

TEST(Faults, DroppedReductionOfGradients) {
  expect_caught({"llama_gqa", kDp2}, {.program = drop("*.settle", "*", MoveKind::all_reduce)},
                {"copies", "golden"});
}

TEST(Faults, NormWeightGradientNotReducedUnderSequenceParallelism) {
  expect_caught({"llama_gqa", kTp2Sp},
                {.program = drop("layer.settle", "xn1.w/g", MoveKind::all_reduce)}, {"copies"});
}

TEST(Faults, HeadInputGradientNotReduced) {
  expect_caught({"llama_gqa", kTp2},
                {.program = drop("head.backward", "d.xf", MoveKind::all_reduce)},
                {"layouts", "golden"});
}

TEST(Faults, TiedGradientCountedTwice) {
  const auto twice = [](Pieces& pieces) {
    for_ops(piece_named(pieces, "tied").sum, Row::add, [](Op& op) {
      op.ins.push_back(op.ins[1]);
      op.in_labels.push_back(op.in_labels[1]);
    });
  };
  expect_caught({"llama_tied_llama3rope", kPp2}, {.pieces = twice}, {"golden"}, {"layouts"});
}

TEST(Faults, MissingExchangeOfATiedGradient) {
  const auto own_only = [](Program& p) {
    for (int stage : {0, 1}) {
      for (Action& a : p.actions[stage]) {
        if (a.act != Act::run || p.bodies[a.body].name != "tied.sum") continue;
        LoweredBody body = p.bodies[a.body];  // this stage's own: adds its own sum twice
        for (Step& step : body.steps) {
          if (step.kind == StepKind::run) step.ins.assign(2, step.ins[stage]);
        }
        a.body = static_cast<int>(p.bodies.size());
        p.bodies.push_back(std::move(body));
      }
    }
  };
  expect_caught({"llama_tied_llama3rope", kPp2}, {.program = own_only}, {"copies"});
}

TEST(Faults, PendingMaximumSettledAsASum) {
  const auto sum = [](Program& p) {
    for_moves(p, "head.forward", "m", MoveKind::all_reduce,
              [](LoweredBody& body, Step& step) { body.versions[step.ins[0]].layout.max = false; });
  };
  // The maximum cancels in the loss: of the numbers, only logits that overflow exp tell.
  expect_caught({"llama_gqa", kTp2}, {.program = sum}, {"check_program"}, {"layouts", "golden"});
  expect_caught({.golden = "llama_gqa", .plan = kTp2, .head_scale = 2000}, {.program = sum},
                {"layouts"});
}

// One transfer done twice moves the same numbers to the same place.
TEST(Faults, ATransferMoreThanPlanned) {
  const auto twice = [](Program& p) {
    for (LoweredBody& body : p.bodies) {
      if (body.name != "emb.forward") continue;
      std::vector<Step> steps;
      for (const Step& step : body.steps) {
        if (step.kind == StepKind::read)
          continue;  // does nothing: its place is taken by the second transfer
        steps.push_back(step);
        if (step.kind != StepKind::start || step.what != MoveKind::all_reduce) continue;
        Step more = step;
        more.kind = StepKind::move;
        more.outs = {finished_as(body, step)};
        steps.back() = more;
        steps.push_back(step);
      }
      ASSERT_EQ(steps.size(), body.steps.size());
      body.steps = steps;
    }
  };
  expect_caught({"llama_gqa", kTp2}, {.program = twice}, {"counts"}, {"layouts", "golden"});
}

// 3C, norm, clipping, optimizer.

TEST(Faults, NormMissesAParameter) {
  const auto miss = [](Pieces& pieces) {
    std::vector<Op>& ops = piece_named(pieces, "layer").square.ops;
    ops.erase(ops.begin(), ops.begin() + 2);  // sum_exact and accum of the first parameter
  };
  expect_caught({"llama_gqa", kTp2}, {.pieces = miss}, {"golden"}, {"layouts"});
}

TEST(Faults, NormCountsReplicas) {
  const auto all_count = [](Program& p) {
    int n = 0;
    for (LoweredBody& body : p.bodies) {
      for (Step& step : body.steps) {
        if (!like("*.square", body.name) || step.kind != StepKind::move ||
            step.what != MoveKind::first)
          continue;
        step.what = MoveKind::slice;
        ++n;
      }
    }
    ASSERT_GT(n, 0);
  };
  expect_caught({"llama_gqa", kTp2}, {.program = all_count}, {"layouts", "golden"});
}

TEST(Faults, NormOfTheLocalPartOnly) {
  expect_caught({"llama_gqa", {.dp = 2, .zero = 1}},
                {.program = drop("finish.update", "norm.sum", MoveKind::all_reduce)},
                {"copies", "layouts", "golden"});
}

TEST(Faults, ClippedTwice) {
  const auto again = [](Pieces& pieces) {
    Piece& head = piece_named(pieces, "head");
    Body update{.name = head.update.name};
    Builder b(head.graph, update);
    for (const Op& op : head.update.ops) {
      Op copy = op;
      if (op.row == Row::adamw) {
        const std::string& l = op.in_labels[1];
        copy.ins[1] = b.contract("," + l + "->" + l, {op.ins[4], op.ins[1]});
      }
      update.ops.push_back(copy);
    }
    head.update = update;
  };
  expect_caught({"llama_gqa", kDp2}, {.pieces = again}, {"golden"}, {"layouts"});
}

TEST(Faults, DecayOfVectors) {
  const auto decay = [](Pieces& pieces) {
    for_ops(piece_named(pieces, "layer").update, Row::adamw, [](Op& op) { op.attrs.decay = 0.1; });
  };
  expect_caught({"llama_gqa", kDp2}, {.pieces = decay}, {"golden"}, {"layouts"});
}

TEST(Faults, WeightIsNotWritten) {
  const auto stale = [](Pieces& pieces) {
    std::erase_if(piece_named(pieces, "layer").update.ops,
                  [](const Op& op) { return op.attrs.state == "p:q.w" && op.row == Row::write; });
  };
  expect_caught({"llama_gqa", kTp2}, {.pieces = stale}, {"golden"}, {"layouts"});
}

// 3D, positions, masks, packing.

TEST(Faults, RopeByLocalIndex) {
  const auto local = [](const Fed& f) {
    if (f.name != "pos") return;
    for (int64_t i = 0; i < f.to.elements(); ++i)
      f.to.as<int32_t>()[i] -= static_cast<int32_t>(f.to.lo[1]);
  };
  Plan plan = kTp2;
  plan.rules = "pos: s=tp\nqr: g= r= s=tp\nkr: g= s=tp\n";  // turned while the sequence is cut
  expect_caught({"llama_gqa", plan}, {.feed = local}, {"layouts", "golden"});
}

// Several ranks share a row; its tokens do not stand in order.
const Plan kCp2{.cp = 2};

TEST(Faults, RopeByPlace) {
  const auto place = [](const Fed& f) {
    if (f.name != "pos") return;
    for (int64_t i = 0; i < f.to.elements(); ++i)
      f.to.as<int32_t>()[i] = static_cast<int32_t>(f.to.lo[1] + i % f.to.size[1]);
  };
  expect_caught({"llama_gqa", kCp2}, {.feed = place}, {"layouts", "golden"});
}

TEST(Faults, TargetsInTheOrderOfTheRow) {
  const auto in_order = [](const Fed& f) {
    if (f.name != "targets") return;
    for (int64_t i = 0; i < f.to.elements(); ++i) {
      const int64_t row = f.to.lo[0] + i / f.to.size[1], at = f.to.lo[1] + i % f.to.size[1];
      f.to.as<int32_t>()[i] = f.batch.targets[static_cast<size_t>(row * f.batch.sequence + at)];
    }
  };
  expect_caught({"llama_gqa", kCp2}, {.feed = in_order}, {"layouts", "golden"});
}

TEST(Faults, GradientsOfKeysNotSummedOverTheRow) {
  expect_caught({"llama_gqa", kCp2},
                {.program = drop("layer.backward", "*", MoveKind::reduce_scatter)},
                {"check_program", "layouts", "golden"});
}

TEST(Faults, DocumentMaskDropped) {
  const auto one_document = [](const Fed& f) {
    if (f.name == "doc") std::fill_n(f.to.as<int32_t>(), f.to.elements(), 0);
  };
  for (const Plan& plan : {kTp2, kCp2})
    expect_caught({.golden = "llama_packed", .plan = plan, .probe = true}, {.feed = one_document},
                  {"golden", "probe"});
}

// Positions that start anew do not keep documents apart.
TEST(Faults, AttentionComparesPositionsForDocuments) {
  const auto swapped = [](Pieces& pieces) {
    for_ops(piece_named(pieces, "layer").forward, Row::attention,
            [](Op& op) { op.ins[6] = op.ins[5] = op.ins[3]; });
  };
  expect_caught({.golden = "llama_packed", .plan = kDp2, .probe = true}, {.pieces = swapped},
                {"golden"}, {"layouts"});
}

TEST(Faults, TargetsOfAnotherMicroBatch) {
  const auto first = [](const Fed& f) {
    if (f.name == "targets")
      std::copy_n(f.batch.targets.begin() + f.to.lo[0] * f.batch.sequence, f.to.elements(),
                  f.to.as<int32_t>());
  };
  expect_caught({"llama_gqa", {.micro_batches = 2}}, {.feed = first}, {"layouts", "golden"});
}

// 3E, recompute, and the order of messages.

// A clone that adds in another order differs by rounding alone.
TEST(Faults, RecomputedOtherwise) {
  const auto ulp = [](Program& p) {
    for (LoweredBody& body : p.bodies) {
      if (body.name != "layer.backward") continue;
      for (Op& op : body.ops) {
        if (op.row == Row::attention) op.attrs.scale = std::nextafter(op.attrs.scale, 1.0);
      }
    }
  };
  const Plan plan{.tp = 2, .recompute = Recompute::full};
  expect_caught({.golden = "llama_gqa", .plan = plan, .same_bits = kTp2}, {.program = ulp},
                {"bits"}, {"layouts", "golden"});
}

TEST(Faults, MessagesOfTwoMicroBatchesSwapped) {
  const auto swapped = [](Program& p) {
    std::vector<Action*> received;
    for (Action& a : p.actions[1]) {
      if (a.act == Act::recv) received.push_back(&a);
    }
    ASSERT_EQ(received.size(), 2u);
    std::swap(received[0]->outs, received[1]->outs);
  };
  expect_caught({"llama_gqa", kPp2}, {.program = swapped}, {"check_program", "layouts", "golden"});
}

}  // namespace
}  // namespace myriad
