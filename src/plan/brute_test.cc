// Every rank by itself, step by step, through the one walker: what the simulation by classes must
// equal.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "machine/walker.h"
#include "passes/memory.h"
#include "plan/testing.h"

namespace myriad {
namespace {

class EveryRank : public Machine {
 public:
  EveryRank(const Program& p, const Cluster& c, const Pricing& pricing)
      : p_(p), cluster_(c), pricing_(pricing), ranks_(p.mesh.ranks()) {}

  Progress act(const At& at, const Action& a) override {
    Rank& r = ranks_[at.rank];
    const int per_stage = p_.mesh.ranks() / p_.stages, column = at.rank % per_stage;
    if (a.act == Act::send) {
      const Buffer& b = p_.buffers[a.ins[0]];
      const double bytes =
          static_cast<double>(local_elements(p_.mesh, p_.layout(b), p_.value(b).sizes, at.rank) *
                              pricing_.bytes.of(p_.value(b), 0));
      double& free = free_[{a.channel, column}];
      free = std::max(free, r.clock) +
             send_seconds(cluster_, bytes, at.rank, a.peer * per_stage + column, p_.mesh.ranks());
      queues_[{a.channel, column}].push_back(free);
      r.sent[a.ins[0]] = free;
    } else if (a.act == Act::recv) {
      auto& queue = queues_[{a.channel, column}];
      if (queue.empty()) return Progress::blocked;
      r.clock = std::max(r.clock, queue.front());
      queue.erase(queue.begin());
    } else if (a.act == Act::wait) {
      r.clock = std::max(r.clock, r.sent.at(a.ins[0]));
    }
    return Progress::advanced;
  }

  Progress step(const At& at, const Action& a, const LoweredBody& body, const Step& step) override {
    Rank& r = ranks_[at.rank];
    const BodyPrice& price = price_of(at.rank, a, body);
    const StepPrice& s = price.steps[&step - body.steps.data()];
    if (!communicates(s.cost)) {
      r.clock += s.seconds;
      return Progress::advanced;
    }
    if (r.come && r.go < 0) return Progress::blocked;
    if (!r.come) {
      std::vector<int> group = p_.mesh.group(step.atoms, at.rank);
      std::sort(group.begin(), group.end());
      Meeting& m = meetings_[group];
      ++m.come;
      m.start = std::max(m.start, r.clock);
      m.bytes = std::max(m.bytes, s.bytes);
      r.come = true;
      r.go = -1;
      if (m.come < group.size()) return Progress::blocked;
      const double end = m.start + collective_seconds(cluster_, step.what, m.bytes,
                                                      shape_of(cluster_, group), p_.mesh.ranks())
                                       .seconds;
      for (int g : group) ranks_[g].go = end;
      m = {};
    }
    r.clock = r.go;
    r.come = false;
    return Progress::advanced;
  }

  void ran(const At& at, const Action& a) override {
    const BodyPrice& price = price_of(at.rank, a, p_.bodies[a.body]);
    double device = 0;
    for (const StepPrice& s : price.steps) device += s.seconds;
    ranks_[at.rank].clock += std::max(
        0.0, cluster_.host.action_seconds + price.kernels * cluster_.host.issue_seconds - device);
  }

  double end() const {
    double last = 0;
    for (const Rank& r : ranks_) last = std::max(last, r.clock);
    return last;
  }
  double end_of_stage(int stage) const {
    double last = 0;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (p_.stage_of(static_cast<int>(i)) == stage) last = std::max(last, ranks_[i].clock);
    }
    return last;
  }

 private:
  struct Rank {
    double clock = 0, go = -1;
    bool come = false;
    std::map<int, double> sent;
  };
  struct Meeting {
    size_t come = 0;
    double start = 0, bytes = 0;
  };

  const BodyPrice& price_of(int rank, const Action& a, const LoweredBody& body) {
    const auto [at, fresh] = prices_.try_emplace({rank, a.body, a.first});
    if (fresh) {
      at->second = price_body(
          cluster_.device, pricing_, p_.mesh, body, rank, a.first,
          [&](MoveKind what, AtomList atoms, double bytes, int r) {
            return collective_seconds(cluster_, what, bytes,
                                      shape_of(cluster_, p_.mesh.group(atoms, r)), p_.mesh.ranks())
                .seconds;
          });
    }
    return at->second;
  }

  const Program& p_;
  const Cluster& cluster_;
  const Pricing& pricing_;
  std::vector<Rank> ranks_;
  std::map<std::tuple<int, int, bool>, BodyPrice> prices_;
  std::map<std::pair<int, int>, double> free_;
  std::map<std::pair<int, int>, std::vector<double>> queues_;
  std::map<std::vector<int>, Meeting> meetings_;
};

void compare(const PlannedRun& run, const Cluster& cluster) {
  const Prediction p = predict(run, cluster);
  const Pricing pricing = pricing_for(cluster, "");
  EveryRank every(p.program, cluster, pricing);
  walk_all(p.program, every);
  SCOPED_TRACE(show(run.plan));
  EXPECT_NEAR(p.simulation.step_seconds, every.end(), 1e-12 + 1e-9 * every.end());
  ASSERT_TRUE(p.simulation.classes <= p.program.mesh.ranks());
  for (int s = 0; s < p.program.stages; ++s) {
    int64_t worst = 0;
    for (int r = 0; r < p.program.mesh.ranks(); ++r) {
      if (p.program.stage_of(r) != s) continue;
      const MemoryPlan plan = plan_memory(
          p.program, r, {}, [&](const Value& v, char state) { return pricing.bytes.of(v, state); });
      const MemoryPlan::Kinds& k = plan.at_peak;
      EXPECT_EQ(
          k.parameters + k.gradients + k.moments + k.activations + k.communication + k.workspace,
          plan.peak_bytes);
      EXPECT_GE(k.workspace, 0);
      worst = std::max(worst, plan.peak_bytes);
    }
    EXPECT_EQ(p.simulation.stages[s].peak_bytes, worst);
    const StageResult& stage = p.simulation.stages[s];
    double sum = 0;
    for (double x : stage.seconds) sum += x;
    EXPECT_NEAR(sum, p.simulation.step_seconds, 1e-9 * sum);
    EXPECT_NEAR(stage.actions.back().end, every.end_of_stage(s), 1e-9 * sum);
  }
  double critical = 0;
  for (double x : p.simulation.critical) critical += x;
  EXPECT_NEAR(critical, p.simulation.step_seconds, 1e-9 * critical);
  EXPECT_GE(p.simulation.critical[static_cast<int>(Cost::idle)], -1e-9 * critical);
}

TEST(Classes, EqualEveryRankByItselfOnAllLayoutsOfSixteen) {
  int layouts = 0;
  for (int dp : {1, 2, 3, 4, 5, 8, 16}) {
    for (int tp : {1, 2, 3, 4, 8, 16}) {
      for (int pp : {1, 2, 3, 4}) {
        if (dp * tp * pp > 16) continue;
        for (int zero : {0, 1, 2, 3}) {
          if (dp == 1 && zero > 0) continue;
          const bool sp = (dp + pp + zero) % 2 == 0;
          const int vpp = pp == 2 && zero % 2 == 1 ? 2 : 1;
          const Plan plan{.dp = dp,
                          .tp = tp,
                          .pp = pp,
                          .vpp = vpp,
                          .micro_batches = 4,
                          .zero = zero,
                          .sp = sp,
                          .recompute = zero == 2 ? Recompute::full : Recompute::none};
          compare(small_run(plan, 4 * dp), small_cluster(layouts % 3 == 0 ? 3 : 4));
          ++layouts;
        }
      }
    }
  }
  EXPECT_GT(layouts, 100);
}

TEST(Classes, EqualEveryRankWhereNothingDivides) {
  ModelConfig m = small_model(5, 48, 97);
  m.kv_heads = 2;
  m.ffn = 101;
  for (const auto& [dp, tp, pp] :
       {std::tuple(3, 2, 2), {2, 3, 2}, {5, 3, 1}, {4, 4, 1}, {1, 5, 3}, {7, 1, 2}, {3, 5, 1}}) {
    for (int zero : {0, 1, 3}) {
      for (int node : {2, 3, 4, 5}) {
        compare(
            small_run({.dp = dp, .tp = tp, .pp = pp, .micro_batches = 4, .zero = zero, .sp = true},
                      13, m, 7),
            small_cluster(node));
      }
    }
  }
}

TEST(Classes, EqualEveryRankWithSharedRows) {
  for (const auto& [dp, cp, tp, pp] : {std::tuple(1, 2, 1, 1),
                                       {2, 2, 2, 2},
                                       {1, 3, 2, 1},
                                       {3, 2, 1, 2},
                                       {1, 4, 4, 1},
                                       {1, 5, 1, 2}}) {
    for (int zero : {0, 1, 3}) {
      for (int node : {2, 3, 4}) {
        compare(small_run({.dp = dp,
                           .cp = cp,
                           .tp = tp,
                           .pp = pp,
                           .micro_batches = 4,
                           .zero = zero,
                           .sp = true},
                          4 * dp),
                small_cluster(node));
      }
    }
  }
}

TEST(Classes, EqualEveryRankWithExpertsOnAnyNodes) {
  ModelConfig m = small_model();
  m.family = Family::mixtral;
  m.moe = {.experts = 8, .top_k = 2, .expert_ffn = 32};
  for (const Dispatch kind : {Dispatch::flat, Dispatch::node_gather, Dispatch::node_relay}) {
    for (const int node : {1, 2, 3, 4}) {
      for (Plan p : {Plan{.dp = 4, .ep = 4}, Plan{.dp = 3, .pp = 2, .ep = 3},
                     Plan{.dp = 6, .zero = 1, .ep = 3}, Plan{.dp = 2, .cp = 2, .ep = 4},
                     Plan{.dp = 2, .tp = 2, .sp = true, .ep = 4},
                     Plan{.dp = 4, .tp = 2, .pp = 2, .zero = 3, .sp = true, .ep = 4, .etp = 2}}) {
        p.dispatch = kind;
        p.ranks_per_node = node;
        p.micro_batches = 4;
        if (kind == Dispatch::node_gather && nodes_of_experts(p) == 0) continue;
        compare(small_run(p, 4 * p.dp, m), small_cluster(node));
      }
    }
  }
}

}  // namespace
}  // namespace myriad
