// Explaining a predicted step. Causes are read off the simulation: what the critical path spends on
// communication by link, the bubble of the pipeline, uneven stages, memory that does not suffice.
// What a change would bring is not estimated but tried: `trials` lists changes of plan or cluster,
// and each is predicted anew. Read `explain` at the end first.
#include "plan/explain.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "ir/schedules.h"
#include "machine/simulate_report.h"

namespace myriad {

namespace {

bool is_tensor_parallel(const std::string& axes) {
  return axes.find("tg") != std::string::npos || axes.find("tr") != std::string::npos;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

void add_memory(const Simulation& s, std::vector<Cause>& out) {
  if (s.fits) return;
  std::vector<int> over;
  int worst = 0;
  for (size_t i = 0; i < s.stages.size(); ++i) {
    if (s.stages[i].peak_bytes > s.memory_limit_bytes) over.push_back(static_cast<int>(i));
    if (s.stages[i].peak_bytes > s.stages[worst].peak_bytes) worst = static_cast<int>(i);
  }
  const double excess = static_cast<double>(s.memory_needed_bytes - s.memory_limit_bytes);
  if (over.empty()) {  // ranks that share one machine
    out.push_back({fmt::format("the ranks together do not fit: {} too much", show_bytes(excess)),
                   std::numeric_limits<double>::infinity(), true});
    return;
  }
  out.push_back(
      {fmt::format("stage {} does not fit: {} more than the {} of a device{}", worst,
                   show_bytes(excess), show_bytes(static_cast<double>(s.memory_limit_bytes)),
                   over.size() == 1
                       ? "; the other stages fit"
                       : fmt::format("; {} of {} stages do not", over.size(), s.stages.size())),
       std::numeric_limits<double>::infinity(), true});
}

// Communication on the critical path: tensor parallelism over nodes by itself, the rest by link.
void add_links(const Simulation& s, const Cluster& cluster, const Plan& plan,
               std::vector<Cause>& out) {
  double tensor = 0;
  std::map<int, std::pair<double, std::string>> links;  // level -> seconds, of what
  for (const CommunicationUse& use : s.critical_communication) {
    if (use.level > 0 && is_tensor_parallel(use.axes) && use.axes.find("dp") == std::string::npos &&
        use.axes.find("pp") == std::string::npos) {
      tensor += use.seconds;
      continue;
    }
    auto& [seconds, text] = links[use.level];
    seconds += use.seconds;
    text += fmt::format("{}{} over {} {}", text.empty() ? "" : ", ", name_of(use.cost), use.axes,
                        show_seconds(use.seconds));
  }
  if (tensor > 0) {
    out.push_back(
        {fmt::format("tp {} spans nodes of {}: its collectives run over {} and take {} ({})",
                     plan.tp, cluster.node_devices(), cluster.levels[1].name, show_seconds(tensor),
                     percent(tensor / s.step_seconds)),
         tensor});
  }
  for (const auto& [level, use] : links) {
    if (use.first <= 0) continue;
    out.push_back(
        {fmt::format("link {}: {} ({}) of exposed communication: {}", cluster.levels[level].name,
                     show_seconds(use.first), percent(use.first / s.step_seconds), use.second),
         use.first});
  }
}

struct PipelineTimes {
  double useful = 0, idle = 0;  // means over stages
  double excess = 0;            // of the stage with most work
  int fullest = 0;
};

PipelineTimes pipeline_of(const Simulation& s) {
  PipelineTimes t;
  const double n = static_cast<double>(s.stages.size());
  for (size_t i = 0; i < s.stages.size(); ++i) {
    t.useful += s.stages[i].useful_seconds / n;
    t.idle += s.stages[i].idle_seconds / n;
    if (s.stages[i].useful_seconds > s.stages[t.fullest].useful_seconds)
      t.fullest = static_cast<int>(i);
  }
  t.excess = s.stages[t.fullest].useful_seconds - t.useful;
  return t;
}

bool even(const Plan& p) {
  const auto [lo, hi] = std::minmax_element(p.stages.begin(), p.stages.end());
  return *hi - *lo <= 1;
}

// What the fullest stage costs. If stages have different numbers of layers, that is against a
// simulation with equally many on each, else it is the excess over the mean.
void add_pipeline(const Simulation& s, const PlannedRun& run, const Simulation* evened,
                  std::vector<Cause>& out) {
  const Plan& plan = run.plan;
  if (plan.pp == 1) return;
  const PipelineTimes now = pipeline_of(s), base = evened ? pipeline_of(*evened) : now;
  const double lost = evened ? s.step_seconds - evened->step_seconds : now.excess;
  int layers = 0;
  for (int c = 0; c < plan.vpp; ++c) layers += plan.stages[c * plan.pp + now.fullest];
  if (lost > 0) {
    out.push_back(
        {fmt::format("stage {} is the fullest: {} more work than the mean ({} of {} layers); the "
                     "others wait: {} ({}) lost",
                     now.fullest, percent(now.excess / now.useful), layers, run.model.layers,
                     show_seconds(lost), percent(lost / s.step_seconds)),
         lost});
  }
  if (const double bubble = base.idle - std::max(0.0, base.excess); bubble > 0) {
    out.push_back(
        {fmt::format("pipeline bubble: pp {}, vpp {}, {} micro-batches leave {} idle ({})", plan.pp,
                     plan.vpp, plan.micro_batches, show_seconds(bubble),
                     percent(bubble / s.step_seconds)),
         bubble});
  }
}

void add_device(const Simulation& s, std::vector<Cause>& out) {
  const double host = s.critical[static_cast<int>(Cost::host)],
               memory = s.critical[static_cast<int>(Cost::memory)];
  if (host > 0)
    out.push_back({fmt::format("the host issues kernels slower than the device runs them: {} ({})",
                               show_seconds(host), percent(host / s.step_seconds)),
                   host});
  if (memory > 0)
    out.push_back({fmt::format("kernels bound by memory bandwidth: {} ({})", show_seconds(memory),
                               percent(memory / s.step_seconds)),
                   memory});
}

struct Trial {
  std::string what;
  std::function<void(PlannedRun&, Cluster&)> change;
};

std::vector<Trial> trials(const PlannedRun& run, const Cluster& cluster) {
  const Plan& p = run.plan;
  std::vector<Trial> out;
  const auto plan = [&](std::string what, std::function<void(Plan&)> change) {
    out.push_back({std::move(what), [change](PlannedRun& r, Cluster&) { change(r.plan); }});
  };
  out.push_back({fmt::format("micro_batches {} -> {}, twice the rows a step", p.micro_batches,
                             2 * p.micro_batches),
                 [](PlannedRun& r, Cluster&) {
                   r.plan.micro_batches *= 2;
                   r.rows *= 2;
                 }});
  if (run.rows / p.micro_batches >= 2 * p.dp) {
    plan(fmt::format("micro_batches {} -> {} of half the rows", p.micro_batches,
                     2 * p.micro_batches),
         [](Plan& q) { q.micro_batches *= 2; });
  }
  if (p.pp > 1) {
    plan(fmt::format("vpp {} -> {}", p.vpp, p.vpp + 1), [](Plan& q) {
      ++q.vpp;
      q.stages.clear();
      q.schedule = default_schedule(q.vpp);
    });
    plan(fmt::format("pp {} -> {}, dp {} -> {}", p.pp, p.pp / 2, p.dp, p.dp * 2), [](Plan& q) {
      if (q.pp % 2 != 0) throw Error("pp is odd");
      q.pp /= 2;
      q.dp *= 2;
      q.stages.clear();
      if (q.pp == 1) q.vpp = 1;
      q.schedule.clear();
    });
    if (!even(p)) {
      plan("stages of even numbers of layers", [](Plan& q) { q.stages.clear(); });
    }
  }
  if (p.dp > 1) {
    plan(fmt::format("dp {} -> {}, cp {} -> {}", p.dp, p.dp / 2, p.cp, p.cp * 2), [](Plan& q) {
      if (q.dp % 2 != 0) throw Error("dp is odd");
      q.dp /= 2;
      q.cp *= 2;
    });
  }
  if (p.tp > 1) {
    plan(fmt::format("tp {} -> {}, dp {} -> {}", p.tp, p.tp / 2, p.dp, p.dp * 2), [](Plan& q) {
      if (q.tp % 2 != 0) throw Error("tp is odd");
      q.tp /= 2;
      q.dp *= 2;
    });
    if (!p.sp) plan("sp on", [](Plan& q) { q.sp = true; });
  }
  if (p.recompute != Recompute::none)
    plan("recompute off", [](Plan& q) { q.recompute = Recompute::none; });
  if (p.recompute != Recompute::selective)
    plan("recompute selective", [](Plan& q) { q.recompute = Recompute::selective; });
  if (p.recompute != Recompute::full)
    plan("recompute full", [](Plan& q) { q.recompute = Recompute::full; });
  for (const Dispatch kind : {Dispatch::flat, Dispatch::node_gather, Dispatch::node_relay}) {
    Plan placed = p;
    placed.ranks_per_node = std::min(static_cast<int>(cluster.node_devices()), p.ranks());
    if (p.ep == 1 || kind == p.dispatch || nodes_of_experts(placed) == 1) continue;
    plan(fmt::format("dispatch {} -> {}", name_of(p.dispatch), name_of(kind)),
         [kind, n = placed.ranks_per_node](Plan& q) {
           q.dispatch = kind;
           q.ranks_per_node = n;
         });
  }
  if (p.dp > 1 && p.zero == 0) plan("zero 1", [](Plan& q) { q.zero = 1; });
  for (size_t i = 0; i < cluster.levels.size(); ++i) {
    out.push_back({fmt::format("link {} twice as fast", cluster.levels[i].name),
                   [i](PlannedRun&, Cluster& c) {
                     for (auto& [n, bandwidth] : c.levels[i].bandwidth.points) bandwidth *= 2;
                     for (auto& [n, latency] : c.levels[i].latency.points) latency /= 2;
                     c.levels[i].send_bandwidth *= 2;
                     c.levels[i].send_latency /= 2;
                   }});
  }
  return out;
}

Change attempt(const Trial& trial, PlannedRun run, Cluster cluster, const Simulation& before,
               const PredictOptions& options) {
  Change c{.what = trial.what};
  try {
    trial.change(run, cluster);
    run.plan = resolve(run.plan, static_cast<int>(run.model.layers), run.rows);
    const Simulation s = predict(run, cluster, options).simulation;
    c.step_seconds = s.step_seconds;
    c.gain = 1 - before.tokens_per_second / s.tokens_per_second;
    c.fits = s.fits;
  } catch (const Error& e) {
    c.refused = e.what();
    std::replace(c.refused.begin(), c.refused.end(), '\n', ' ');
  }
  return c;
}

}  // namespace

Explanation explain(const PlannedRun& run, const Cluster& cluster, const PredictOptions& options) {
  Explanation e{
      .simulation = predict(run, cluster, options).simulation, .causes = {}, .changes = {}};
  const Simulation& s = e.simulation;
  add_memory(s, e.causes);
  add_links(s, cluster, run.plan, e.causes);
  if (run.plan.pp > 1 && !even(run.plan)) {
    PlannedRun other = run;
    other.plan.stages.clear();
    other.plan = resolve(other.plan, static_cast<int>(run.model.layers), run.rows);
    const Simulation evened =
        predict(other, cluster, {.memory = false, .check = options.check, .fused = options.fused})
            .simulation;
    add_pipeline(s, run, &evened, e.causes);
  } else {
    add_pipeline(s, run, nullptr, e.causes);
  }
  add_device(s, e.causes);
  std::stable_sort(e.causes.begin(), e.causes.end(),
                   [](const Cause& a, const Cause& b) { return a.seconds > b.seconds; });
  for (const Trial& t : trials(run, cluster))
    e.changes.push_back(attempt(t, run, cluster, s, options));
  std::stable_sort(e.changes.begin(), e.changes.end(), [](const Change& a, const Change& b) {
    return std::tuple(!a.refused.empty(), !a.fits, -a.gain) <
           std::tuple(!b.refused.empty(), !b.fits, -b.gain);
  });
  return e;
}

std::string to_text(const Explanation& e) {
  const Simulation& s = e.simulation;
  std::string out = "limited by:\n";
  for (size_t i = 0; i < e.causes.size(); ++i)
    out += fmt::format("  {}. {}\n", i + 1, e.causes[i].text);
  out += fmt::format("critical path, {} (ends on the stage that limits: {}):\n",
                     show_seconds(s.step_seconds), s.slowest_stage);
  std::vector<std::pair<double, int>> costs;
  for (int c = 0; c < kCosts; ++c) {
    if (s.critical[c] > 0) costs.emplace_back(s.critical[c], c);
  }
  std::sort(costs.rbegin(), costs.rend());
  for (const auto& [seconds, c] : costs) {
    out += fmt::format("  {:<15} {:>10} {:>7}\n", name_of(static_cast<Cost>(c)),
                       show_seconds(seconds), percent(seconds / s.step_seconds));
  }
  out += "changes, each simulated (time a token):\n";
  for (const Change& c : e.changes) {
    if (c.refused.empty()) {
      out += fmt::format("  {:<46} {:>10} {:>+7.1f} %{}\n", c.what, show_seconds(c.step_seconds),
                         -100 * c.gain, c.fits ? "" : "  does not fit");
    } else {
      out += fmt::format("  {:<46} refused: {}\n", c.what, c.refused);
    }
  }
  return out;
}

nlohmann::json to_json(const Explanation& e) {
  nlohmann::json causes = nlohmann::json::array(), changes = nlohmann::json::array();
  for (const Cause& c : e.causes)
    causes.push_back({{"text", c.text},
                      {"seconds", c.fatal ? nlohmann::json() : nlohmann::json(c.seconds)},
                      {"fatal", c.fatal}});
  for (const Change& c : e.changes) {
    if (c.refused.empty()) {
      changes.push_back({{"change", c.what},
                         {"step_seconds", c.step_seconds},
                         {"gain", c.gain},
                         {"fits", c.fits}});
    } else {
      changes.push_back({{"change", c.what}, {"refused", c.refused}});
    }
  }
  return {{"causes", causes}, {"changes", changes}, {"limiting_stage", e.simulation.slowest_stage}};
}

}  // namespace myriad
