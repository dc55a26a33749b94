// The tiny models that layouts are tried on, and the lists of layouts to try.
//
// The models have odd sizes, so that hardly any cut divides, and each adds one thing that can go
// wrong: tied weights, packed documents, ranks without a target, a router. `all_plans` lists every
// layout up to a number of ranks, and leaves out settings without effect. That is too many for most
// models, so `pairwise` selects layouts that still contain every pair of settings together: it
// takes the one with most pairs not yet seen, until all are seen. Such a count only falls while
// others are chosen, so an old count is a bound, and a layout whose fresh count still equals its
// bound at the top of the queue is the best of all. Read `all_variants` and `all_plans` first.
#include "verify/variants.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <queue>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "ir/schedules.h"

namespace myriad {

namespace {

constexpr uint64_t kSeed = 20240;
constexpr int kSteps = 3;

ModelConfig base_model() {
  return {.family = Family::llama,
          .hidden = 14,
          .layers = 4,
          .heads = 6,
          .kv_heads = 2,
          .head_dim = 4,
          .ffn = 22,
          .vocabulary = 37,
          .positions = 64,
          .norm_eps = 1e-5,
          .tied = false,
          .initializer_range = 0.3};
}

bool masked(Targets targets, int step, int64_t row, int64_t at, int64_t sequence) {
  if (targets == Targets::most) return (row * sequence + at) % 7 == 3;
  if (step == 1) return true;
  return row % 3 != 0 || at >= (sequence + 1) / 2;
}

// Calls add(name, packed, targets, change) for each variant with experts.
template <class Add>
void add_experts(const Add& add) {
  const auto with = [](Family family, MoeConfig moe) {
    return [=](Variant& v) {
      v.model.family = family;
      v.model.moe = moe;
    };
  };
  const MoeConfig five{.experts = 5, .top_k = 2, .expert_ffn = 6};
  MoeConfig losses = five, drops = five, by_row = five;
  losses.routing = {.load_balance = 0.5, .z = 0.1};
  drops.routing = {.capacity_factor = 0.8, .load_balance = 0.5};
  by_row.routing = {.load_balance = 0.5, .scope = BalanceScope::sequence};
  by_row.renormalise = false;
  add("experts", true, Targets::most, with(Family::mixtral, losses));
  add("capacity", false, Targets::most, with(Family::mixtral, drops));
  add("sequence", false, Targets::most, with(Family::qwen3_moe, by_row));
  add("groups", false, Targets::slices,
      with(Family::telechat_moe, {.experts = 9,
                                  .top_k = 3,
                                  .expert_ffn = 5,
                                  .shared_experts = 1,
                                  .dense_layers = {0},
                                  .scores = Scores::sigmoid,
                                  .scaling = 2.5,
                                  .correction_bias = true,
                                  .groups = 3,
                                  .kept_groups = 2,
                                  .routing = {.bias_update_rate = 0.05}}));
}

}  // namespace

Batch make_batch(const Variant& v, int step, bool packed, Targets targets) {
  Batch b{.rows = v.rows, .sequence = v.sequence};
  const auto token = [&](int64_t row, int64_t at) {
    const uint64_t index = static_cast<uint64_t>(row * (v.sequence + 1) + at);
    return static_cast<int32_t>(random_bits(kSeed, static_cast<uint64_t>(step), index) %
                                static_cast<uint64_t>(v.model.vocabulary));
  };
  for (int64_t row = 0; row < v.rows; ++row) {
    int32_t document = 0, position = 0;
    for (int64_t at = 0; at < v.sequence; ++at, ++position) {
      if (packed && at > 0 && (at + row + step) % 3 == 0) {
        ++document;
        position = 0;
      }
      b.ids.push_back(token(row, at));
      b.targets.push_back(masked(targets, step, row, at, v.sequence) ? -1 : token(row, at + 1));
      b.positions.push_back(position);
      b.documents.push_back(document);
    }
  }
  return b;
}

std::vector<Variant> all_variants() {
  std::vector<Variant> all;
  const auto add = [&](const char* name, bool packed, Targets targets, const auto& change) {
    Variant v{.name = name, .model = base_model()};
    change(v);
    for (int step = 0; step < kSteps; ++step)
      v.steps.push_back(make_batch(v, step, packed, targets));
    all.push_back(std::move(v));
  };
  add("base", false, Targets::most, [](Variant&) {});
  add("tied", false, Targets::most, [](Variant& v) { v.model.tied = true; });
  add("packed", true, Targets::most, [](Variant&) {});
  add("masked", false, Targets::slices, [](Variant&) {});
  add("uneven", false, Targets::most, [](Variant& v) {
    v.model.kv_heads = v.model.heads = 3;
    v.model.vocabulary = 7;
    v.model.ffn = 5;
    v.model.hidden = 9;
  });
  add("huge", false, Targets::most, [](Variant& v) { v.model.initializer_range = 300; });
  add("few", true, Targets::slices, [](Variant& v) {
    v.rows = 2;
    v.model.tied = true;
  });
  add("qwen3", true, Targets::most, [](Variant& v) {
    v.model.family = Family::qwen3;
    v.model.rope = {.kind = RopeKind::yarn, .factor = 4, .original_positions = 16};
  });
  add("telechat", false, Targets::most, [](Variant& v) {
    v.model.family = Family::telechat;
    v.model.rope = {.kind = RopeKind::telechat, .base_seqlen = 4, .training_seqlen = 16};
  });
  add("gpt2", true, Targets::most, [](Variant& v) {
    v.model.family = Family::gpt2;
    v.model.kv_heads = v.model.heads;
    v.model.hidden = 24;
    v.model.tied = true;
  });
  add_experts(add);
  add("bf16", false, Targets::most, [](Variant& v) { v.real = DType::bf16; });
  add("bf16tied", true, Targets::slices, [](Variant& v) {
    v.real = DType::bf16;
    v.model.tied = true;
    v.model.family = Family::qwen3;
  });
  add("bf16experts", true, Targets::most, [](Variant& v) {
    v.real = DType::bf16;
    v.model.family = Family::mixtral;
    v.model.moe = {.experts = 5, .top_k = 2, .expert_ffn = 6};
  });
  return all;
}

bool Variant::by_micro_batch() const {
  const RoutingConfig& r = model.moe.routing;
  return r.load_balance > 0 || r.z > 0 || r.capacity_factor > 0;
}

JobConfig job_config(const Variant& v, const Plan& plan) {
  return {.model = v.model,
          .plan = plan,
          .rows = v.rows,
          .sequence = v.sequence,
          .real = v.real,
          .optimizer = {.eps = 1e-3},
          .kernels = KernelSet::ref};
}

namespace {

// Ways to run the stages: virtual stages, micro-batches, schedule.
std::vector<Plan> pipelines(const Plan& base, int layers, int64_t rows) {
  std::vector<Plan> out;
  for (int vpp = 1; base.pp * vpp <= layers && vpp <= 2; ++vpp) {
    for (int mb : {1, 2, 4}) {
      if (mb > rows || (vpp > 1 && mb < base.pp)) continue;
      if (mb == 1 && vpp > 1)
        continue;  // interleaving needs as many micro-batches as stages, so this is one stage,
                   // which runs in the order of vpp 1
      for (const ScheduleInfo& schedule : plan_schedules()) {
        if (schedule.several_chunks != (vpp > 1)) continue;
        // One micro-batch has one order.
        if (mb == 1 && schedule.name != std::string_view(default_schedule(vpp))) continue;
        Plan p = base;
        p.vpp = vpp;
        p.micro_batches = mb;
        p.schedule = schedule.name;
        out.push_back(p);
      }
    }
  }
  return out;
}

// How weights, gradients and activations are kept.
std::vector<Plan> memories(const Plan& base) {
  std::vector<Plan> out;
  for (int zero = 0; zero <= (base.dp * base.cp > 1 ? 3 : 0); ++zero) {
    for (int sp = 0; sp <= (base.tp > 1 ? 1 : 0); ++sp) {
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        for (const GradReduce reduce : {GradReduce::step, GradReduce::micro_batch}) {
          // With one micro-batch, or with nothing to reduce over, only the default is tried.
          const bool usual = (reduce == GradReduce::micro_batch) == (zero >= 2);
          if (!usual && (base.micro_batches == 1 || base.dp * base.cp * base.tp == 1)) continue;
          Plan p = base;
          p.zero = zero;
          p.sp = sp;
          p.recompute = recompute;
          p.grad_reduce = reduce;
          out.push_back(p);
        }
      }
    }
  }
  return out;
}

constexpr double kSeveralRounds = 0.3;

// Whether the ranks of experts, and their part on a node, are products of atoms.
bool has_mesh(const Plan& plan, const Pieces& pieces) {
  try {
    mesh_of(plan, pieces);
  } catch (const Error&) {
    return false;
  }
  return true;
}

// Ways to lay the ranks of experts on nodes, and to dispatch between those.
std::vector<Plan> dispatches(const Plan& base, const Pieces& pieces) {
  std::vector<Plan> out = {base};
  for (const int node : {1, 2, 3, 4}) {
    Plan p = base;
    p.ranks_per_node = node;
    if (node >= base.ranks() || base.ep == 1) continue;
    out.push_back(p);
    for (const Dispatch kind : {Dispatch::node_gather, Dispatch::node_relay}) {
      p.dispatch = kind;
      const int nodes = nodes_of_experts(p);  // 0: nodes hold different numbers of ranks
      if (nodes == 1 || (nodes == 0 && kind == Dispatch::node_gather)) continue;
      if (has_mesh(p, pieces)) out.push_back(p);
    }
  }
  return out;
}

// Ways to refold dp x cp x tp for experts.
std::vector<Plan> refolds(const Plan& base, const Pieces* pieces) {
  if (!pieces) return {base};
  std::vector<Plan> out;
  const int ranks = base.dp * base.cp * base.tp;
  for (int ep = 1; ep <= ranks; ++ep) {
    for (int etp = 1; ep * etp <= ranks; ++etp) {
      if (ranks % (ep * etp) != 0) continue;
      Plan p = base;
      p.ep = ep;
      p.etp = etp;
      if (!has_mesh(p, *pieces)) continue;
      for (const Plan& q : dispatches(p, *pieces)) {
        out.push_back(q);
        out.push_back(q);
        out.back().expert_rows_bound = kSeveralRounds;
        if (ep == 1) out.pop_back();
      }
    }
  }
  return out;
}

}  // namespace

std::vector<Plan> all_plans(const Variant& v, int max_ranks) {
  std::vector<Plan> out;
  const int layers = static_cast<int>(v.model.layers);
  const JobConfig config = job_config(v, {});
  std::optional<Pieces> pieces;
  if (v.model.moe.experts > 0)
    pieces = emit_model(config.model, 1, config.sequence, config.real, config.optimizer);
  for (int pp = 1; pp <= std::min(layers, max_ranks); ++pp) {
    for (int tp = 1; pp * tp <= max_ranks; ++tp) {
      for (int cp = 1; pp * tp * cp <= max_ranks; ++cp) {
        for (int dp = 1; pp * tp * cp * dp <= max_ranks; ++dp) {
          const Plan ranks{.dp = dp, .cp = cp, .tp = tp, .pp = pp};
          for (const Plan& r : refolds(ranks, pieces ? &*pieces : nullptr)) {
            for (const Plan& p : pipelines(r, layers, v.rows)) {
              for (const Plan& q : memories(p)) {
                if (pieces && q.sp && !has_mesh(q, *pieces)) continue;  // nodes part cp inside tp
                out.push_back(resolve(q, layers, v.rows));
              }
            }
          }
        }
      }
    }
  }
  return out;
}

namespace {

constexpr int kSettings = 16;

std::array<int, kSettings> settings(const Plan& p) {
  return {p.dp,
          p.cp,
          p.tp,
          p.pp,
          p.vpp,
          p.micro_batches,
          p.zero,
          p.sp,
          static_cast<int>(schedule_named(p.schedule)),
          static_cast<int>(p.recompute),
          static_cast<int>(p.grad_reduce),
          p.ep,
          p.etp,
          p.expert_rows_bound < 1,
          static_cast<int>(p.dispatch),
          p.ranks_per_node < p.ranks() ? p.ranks_per_node : 0};
}

// Numbers the pairs of two settings with their values in the order in which they come up.
class Pairs {
 public:
  std::vector<int> of(const Plan& p) {
    const auto s = settings(p);
    std::vector<int> out;
    for (int i = 0; i < kSettings; ++i) {
      for (int j = i + 1; j < kSettings; ++j) {
        const auto [at, fresh] =
            numbers_.try_emplace({i, s[i], j, s[j]}, static_cast<int>(numbers_.size()));
        out.push_back(at->second);
      }
    }
    return out;
  }
  size_t size() const { return numbers_.size(); }

 private:
  std::map<std::array<int, 4>, int> numbers_;
};

}  // namespace

std::vector<Plan> pairwise(const std::vector<Plan>& plans, uint64_t seed, size_t more) {
  std::vector<std::pair<uint64_t, size_t>> order;
  std::vector<std::vector<int>> pairs;
  Pairs all;
  for (size_t i = 0; i < plans.size(); ++i) {
    order.emplace_back(random_bits(seed, stream_of("pairwise"), i), i);
    pairs.push_back(all.of(plans[i]));
  }
  std::sort(order.begin(), order.end());
  // Chooses the plan with most open pairs until none is open. The open pairs of a plan only become
  // fewer, so an earlier count is a bound: only plans at the top of the queue are counted again.
  std::vector<char> open(all.size(), 1);
  std::set<size_t> chosen;
  std::priority_queue<std::tuple<int64_t, int64_t>> bounds;  // open pairs, -place in `order`
  for (size_t k = 0; k < order.size(); ++k)
    bounds.emplace(std::ssize(pairs[order[k].second]), -static_cast<int64_t>(k));
  while (!bounds.empty()) {
    const auto [bound, place] = bounds.top();
    const size_t i = order[static_cast<size_t>(-place)].second;
    const int64_t n = std::count_if(pairs[i].begin(), pairs[i].end(),
                                    [&](int p) { return open[static_cast<size_t>(p)]; });
    bounds.pop();
    if (n == 0) continue;
    if (n < bound) {
      bounds.emplace(n, place);
      continue;
    }
    for (int p : pairs[i]) open[static_cast<size_t>(p)] = 0;
    chosen.insert(i);
  }
  const size_t wanted = std::min(plans.size(), chosen.size() + more);
  for (size_t k = 0; chosen.size() < wanted; ++k) chosen.insert(order[k].second);
  std::vector<Plan> out;
  for (size_t i : chosen) out.push_back(plans[i]);
  return out;
}

}  // namespace myriad
