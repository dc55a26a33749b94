// Prices rows of measurements and says how far off they are. A program depends on the plan alone
// and not on the cluster, so `Bench` keeps it, and a fit that prices a row hundreds of times lowers
// it once.
#include "plan/accuracy.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "plan/make_program.h"
#include "plan/predict.h"

namespace myriad {

namespace {

double all_reduce_seconds(const Cluster& cluster, int64_t bytes, int ranks) {
  std::vector<int> group(static_cast<size_t>(ranks));
  std::iota(group.begin(), group.end(), 0);
  return collective_seconds(cluster, MoveKind::all_reduce, static_cast<double>(bytes),
                            shape_of(cluster, group), ranks)
      .seconds;
}

Program lowered(const PlannedRun& run) {
  return make_program(run.model, run.plan, step_shape(run, DType::f32),
                      {.lower = {.rows = run.rows, .check = false}});
}

double share_below(std::vector<double> sorted, double share) {
  if (sorted.empty()) return 0;
  std::sort(sorted.begin(), sorted.end());
  const double at = share * static_cast<double>(sorted.size() - 1);
  const size_t i = static_cast<size_t>(at);
  const double rest = at - static_cast<double>(i);
  return i + 1 < sorted.size() ? sorted[i] * (1 - rest) + sorted[i + 1] * rest : sorted[i];
}

int sign(double x) { return (x > 0) - (x < 0); }

}  // namespace

Priced Bench::price(size_t row, const Cluster& cluster) {
  const Measured& m = rows_[row];
  Priced p{.skipped = m.skipped};
  if (!p.skipped.empty()) return p;
  if (m.message_bytes > 0) {
    p.seconds = all_reduce_seconds(cluster, m.message_bytes, options_.ranks);
    p.error = p.seconds / m.step_seconds - 1;
    return p;
  }
  const System* system = system_of(systems_, m.framework);
  if (system == nullptr) {
    p.skipped = "no file in clusters/systems for framework " + m.framework;
    return p;
  }
  try {
    PlannedRun run = m.run;
    System with = *system;
    if (m.selective && with.selective_elementwise) run.plan.recompute = Recompute::selective;
    if (m.selective && with.scores) with.scores->recomputed = !with.selective_elementwise;
    check_ranks(cluster, run.plan.ranks());
    SimulateOptions o = simulate_options(run, cluster, {.system = &with});
    auto& program = programs_[row];
    if (!program) program = std::make_shared<Program>(lowered(run));
    if (options_.memory && m.peak_bytes > 0) {
      o.memory = [&](int rank) {
        return plan_memory(*program, rank, {}, [&](const Value& v, char state) {
          return o.pricing.bytes.of(v, state);
        });
      };
    }
    const Simulation s = simulate(*program, cluster, o);
    p.seconds = s.step_seconds;
    for (const StageResult& stage : s.stages)
      p.peak_bytes = std::max(p.peak_bytes, stage.peak_bytes);
  } catch (const Error& e) {
    p.skipped = e.what();
    return p;
  }
  p.error = p.seconds / m.step_seconds - 1;
  if (m.peak_bytes > 0) {
    p.memory_error = static_cast<double>(p.peak_bytes) / static_cast<double>(m.peak_bytes) - 1;
  }
  return p;
}

std::vector<Priced> Bench::price(std::span<const size_t> rows, const Cluster& cluster) {
  std::vector<Priced> out;
  for (size_t i : rows) out.push_back(price(i, cluster));
  return out;
}

Accuracy accuracy(const std::vector<Measured>& rows, std::span<const size_t> at,
                  std::span<const Priced> priced) {
  Accuracy a{.rows = static_cast<int64_t>(at.size())};
  std::vector<double> errors;
  std::map<std::string, std::vector<std::pair<double, double>>> groups;
  int64_t with_memory = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    const Priced& p = priced[i];
    const Measured& m = rows[at[i]];
    if (!p.skipped.empty()) continue;
    errors.push_back(std::abs(p.error));
    a.mean += std::abs(p.error);
    a.bias += p.error;
    groups[m.group].emplace_back(m.step_seconds, p.seconds);
    if (m.peak_bytes == 0) continue;
    ++with_memory;
    a.memory_mean += std::abs(p.memory_error);
    a.memory_max = std::max(a.memory_max, std::abs(p.memory_error));
  }
  a.modelled = static_cast<int64_t>(errors.size());
  const double n = std::max(1.0, static_cast<double>(a.modelled));
  a.mean /= n;
  a.bias /= n;
  a.memory_mean /= std::max(1.0, static_cast<double>(with_memory));
  a.median = share_below(errors, 0.5);
  a.p90 = share_below(errors, 0.9);
  int ranked = 0;
  for (const auto& [name, pairs] : groups) {
    double agree = 0, count = 0;
    for (size_t i = 0; i < pairs.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        agree += sign(pairs[i].first - pairs[j].first) * sign(pairs[i].second - pairs[j].second);
        ++count;
      }
    }
    if (count == 0) continue;
    a.kendall_tau += agree / count;
    ++ranked;
  }
  a.kendall_tau /= std::max(1, ranked);
  return a;
}

}  // namespace myriad
