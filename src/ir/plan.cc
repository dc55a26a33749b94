// Legality of a plan by itself, without a model's sizes: sizes of the axes, schedule, layers of
// each stage, nodes of experts.
//
// Each check throws an Error that names the rule, the values that break it and the nearest legal
// values, which are found by trying the neighbours against the same rule. Warnings are a separate
// list: they name what is legal but costs more than it seems. Read ir/plan.h first; what depends on
// the model's sizes is checked in passes/strategy.cc.
#include "ir/plan.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ir/schedules.h"

namespace myriad {

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

void at_least_one(const char* key, int value) {
  if (value < 1)
    throw Error(fmt::format("layout.{} is {}", key, value), "layout",
                fmt::format("{} is a whole number of 1 or more", key));
}

void check_schedule_name(Plan& p) {
  if (p.schedule.empty()) p.schedule = default_schedule(p.vpp);
  const ScheduleInfo* named = plan_schedule(p.schedule);
  if (!named) {
    throw Error(fmt::format("layout.schedule is \"{}\"", p.schedule), "layout",
                fmt::format("legal: {}", fmt::join(plan_schedule_names(), ", ")));
  }
  if (named->several_chunks && p.vpp == 1) {
    throw Error(fmt::format("schedule {} needs vpp of 2 or more, but vpp is 1", p.schedule),
                "layout", fmt::format("vpp: 2, or schedule: {}", default_schedule(1)));
  }
  if (!named->several_chunks && p.vpp > 1) {
    throw Error(fmt::format("schedule {} runs one chunk a stage, but vpp is {}", p.schedule, p.vpp),
                "layout", fmt::format("vpp: 1, or schedule: {}", default_schedule(p.vpp)));
  }
}

void check_stages(Plan& p, int layers) {
  const int n = p.pp * p.vpp;
  if (p.stages.empty()) {
    for (int64_t k = 0; k < n; ++k)
      p.stages.push_back(static_cast<int>((k + 1) * layers / n - k * layers / n));
    return;
  }
  if (static_cast<int>(p.stages.size()) != n) {
    throw Error(fmt::format("layout.stages has {} entries, but pp {} x vpp {} = {} virtual stages",
                            p.stages.size(), p.pp, p.vpp, n),
                "layout", fmt::format("{} layer counts, or none", n));
  }
  for (int count : p.stages) {
    if (count < 1)
      throw Error(
          fmt::format("layout.stages has an entry of {}: a virtual stage must not be empty", count),
          "layout", "1 or more");
  }
  const int sum = std::accumulate(p.stages.begin(), p.stages.end(), 0);
  if (sum != layers) {
    throw Error(fmt::format("layout.stages sums to {}, but the model has {} layers", sum, layers),
                "layout");
  }
}

// Ranks a node that lay an ep group on nodes with as many ranks each.
std::vector<int> even_nodes(const Plan& p) {
  std::vector<int> legal;
  for (int n = 1; n <= p.ranks(); ++n) {
    Plan q = p;
    q.ranks_per_node = n;
    if (nodes_of_experts(q) > 0) legal.push_back(n);
  }
  return legal;
}

void check_nodes(Plan& p) {
  if (p.ranks_per_node == 0) p.ranks_per_node = p.ranks();
  if (p.ep == 1) p.dispatch = Dispatch::flat;
  if (p.dispatch == Dispatch::flat) return;
  const int nodes = nodes_of_experts(p);
  if (nodes == 0 && p.dispatch == Dispatch::node_gather) {
    std::string legal;
    const std::vector<int> all = even_nodes(p);
    const auto above = std::upper_bound(all.begin(), all.end(), p.ranks_per_node);
    if (above != all.begin()) legal += fmt::format("ranks_per_node: {}", *(above - 1));
    if (above != all.end())
      legal += fmt::format("{}{}", legal.empty() ? "ranks_per_node: " : " or ", *above);
    throw Error(
        fmt::format(
            "layout.dispatch is {}, which needs as many ranks of an ep group on each of its "
            "nodes, but ep {} x etp {} lie on nodes of {} ranks_per_node",
            name_of(p.dispatch), p.ep, p.etp, p.ranks_per_node),
        "layout", legal + "; or dispatch: node_relay or flat");
  }
  if (nodes == 1) p.dispatch = Dispatch::flat;  // nothing leaves the node
}

}  // namespace

const char* name_of(Dispatch dispatch) {
  constexpr const char* kNames[] = {"flat", "node_gather", "node_relay"};
  return kNames[static_cast<int>(dispatch)];
}

int nodes_of_experts(const Plan& p) {
  const int group = p.ep * p.etp, node = p.ranks_per_node;
  if (node == 0 || node % group == 0) return 1;
  if (group % node != 0 || (node > p.etp ? node % p.etp : p.etp % node) != 0) return 0;
  return node > p.etp ? group / node : p.ep;
}

Plan resolve(Plan p, int layers, int64_t rows) {
  at_least_one("dp", p.dp);
  at_least_one("cp", p.cp);
  at_least_one("tp", p.tp);
  at_least_one("pp", p.pp);
  at_least_one("vpp", p.vpp);
  at_least_one("micro_batches", p.micro_batches);
  if (static_cast<double>(p.dp) * p.cp * p.tp * p.pp > (1 << 30))
    throw Error("more than 2^30 ranks", "layout");
  if (p.zero < 0 || p.zero > 3)
    throw Error(fmt::format("layout.zero is {}", p.zero), "layout", "legal: 0, 1, 2, 3");
  check_schedule_name(p);
  if (static_cast<int64_t>(p.pp) * p.vpp > layers) {
    throw Error(
        fmt::format(
            "pp {} x vpp {} = {} virtual stages, but there are {} layers: one would be empty", p.pp,
            p.vpp, p.pp * p.vpp, layers),
        "layout",
        fmt::format("pp x vpp of at most {}, e.g. pp {}, vpp {}", layers, std::min(p.pp, layers),
                    std::max(1, layers / std::min(p.pp, layers))));
  }
  if (rows < 1)
    throw Error(fmt::format("a step has {} rows", rows), "layout",
                "tokens_per_step of at least sequence_length");
  if (p.micro_batches > rows) {
    throw Error(fmt::format("{} micro-batches, but a step has {} rows", p.micro_batches, rows),
                "layout", fmt::format("micro_batches from 1 to {}", rows));
  }
  if (plan_schedule(p.schedule)->several_chunks && p.micro_batches < p.pp) {
    throw Error(
        fmt::format("schedule {} needs at least pp = {} micro-batches, but there are {}",
                    p.schedule, p.pp, p.micro_batches),
        "layout",
        fmt::format("micro_batches: {}, or vpp: 1 with schedule: {}", p.pp, default_schedule(1)));
  }
  if (p.tp == 1) p.sp = false;
  if (p.dp * p.cp == 1) p.zero = 0;
  if (p.grad_reduce == GradReduce::automatic)
    p.grad_reduce = p.zero >= 2 ? GradReduce::micro_batch : GradReduce::step;
  check_stages(p, layers);
  check_nodes(p);
  return p;
}

std::vector<std::string> warnings(const Plan& p, const CutSizes& sizes) {
  std::vector<std::string> out;
  const auto uneven = [&](const std::string& what, int64_t n, int64_t parts) {
    if (parts <= 1 || n % parts == 0) return;
    const int64_t most = ceil_div(n, parts);
    out.push_back(
        fmt::format("{} {} over {}: the largest part is {}, {:.0f} % above even{}", what, n, parts,
                    most, 100.0 * (static_cast<double>(most * parts) / static_cast<double>(n) - 1),
                    n == parts - 1 ? "; 1 part is empty"
                    : n < parts    ? fmt::format("; {} parts are empty", parts - n)
                                   : ""));
  };
  const int64_t queries = sizes.heads / std::max<int64_t>(sizes.kv_heads, 1), rows = sizes.rows,
                top_k = sizes.top_k;
  const int tg = kv_cut(p.tp, sizes.kv_heads, queries);
  uneven("kv heads", sizes.kv_heads, tg);
  uneven("query heads of a kv head", queries, p.tp / tg);
  uneven("ffn", sizes.ffn, p.tp);
  uneven("vocabulary", sizes.vocabulary, p.tp);
  if (p.cp > 1) uneven("tokens of a row", sizes.sequence, 2 * p.cp);  // ir/sequence.h
  for (int64_t m = p.micro_batches, j = 0; j < m; ++j) {
    const int64_t n = (j + 1) * rows / m - j * rows / m;
    if (n % p.dp == 0) continue;
    uneven("rows of a micro-batch", n, p.dp);
    break;
  }
  if (const auto [lo, hi] = std::minmax_element(p.stages.begin(), p.stages.end());
      lo != p.stages.end() && *lo != *hi) {
    out.push_back(
        fmt::format("{} layers over {} virtual stages: from {} to {} layers a stage; the others "
                    "wait for the largest",
                    sizes.layers, p.stages.size(), *lo, *hi));
  }
  if (const int nodes = nodes_of_experts(p); p.dispatch == Dispatch::node_gather && nodes > top_k) {
    out.push_back(
        fmt::format("dispatch node_gather sends each token to all {} other nodes, flat on average "
                    "{:.1f} rows of "
                    "its {} choices: flat or node_relay sends less",
                    nodes - 1, static_cast<double>(top_k) * (nodes - 1) / nodes, top_k));
  }
  if (p.zero >= 2 && p.grad_reduce == GradReduce::step) {
    out.push_back(fmt::format(
        "zero {} with grad_reduce step: gradient memory is cut only after the last micro-batch",
        p.zero));
  }
  return out;
}

std::string show(const Plan& p) {
  std::string text = fmt::format("dp {} x ", p.dp);
  if (p.cp > 1) text += fmt::format("cp {} x ", p.cp);
  text += fmt::format("tp {} x pp {}", p.tp, p.pp);
  if (p.vpp > 1) text += fmt::format(", vpp {}", p.vpp);
  text += fmt::format(", {} micro-batch{}, zero {}", p.micro_batches,
                      p.micro_batches == 1 ? "" : "es", p.zero);
  if (p.sp) text += ", sp";
  if (p.ep > 1 || p.etp > 1) text += fmt::format(", ep {} x etp {}", p.ep, p.etp);
  if (p.ep > 1 && p.expert_rows_bound != Plan{}.expert_rows_bound)
    text += fmt::format(", expert rows bound {}", p.expert_rows_bound);
  if (p.dispatch != Dispatch::flat)
    text += fmt::format(", {} over nodes of {}", name_of(p.dispatch), p.ranks_per_node);
  else if (p.ranks_per_node > 0 && p.ranks_per_node < p.ranks())
    text += fmt::format(", nodes of {}", p.ranks_per_node);
  text += ", " + p.schedule;
  if (p.recompute == Recompute::selective) text += ", recompute selective";
  if (p.recompute == Recompute::full) text += ", recompute full";
  if (p.grad_reduce == GradReduce::micro_batch) text += ", gradients reduced each micro-batch";
  return text;
}

int kv_cut(int tp, int64_t groups, int64_t queries) {
  int best = 1;
  int64_t least = -1;
  for (int tg = 1; tg <= tp; ++tg) {
    if (tp % tg != 0) continue;
    const int64_t work = ceil_div(groups, tg) * ceil_div(queries, tp / tg);
    if (least < 0 || work <= least) {
      best = tg;
      least = work;
    }
  }
  return best;
}

}  // namespace myriad
