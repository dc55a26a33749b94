// Trains every variant under many layouts and compares each with one rank. The layouts to try are
// the whole list for the base model (all of them without cp) and pairwise designs for the others;
// verify/variants.h makes both.
//
// There are two comparisons. Values must agree with those of one rank within a bound, since a
// layout may change the order of sums. Beyond that, layouts that differ only in what must not
// change the order of any sum (stages, schedule, recomputation, ZeRO) must agree to the bit:
// `bit_group` names all the rest, and layouts of one name are a group. One worker tries a group
// from its first layout to its last, and the groups with most work go first. Read the class Sweep
// first.
#include "verify/layouts.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "verify/trial.h"

namespace myriad {

double LayoutReport::worst_error(bool narrow) const {
  double e = 0;
  for (const LayoutWorst& w : worst) {
    if (w.narrow == narrow) e = std::max(e, w.error);
  }
  return e;
}

namespace {

// What one rank computes in fp64, and for variants in bf16 also what it computes in bf16.
struct Reference {
  Record run, narrow;
};

struct Task {
  const Variant* variant;
  const Reference* reference;
  Plan plan;
  int number;         // the place of the variant in the report
  std::string group;  // layouts that must agree to the bit
};

std::string name_of(const Task& t) { return t.variant->name + ": " + show(t.plan); }

double finite(double error) { return std::isfinite(error) ? error : 1; }

// Layouts of an expert model tried beyond the pairwise design.
constexpr size_t kMore = 40;

// Bits may depend on dp, cp, tp, sp, micro-batches and, if there are several, on when gradients are
// reduced; of expert models on ep, etp, the rounds and, where dispatch tells them apart, the nodes.
std::string bit_group(const Variant& v, const Plan& p) {
  const bool late = p.grad_reduce == GradReduce::step || p.micro_batches == 1;
  return fmt::format("{} dp{} cp{} tp{} sp{} mb{} {} ep{} etp{} bound{} {}{}", v.name, p.dp, p.cp,
                     p.tp, p.sp, p.micro_batches, late ? "step" : "micro_batch", p.ep, p.etp,
                     p.expert_rows_bound, name_of(p.dispatch),
                     p.dispatch == Dispatch::flat ? 0 : p.ranks_per_node);
}

// See kBf16LayoutBound.
std::vector<Deviation> compare_in_bf16(const Record& run, const Reference& reference,
                                       bool experts) {
  std::map<std::string, double> one_rank;
  for (const Deviation& d : compare(reference.narrow, reference.run, kBf16GradientFloor))
    one_rank[d.tensor] = d.error;
  std::vector<Deviation> out = compare(run, reference.run, kBf16GradientFloor);
  std::erase_if(out, [&](const Deviation& d) {
    return experts && !d.tensor.starts_with("loss ") && !d.tensor.starts_with("norm ");
  });
  for (Deviation& d : out) d.error /= std::max(one_rank[d.tensor], kBf16LeastError);
  std::stable_sort(out.begin(), out.end(),
                   [](const Deviation& a, const Deviation& b) { return a.error > b.error; });
  return out;
}

class Sweep {
 public:
  explicit Sweep(const LayoutSweep& options) : options_(options), variants_(all_variants()) {
    Pool pool(1);
    std::erase_if(variants_, [&](const Variant& v) {
      const auto& only = options.variants;
      return !only.empty() && std::find(only.begin(), only.end(), v.name) == only.end();
    });
    for (const Variant& v : variants_) {
      const std::vector<Plan> plans = chosen_plans(v);
      for (const Plan& p : plans) {
        std::string group = bit_group(v, p);
        const Reference& reference = reference_of(v, p, pool);
        tasks_.push_back(
            {&v, &reference, p, static_cast<int>(report_.counts.size()), std::move(group)});
      }
      report_.worst.push_back({.narrow = v.real == DType::bf16});
      report_.counts.push_back(static_cast<int>(plans.size()));
    }
    order_groups();
  }

  LayoutReport run() {
    const int workers = options_.workers > 0
                            ? options_.workers
                            : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    std::vector<std::thread> threads;
    for (int i = 1; i < workers; ++i) threads.emplace_back([this] { work(); });
    work();
    for (std::thread& t : threads) t.join();
    report_.layouts = static_cast<int>(tasks_.size());
    const auto by_layout = [](const LayoutFault& a, const LayoutFault& b) {
      return a.layout < b.layout;
    };
    std::stable_sort(report_.failed.begin(), report_.failed.end(), by_layout);
    std::sort(report_.bits_failed.begin(), report_.bits_failed.end());
    return std::move(report_);
  }

 private:
  // All layouts of the base model without context parallelism, and a selection of the others.
  std::vector<Plan> chosen_plans(const Variant& v) const {
    std::vector<Plan> all = all_plans(v, options_.max_ranks), full;
    if (options_.all) return all;
    if (v.name == "base") {
      const auto shared =
          std::stable_partition(all.begin(), all.end(), [](const Plan& p) { return p.cp == 1; });
      full.assign(all.begin(), shared);
      all.erase(all.begin(), shared);
    }
    const bool more = v.name == "base" || v.model.moe.experts > 0;
    const std::vector<Plan> some = pairwise(all, options_.seed, more ? kMore : 0);
    full.insert(full.end(), some.begin(), some.end());
    return full;
  }

  const Reference& reference_of(const Variant& v, const Plan& plan, Pool& pool) {
    const int micro_batches = v.by_micro_batch() ? plan.micro_batches : 1;
    const auto [at, fresh] = references_.try_emplace({v.name, micro_batches});
    if (!fresh) return at->second;
    const Plan one =
        resolve({.micro_batches = micro_batches}, static_cast<int>(v.model.layers), v.rows);
    Variant wide = v;
    wide.real = DType::f64;
    at->second.run = run_trial(wide, one, pool);
    if (v.real == DType::bf16) at->second.narrow = run_trial(v, one, pool);
    return at->second;
  }

  // A worker takes a whole group, so that only one record to compare bits with lives at a time.
  void order_groups() {
    std::map<std::string, std::vector<int>> groups;
    for (size_t i = 0; i < tasks_.size(); ++i)
      groups[tasks_[i].group].push_back(static_cast<int>(i));
    for (auto& [_, members] : groups) groups_.push_back(std::move(members));
    const auto cost = [&](const std::vector<int>& g) {
      return static_cast<double>(g.size()) * tasks_[g[0]].plan.ranks();
    };
    std::stable_sort(groups_.begin(), groups_.end(),
                     [&](const auto& a, const auto& b) { return cost(a) > cost(b); });
  }

  void work() {
    Pool pool(1);
    for (size_t g; (g = next_++) < groups_.size();) {
      Record first;
      std::string first_name;
      for (int i : groups_[g]) {
        Record record;
        if (!try_layout(tasks_[i], pool, record)) continue;
        if (first_name.empty()) {
          first = std::move(record);
          first_name = name_of(tasks_[i]);
        } else if (const std::string tensor = first_difference(first, record); !tensor.empty()) {
          const std::lock_guard lock(mutex_);
          report_.bits_failed.push_back(
              fmt::format("{}: {} differs from {}", name_of(tasks_[i]), tensor, first_name));
        }
      }
    }
  }

  // False if there is nothing to compare bits with.
  bool try_layout(const Task& t, Pool& pool, Record& record) {
    std::vector<LayoutFault> faults;
    std::vector<Deviation> deviations;
    bool ran = true;
    const bool narrow = t.variant->real == DType::bf16;
    try {
      record = run_trial(*t.variant, t.plan, pool);
      deviations = narrow ? compare_in_bf16(record, *t.reference, t.variant->model.moe.experts > 0)
                          : compare(record, t.reference->run);
    } catch (const std::exception& e) {
      faults.push_back({name_of(t), e.what(), 1});
      ran = false;
    }
    for (const std::string& f : record.faults) faults.push_back({name_of(t), f, 1});
    const double bound = narrow ? kBf16LayoutBound : kLayoutBound;
    if (!deviations.empty() && !(deviations[0].error <= bound)) {
      faults.push_back({name_of(t), deviations[0].tensor, finite(deviations[0].error)});
    }
    const std::lock_guard lock(mutex_);
    report_.failed.insert(report_.failed.end(), faults.begin(), faults.end());
    LayoutWorst& worst = report_.worst[t.number];
    if (!deviations.empty() && (worst.layout.empty() || deviations[0].error > worst.error)) {
      worst = {name_of(t), deviations[0].tensor, finite(deviations[0].error), narrow};
    }
    ++done_;
    if (options_.progress)
      options_.progress(done_, static_cast<int>(tasks_.size()), report_.worst_error());
    return ran;
  }

  const LayoutSweep& options_;
  std::vector<Variant> variants_;
  std::map<std::pair<std::string, int>, Reference> references_;  // by variant and micro-batches
  std::vector<Task> tasks_;
  std::vector<std::vector<int>> groups_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;  // guards report_ and done_
  LayoutReport report_;
  int done_ = 0;
};

}  // namespace

std::vector<std::string> variant_names() {
  std::vector<std::string> names;
  for (const Variant& v : all_variants()) names.push_back(v.name);
  return names;
}

LayoutReport verify_layouts(const LayoutSweep& options) {
  const auto start = std::chrono::steady_clock::now();
  LayoutReport report = Sweep(options).run();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

std::string to_json(const LayoutReport& report) {
  nlohmann::ordered_json j;
  j["layouts"] = report.layouts;
  j["failed"] = nlohmann::ordered_json::array();
  for (const LayoutFault& f : report.failed)
    j["failed"].push_back({{"layout", f.layout}, {"tensor", f.tensor}, {"error", f.error}});
  j["worst"] = report.worst_error();
  j["worst_bf16"] = report.worst_error(true);
  j["bits_failed"] = report.bits_failed;
  j["seconds"] = report.seconds;
  return j.dump();
}

std::string to_text(const LayoutReport& report) {
  std::string text;
  for (size_t i = 0; i < report.worst.size(); ++i) {
    const LayoutWorst& w = report.worst[i];
    text += fmt::format("{:5} layouts, worst {:8.2g}  {}  ({})\n", report.counts[i], w.error,
                        w.tensor, w.layout);
  }
  for (const LayoutFault& f : report.failed)
    text += fmt::format("FAILED {}: {} ({:.2g})\n", f.layout, f.tensor, f.error);
  for (const std::string& b : report.bits_failed) text += "BITS " + b + "\n";
  text += fmt::format(
      "{} layouts in {:.0f} s, worst error {:.2g} (bound {:.0e}), in bf16 {:.2g} times one rank's "
      "(bound {:.2g}), {} failed, {} with other bits\n",
      report.layouts, report.seconds, report.worst_error(), kLayoutBound, report.worst_error(true),
      kBf16LayoutBound, report.failed.size(), report.bits_failed.size());
  return text;
}

}  // namespace myriad
