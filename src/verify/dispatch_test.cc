// What each kind of dispatch sends between nodes, against its definition applied to the experts
// that tokens really chose.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "base/error.h"
#include "verify/variants.h"

namespace myriad {
namespace {

struct Rows {
  int64_t flat = 0, gather = 0, relay = 0;
};

struct Setup {
  Plan plan;
  int directions = 5;  // there, back; there again, and both gradients
};

const Variant& experts() {
  static const Variant v = [] {
    for (const Variant& each : all_variants()) {
      if (each.name == "experts") return each;
    }
    throw std::logic_error("no variant experts");
  }();
  return v;
}

// The rank of its stage on which a token lies before it is dispatched: parts of rows over dp and of
// places over cp x tp. Where nodes are told apart by atoms the ranks of an ep group with one local
// number hold neighbours; in the plans below all of cp and tp is in ep, and such nodes cut dp.
int home(const Plan& p, int64_t row, int64_t rows, int64_t at, int64_t sequence) {
  const auto part = [](int64_t i, int64_t n, int parts) {
    int64_t p = 0;
    while (i >= (p + 1) * n / parts) ++p;
    return static_cast<int>(p);
  };
  int of_dp = part(row, rows, p.dp);
  const int in_row = p.cp * p.tp, nodes = nodes_of_experts(p);
  const bool by_atoms = nodes > 0 && (p.cp == 1 || p.ranks_per_node >= in_row);
  if (p.dispatch != Dispatch::flat && by_atoms) {
    const int in_ep = p.ep / in_row, i = of_dp % in_ep;
    of_dp += i % nodes * (in_ep / nodes) + i / nodes - i;
  }
  return of_dp * in_row + part(at, sequence, in_row);
}

// Rows between nodes in one direction, of a step.
Rows by_definition(const Plan& p, int first_of_stage, int64_t n_experts, const Collected& choices,
                   int64_t rows, int64_t sequence) {
  Rows out;
  const std::vector<double> chosen = choices.whole("idx");
  const auto k = static_cast<int64_t>(chosen.size()) / (rows * sequence);
  for (int64_t t = 0; t < rows * sequence; ++t) {
    const int mine = home(p, t / sequence, rows, t % sequence, sequence),
              first = mine / p.ep * p.ep;
    const auto node = [&](int rank) { return (first_of_stage + rank) / p.ranks_per_node; };
    std::set<int> others, all;
    for (int r = 0; r < p.ep; ++r) all.insert(node(first + r));
    for (int64_t j = 0; j < k; ++j) {
      const auto e = static_cast<int64_t>(chosen[static_cast<size_t>(t * k + j)]);
      int owner = 0;
      while (e >= (owner + 1) * n_experts / p.ep) ++owner;
      if (node(first + owner) == node(mine)) continue;
      others.insert(node(first + owner));
      ++out.flat;
    }
    out.relay += static_cast<int64_t>(others.size());
    out.gather += static_cast<int64_t>(all.size()) - 1;
  }
  return out;
}

// Messages of all_to_all: more where there are more rounds.
int64_t check(Setup s) {
  const Variant& v = experts();
  s.plan = resolve(s.plan, static_cast<int>(v.model.layers), v.rows);
  SCOPED_TRACE(show(s.plan));
  Pool pool(2);
  Job job(job_config(v, s.plan), pool);
  job.initialise(1);
  std::mutex mutex;
  std::map<int, Collected> choices;
  std::map<int, int> first_of_stage;
  job.set_tap([&](int rank, const Action&, int buffer, const Tensor& t) {
    const Program& p = job.train().program;
    if (p.buffers[buffer].name.substr(0, 3) != "idx") return;
    const std::lock_guard lock(mutex);
    choices.try_emplace(buffer, p, buffer).first->second.add(rank, t);
    first_of_stage[buffer] = rank - rank % (s.plan.ranks() / s.plan.pp);
  });
  job.step(v.steps[0], {.lr = 0.01, .step = 1});
  const StepProfile measured = job.train().executor->measured();
  EXPECT_TRUE(measured == job.predicted());
  Rows want;
  for (const auto& [buffer, collected] : choices) {
    if (s.plan.recompute == Recompute::full &&
        job.train().program.bodies[job.train().program.buffers[buffer].body].name.find("again") !=
            std::string::npos)
      continue;
    const Rows r = by_definition(s.plan, first_of_stage.at(buffer), v.model.moe.experts, collected,
                                 v.rows, v.sequence);
    want.flat += r.flat;
    want.gather += r.gather;
    want.relay += r.relay;
  }
  const auto rows = [&](const char* kind) {
    const auto at = measured.collectives.find(kind);
    return at == measured.collectives.end() ? 0 : at->second.between_nodes_rows;
  };
  const int n = s.directions, there = s.plan.recompute == Recompute::full ? 4 : 3;
  EXPECT_GT(want.flat, 0);
  switch (s.plan.dispatch) {
    case Dispatch::flat:
      EXPECT_EQ(rows("all_to_all"), n * want.flat);
      EXPECT_EQ(rows("all_gather") + rows("reduce_scatter"), 0);
      break;
    case Dispatch::node_gather:
      EXPECT_EQ(rows("all_to_all"), 0);
      EXPECT_EQ(rows("all_gather"), there * want.gather);
      EXPECT_EQ(rows("reduce_scatter"), (n - there) * want.gather);
      break;
    case Dispatch::node_relay:
      EXPECT_EQ(rows("all_to_all"), n * want.relay);
      EXPECT_EQ(rows("all_gather") + rows("reduce_scatter"), 0);
      break;
  }
  return measured.collectives.at("all_to_all").messages;
}

// A bound so wide that one round takes all.
constexpr double kOneRound = 8;

TEST(Dispatch, RowsBetweenNodesAreThoseOfTheDefinition) {
  for (const Dispatch kind : {Dispatch::flat, Dispatch::node_gather, Dispatch::node_relay}) {
    for (Plan p : {Plan{.dp = 4, .ep = 4, .ranks_per_node = 2},
                   Plan{.dp = 3, .zero = 1, .ep = 3, .ranks_per_node = 1},
                   Plan{.dp = 2, .pp = 2, .ep = 2, .ranks_per_node = 1},
                   Plan{.dp = 2, .tp = 2, .sp = true, .ep = 4, .ranks_per_node = 2},
                   Plan{.dp = 2, .tp = 2, .ep = 4, .ranks_per_node = 2},
                   Plan{.dp = 2, .cp = 2, .ep = 4, .ranks_per_node = 2},
                   Plan{.dp = 2, .cp = 2, .tp = 2, .zero = 1, .ep = 8, .ranks_per_node = 4},
                   Plan{.dp = 4, .tp = 2, .zero = 3, .sp = true, .ep = 4, .ranks_per_node = 2}}) {
      p.dispatch = kind;
      p.expert_rows_bound = kOneRound;
      check({p});
      p.recompute = Recompute::full;
      check({p, 7});
    }
  }
}

// Whatever the number of rounds, tokens are gathered once and their sums scattered once.
TEST(Dispatch, RoundsGatherOnce) {
  for (Plan p : {Plan{.dp = 4, .ep = 4, .ranks_per_node = 2},
                 Plan{.dp = 2, .tp = 2, .ep = 4, .ranks_per_node = 2},
                 Plan{.dp = 2, .tp = 2, .sp = true, .ep = 4, .ranks_per_node = 1}}) {
    for (const Dispatch kind : {Dispatch::flat, Dispatch::node_gather}) {
      p.dispatch = kind;
      p.expert_rows_bound = 0.3;
      check({p});
    }
  }
}

// What a token has on a node goes in one round.
TEST(Dispatch, RoundsRelayOnce) {
  for (Plan p : {Plan{.dp = 4, .ep = 4, .ranks_per_node = 2},
                 Plan{.dp = 2, .tp = 2, .ep = 4, .ranks_per_node = 2},
                 Plan{.dp = 2, .tp = 2, .sp = true, .ep = 4, .ranks_per_node = 2}}) {
    p.dispatch = Dispatch::node_relay;
    p.expert_rows_bound = kOneRound;
    const int64_t messages = check({p});
    p.expert_rows_bound = 0.3;
    EXPECT_GT(check({p}), messages);
  }
}

TEST(Dispatch, FlatAndRelayNeedNoEqualNodes) {
  for (const Dispatch kind : {Dispatch::flat, Dispatch::node_relay}) {
    for (Plan p :
         {Plan{.dp = 3, .ep = 3, .ranks_per_node = 2}, Plan{.dp = 4, .ep = 4, .ranks_per_node = 3},
          Plan{.dp = 6, .zero = 2, .ep = 3, .ranks_per_node = 2},
          Plan{.dp = 4, .ep = 2, .ranks_per_node = 3},
          Plan{.dp = 3, .pp = 2, .ep = 3, .ranks_per_node = 2},
          Plan{.dp = 3, .tp = 2, .sp = true, .ep = 6, .ranks_per_node = 2},
          Plan{.dp = 3, .tp = 2, .ep = 6, .ranks_per_node = 4},
          Plan{.cp = 3, .ep = 3, .ranks_per_node = 2},
          Plan{.cp = 2, .tp = 2, .sp = true, .ep = 4, .ranks_per_node = 2},
          Plan{.dp = 2, .tp = 2, .zero = 3, .sp = true, .ep = 4, .ranks_per_node = 3}}) {
      p.dispatch = kind;
      p.expert_rows_bound = kOneRound;
      const int64_t messages = check({p});
      p.recompute = Recompute::full;
      check({p, 7});
      if (kind == Dispatch::flat) continue;
      p.recompute = Recompute::none;
      p.expert_rows_bound = 0.3;
      EXPECT_GT(check({p}), messages);
    }
  }
}

}  // namespace
}  // namespace myriad
