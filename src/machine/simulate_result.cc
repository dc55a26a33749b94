// What the end of a simulated step says: its seconds, where they went, the critical path, rates and
// memory. The critical path is followed from the class that ends last back to the start: an action
// that had to wait leads to the one it waited for, so that every second on the way was needed.
#include <algorithm>

#include "machine/simulate_walk.h"

namespace myriad {

namespace {

class Result {
 public:
  explicit Result(const Walked& w)
      : p_(w.program),
        cluster_(w.cluster),
        o_(w.options),
        classes_(w.classes),
        walks_(w.walks),
        prices_(w.prices) {}

  Simulation run() const {
    Simulation r;
    r.ranks = p_.mesh.ranks();
    r.classes = static_cast<int64_t>(walks_.size());
    for (const auto& actions : p_.actions) r.actions += static_cast<int64_t>(actions.size());
    int last = 0;
    for (size_t i = 0; i < walks_.size(); ++i) {
      if (walks_[i].clock > walks_[last].clock) last = static_cast<int>(i);
    }
    r.step_seconds = walks_[last].clock;
    double busy = 0, flops = 0;
    for (const ClassWalk& w : walks_) {
      const double ranks = classes_.size[w.colour];
      busy += ranks * (w.useful + w.update + w.other);
      flops += ranks * w.flops;
    }
    for (int s = 0; s < p_.stages; ++s) r.stages.push_back(stage_result(s, r.step_seconds));
    for (int s = 0; s < p_.stages; ++s) {
      const StageResult &a = r.stages[s], &b = r.stages[r.slowest_stage];
      if (a.useful_seconds + a.update_seconds > b.useful_seconds + b.update_seconds)
        r.slowest_stage = s;
      r.bubble += a.useful_seconds > 0 ? a.idle_seconds / a.useful_seconds / p_.stages : 0;
    }
    for (int c = 0; c < kCosts; ++c) {
      const double seconds = r.stages[r.slowest_stage].seconds[c];
      if (communicates(static_cast<Cost>(c)) && seconds > 0)
        r.exposed_communication_seconds[name_of(static_cast<Cost>(c))] = seconds;
    }
    follow_critical_path(r, last);
    if (cluster_.shared()) {
      const double shared = shared_seconds(busy, r.step_seconds);
      r.critical[static_cast<int>(Cost::idle)] += shared - r.step_seconds;
      r.step_seconds = shared;
    }
    set_rates(r, flops);
    if (!classes_.exact)
      r.warnings.push_back(
          "cuts are too uneven to follow every kind of rank: the ranks of a stage are taken as one "
          "with the largest sizes");
    look_at_memory(r);
    return r;
  }

 private:
  // The step when ranks take turns on the workers: all work over the workers, and of what the
  // critical path is longer, the part that idle workers cannot help with.
  double shared_seconds(double busy, double critical) const {
    const double even = busy / cluster_.host.workers;
    return even + std::max(0.0, critical - even) * (1 - cluster_.host.parallel);
  }

  StageResult stage_result(int stage, double step_seconds) const {
    const ClassWalk* worst = nullptr;
    for (const ClassWalk& w : walks_) {
      if (w.stage == stage && (!worst || w.clock > worst->clock)) worst = &w;
    }
    StageResult s{.rank = worst->rank,
                  .useful_seconds = worst->useful,
                  .update_seconds = worst->update,
                  .seconds = worst->costs,
                  .imbalance_seconds = worst->imbalance,
                  .actions = worst->spans};
    s.seconds[static_cast<int>(Cost::idle)] += step_seconds - worst->clock;
    s.idle_seconds = s.seconds[static_cast<int>(Cost::idle)];
    return s;
  }

  void set_rates(Simulation& r, double flops) const {
    const double devices =
        cluster_.shared() ? std::min<double>(cluster_.host.workers, static_cast<double>(r.ranks))
                          : static_cast<double>(r.ranks);
    const double able = r.step_seconds * devices * cluster_.device.peak_flops.at(o_.pricing.dtype);
    if (able <= 0) return;
    r.mfu = o_.work.model_flops / able;
    r.mfu_full_attention = o_.work.model_flops_full_attention / able;
    r.hfu = flops / able;
    r.tokens_per_second = o_.work.tokens / r.step_seconds;
  }

  // From the end back to the start: an action that had to wait leads to the one it waited for.
  void follow_critical_path(Simulation& r, int walker) const {
    std::map<std::pair<Cost, int>, double> used;
    const int messages = -1;
    int action = static_cast<int>(walks_[walker].spans.size()) - 1;
    while (action >= 0) {
      const ClassWalk* w = &walks_[walker];
      const Action& a = p_.actions[w->stage][action];
      WaitCause cause = w->causes[action];
      if (a.act == Act::run &&
          cause.walker >= 0) {  // waited in a collective: the latest one's run counts
        walker = cause.walker;
        w = &walks_[walker];
        action = cause.action;
        cause = {};
      }
      if (a.act == Act::run) {
        count_run(*w, p_.actions[w->stage][action], r.critical, used);
      } else if (w->waits[action] > 0) {
        r.critical[static_cast<int>(Cost::send)] += w->transfers[action];
        used[{Cost::send, messages}] += w->transfers[action];
      }
      if (cause.walker >= 0) {
        walker = cause.walker;
        action = cause.action;
      }
      --action;
    }
    double sum = 0;
    for (double c : r.critical) sum += c;
    r.critical[static_cast<int>(Cost::idle)] += r.step_seconds - sum;
    for (const auto& [key, seconds] : used) {
      CommunicationUse use{.cost = key.first, .axes = "pp", .level = 0, .seconds = seconds};
      if (key.second >= 0) {
        use.axes = p_.mesh.show(classes_.atoms[key.second]);
        use.level = classes_.shape(key.second, 0).top();
      } else {
        for (int s = 0; s + 1 < p_.stages; ++s)
          use.level = std::max(
              use.level, level_between(cluster_, classes_.rank(s, 0), classes_.rank(s + 1, 0)));
      }
      r.critical_communication.push_back(use);
    }
    std::sort(r.critical_communication.begin(), r.critical_communication.end(),
              [](const auto& x, const auto& y) { return x.seconds > y.seconds; });
  }

  void count_run(const ClassWalk& w, const Action& a, Costs& costs,
                 std::map<std::pair<Cost, int>, double>& used) const {
    const PricedRun& run = prices_.known(w, a);
    for (int c = 0; c < kCosts; ++c) costs[c] += run.costs[c];
    for (const auto& [key, seconds] : run.collectives) used[key] += seconds;
    for (const RunSegment& s : run.segments) {
      if (s.atoms < 0) continue;
      costs[static_cast<int>(cost_of(s.what))] += s.met;
      used[{cost_of(s.what), s.atoms}] += s.met;
    }
  }

  // The columns that may hold most: all if there are few, else those with most in states and
  // bodies.
  std::vector<int> heaviest(int stage) const {
    constexpr size_t kMost = 16;
    std::vector<std::pair<int64_t, int>> weights;
    for (const auto& priced : classes_.priced) {
      for (int column : priced) weights.emplace_back(0, column);
    }
    if (weights.size() > kMost) {
      for (auto& [weight, column] : weights) {
        const int rank = classes_.rank(stage, column);
        for (const State& s : p_.states) {
          if (std::find(s.stages.begin(), s.stages.end(), stage) == s.stages.end()) continue;
          const StateUse& use = p_.bodies[s.body].states[s.use];
          const Value& v = (*p_.bodies[s.body].graph)[use.value];
          weight += local_elements(p_.mesh, use.layout, v.sizes, rank) *
                    o_.pricing.bytes.of(v, letter_of(use.name.kind));
        }
        for (const Action& a : p_.actions[stage]) {
          for (int b : a.outs) {
            if (a.act != Act::run || a.micro_batch != 0) continue;
            weight += local_elements(p_.mesh, p_.layout(p_.buffers[b]),
                                     p_.value(p_.buffers[b]).sizes, rank) *
                      o_.pricing.bytes.of(p_.value(p_.buffers[b]), 0);
          }
        }
      }
      std::sort(weights.rbegin(), weights.rend());
      weights.resize(kMost);
    }
    std::vector<int> columns;
    for (const auto& [weight, column] : weights) columns.push_back(column);
    return columns;
  }

  void look_at_memory(Simulation& r) const {
    r.memory_limit_bytes =
        static_cast<int64_t>(cluster_.device.memory_bytes - cluster_.device.reserved_bytes);
    if (!o_.memory) return;
    for (int s = 0; s < p_.stages; ++s) {
      for (int column : heaviest(s)) {
        const MemoryPlan plan = o_.memory(classes_.rank(s, column));
        if (plan.peak_bytes <= r.stages[s].peak_bytes) continue;
        r.stages[s].peak_bytes = plan.peak_bytes;
        r.stages[s].memory = plan.at_peak;
      }
    }
    for (const StageResult& s : r.stages) {
      r.memory_needed_bytes = cluster_.shared()
                                  ? r.memory_needed_bytes + s.peak_bytes * classes_.columns
                                  : std::max(r.memory_needed_bytes, s.peak_bytes);
    }
    r.fits = r.memory_needed_bytes <= r.memory_limit_bytes;
  }

  const Program& p_;
  const Cluster& cluster_;
  const SimulateOptions& o_;
  const Classes& classes_;
  const std::vector<ClassWalk>& walks_;
  const RunPrices& prices_;
};

}  // namespace

Simulation result_of(const Walked& walked) { return Result(walked).run(); }

}  // namespace myriad
