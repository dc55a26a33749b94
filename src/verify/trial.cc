// Trains one variant under one layout and keeps what it computed as tensors by name, so that two
// runs can be compared whatever their layouts. Gradients are caught where they are reduced and not
// yet clipped, on all ranks, and put together to whole tensors.
//
// Beside the numbers every step is checked for what needs no other run: copies that ranks hold must
// be equal, predicted and measured counts must be equal, and a step without a target must leave
// every weight and moment as it is. Errors are relative to the largest value of a tensor, and for
// gradients to at least a small share of the largest gradient, since one that vanishes consists of
// rounding only. Read `run_trial` first, then `compare`.
#include "verify/trial.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "base/error.h"

namespace myriad {

namespace {

constexpr double kLearningRate = 1e-2;

using Tensors = std::map<std::string, std::vector<double>>;

// Collects the gradients of one step as the optimizer gets them.
class Gradients {
 public:
  explicit Gradients(Job& job) : job_(job) {
    job.set_tap([this](int rank, const Action& a, int buffer, const Tensor& t) {
      const Program& p = job_.train().program;
      if (p.value(p.buffers[buffer]).parameter.empty()) return;
      const std::lock_guard lock(mutex_);
      parts_.try_emplace(buffer, Part{a.unit, Collected(p, buffer)})
          .first->second.collected.add(rank, t);
    });
  }
  ~Gradients() { job_.set_tap(nullptr); }

  // Two stages hand out the gradient of a tied weight, and both must be equal.
  void add_to(Record& record, int step) {
    const Program& p = job_.train().program;
    for (const auto& [buffer, part] : parts_) {
      const std::string published =
          job_.published(std::max(part.unit, 0), p.value(p.buffers[buffer]).parameter).front();
      std::vector<double> whole = part.collected.whole("the gradient of " + published);
      const auto [at, fresh] =
          record.tensors.try_emplace(fmt::format("gradient {} {}", step, published), whole);
      if (!fresh && at->second != whole)
        record.faults.push_back("copies of the gradient of " + published +
                                " differ between stages");
    }
    parts_.clear();
  }

 private:
  struct Part {
    int unit;
    Collected collected;
  };
  Job& job_;
  std::mutex mutex_;
  std::map<int, Part> parts_;
};

void check_untouched(const Tensors& before, const Tensors& after, int step, Record& record) {
  for (const auto& [name, x] : before) {
    if (!same_bits(x, after.at(name)))
      record.faults.push_back(fmt::format("step {} has no targets, but {} changed", step, name));
  }
}

// Reports every count that was not predicted.
void check_counts(const StepProfile& predicted, const StepProfile& measured, int step,
                  Record& record) {
  if (predicted == measured) return;
  const auto fault = [&](const std::string& what, auto p, auto m) {
    record.faults.push_back(fmt::format("step {}: {} predicted {}, measured {}", step, what, p, m));
  };
  if (predicted.flops != measured.flops) fault("flops", predicted.flops, measured.flops);
  for (size_t r = 0; r < predicted.peak_bytes.size(); ++r) {
    if (predicted.peak_bytes[r] != measured.peak_bytes[r])
      fault(fmt::format("peak of rank {}", r), predicted.peak_bytes[r], measured.peak_bytes[r]);
  }
  const auto collectives = [](const StepProfile& p) {
    std::string text;
    for (const auto& [kind, n] : p.collectives)
      text += fmt::format(" {} {} B in {}, {} B in {} rows between nodes", kind, n.bytes,
                          n.messages, n.between_nodes_bytes, n.between_nodes_rows);
    return text;
  };
  for (size_t r = 0; r < predicted.order.size(); ++r) {
    if (predicted.order[r] != measured.order.at(r))
      fault(fmt::format("order of messages of rank {}", r), predicted.order[r], measured.order[r]);
  }
  if (predicted.collectives != measured.collectives)
    fault("collectives", collectives(predicted), collectives(measured));
  for (const auto& [row, n] : predicted.ops) {
    const auto at = measured.ops.find(row);
    const int64_t m = at == measured.ops.end() ? 0 : at->second;
    if (m != n) fault("executions of " + row, n, m);
  }
}

void add_routing(const StepResult& r, int step, Record& record) {
  if (r.tokens_per_expert.empty()) return;
  record.tensors[fmt::format("router losses {}", step)] = {r.auxiliary};
  for (const auto& [unit, counts] : r.tokens_per_expert) {
    record.tensors[fmt::format("tokens per expert {} layer {}", step, unit - 1)] = {counts.begin(),
                                                                                    counts.end()};
  }
  for (const auto& [unit, dropped] : r.dropped) {
    record.tensors[fmt::format("dropped {} layer {}", step, unit - 1)] = {
        static_cast<double>(dropped)};
  }
}

}  // namespace

Tensors states_of(Job& job) {
  Tensors out;
  const Program& p = job.train().program;
  for (size_t i = 0; i < p.states.size(); ++i) {
    const char kind = letter_of(p.states[i].name.kind);
    if (kind != 'p' && kind != 'm' && kind != 'v') continue;
    const std::string name = job.published(p.states[i].unit, p.states[i].name.of).front();
    out[kind == 'p' ? "weight " + name : fmt::format("moment {} {}", kind, name)] =
        get_state(*job.train().executor, static_cast<int>(i));
  }
  return out;
}

StepResult record_step(Job& job, const Batch& batch, int step, Record& record) {
  Gradients gradients(job);
  const StepResult r = job.step(batch, {.lr = kLearningRate, .step = step});
  check_counts(job.predicted(), job.train().executor->measured(), step, record);
  record.tensors[fmt::format("loss {}", step)] = {r.loss_sum};
  record.tensors[fmt::format("norm {}", step)] = {r.norm};
  add_routing(r, step, record);
  gradients.add_to(record, step);
  return r;
}

Record run_trial(const Variant& variant, const Plan& plan, Pool& pool, const WantedOn& wanted,
                 Job::Options options) {
  const JobConfig config = job_config(variant, plan);
  Mesh mesh;
  if (wanted) {
    mesh =
        mesh_of(plan, emit_model(config.model, 1, config.sequence, config.real, config.optimizer));
    options.wanted = wanted(mesh);
  }
  Job job(config, pool, options);
  job.initialise(1);
  Record record;
  for (size_t i = 0; i < variant.steps.size(); ++i) {
    const int step = static_cast<int>(i) + 1;
    const bool idle = variant.steps[i].valid() == 0;
    const Tensors before = idle ? states_of(job) : Tensors{};
    record_step(job, variant.steps[i], step, record);
    if (idle) check_untouched(before, states_of(job), step, record);
  }
  record.tensors.merge(states_of(job));
  return record;
}

namespace {

double largest(const std::vector<double>& x) {
  double m = 0;
  for (double e : x) m = std::max(m, std::abs(e));
  return m;
}

// Kind and step of a tensor: "gradient 1 " for "gradient 1 NAME".
std::string step_of(const std::string& name) {
  return name.substr(0, name.find(' ', name.find(' ') + 1) + 1);
}

double error_of(const std::vector<double>& a, const std::vector<double>& reference, double scale) {
  constexpr double kBad = std::numeric_limits<double>::infinity();
  if (a.size() != reference.size()) return kBad;
  double difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(reference[i])) return kBad;
    difference = std::max(difference, std::abs(a[i] - reference[i]));
  }
  return difference == 0 ? 0 : difference / scale;
}

}  // namespace

std::vector<Deviation> compare(const Record& run, const Record& reference, double gradient_floor) {
  std::map<std::string, double> floors;
  for (const auto& [name, x] : reference.tensors) {
    if (!name.starts_with("gradient ")) continue;
    double& floor = floors[step_of(name)];
    floor = std::max(floor, gradient_floor * largest(x));
  }
  std::vector<Deviation> out;
  for (const auto& [name, x] : reference.tensors) {
    if (name.starts_with("moment ")) continue;
    const auto floor = floors.find(step_of(name));
    const double scale = std::max(largest(x), floor == floors.end() ? 0 : floor->second);
    const auto got = run.tensors.find(name);
    out.push_back(
        {name, error_of(got == run.tensors.end() ? std::vector<double>{} : got->second, x, scale)});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Deviation& a, const Deviation& b) { return a.error > b.error; });
  return out;
}

std::string first_difference(const Record& a, const Record& b) {
  for (const auto& [name, x] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end() || !same_bits(x, other->second)) return name;
  }
  return a.tensors.size() == b.tensors.size() ? "" : "the list of tensors";
}

}  // namespace myriad
