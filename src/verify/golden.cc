// Runs a golden case: loads weights and batches that another implementation used, trains the same
// steps under a layout, and compares what comes out with the numbers of that implementation.
//
// Logits and gradients of the first step are taken from the ranks as they pass (Job::set_tap) and
// put together to whole tensors; that also proves that all copies are equal. Gradients get the
// published names of their parameters, those of stacked experts are taken apart, and logits are put
// back in the order of their row. Every error counts NaN as the worst. A router in a near tie may
// choose another expert in bf16, so there only losses and the norm of expert models are judged.
// Read Case::run first.
#include "verify/golden.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "ir/sequence.h"

namespace myriad {

namespace {

using nlohmann::json;

json read_json(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw Error("cannot be opened", path);
  try {
    return json::parse(in);
  } catch (const json::exception& e) {
    throw Damage(fmt::format("is not JSON: {}", e.what()), path);
  }
}

// Largest absolute difference over the largest absolute golden value.
double tensor_error(const std::vector<double>& got, const std::vector<double>& golden,
                    const std::string& name) {
  if (got.size() != golden.size()) {
    throw Error(fmt::format("{} has {} elements, the golden {}", name, got.size(), golden.size()));
  }
  double difference = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = std::abs(got[i] - golden[i]);
    if (!(d <= difference)) difference = d;  // NaN counts as worst
    largest = std::max(largest, std::abs(golden[i]));
  }
  return difference / std::max(largest, 1e-300);
}

double relative(double got, double golden) {
  return std::abs(got - golden) / std::max(std::abs(golden), 1e-300);
}

class Case {
 public:
  Case(const std::string& folder, Plan plan, DType real, Pool& pool, KernelSet kernels,
       Job::Options options)
      : folder_(folder),
        config_(read_json(folder + "/config.json")),
        expected_(read_json(folder + "/expected.json")),
        batches_(SafeTensors::open(folder + "/batches.safetensors")) {
    const auto& shape = batches_.info("input_ids.0").shape;
    const int64_t rows = shape.at(0), sequence = shape.at(1);
    ModelConfig model = read_config(config_, folder + "/config.json");
    apply_routing(model, expected_.at("routing"), folder + "/expected.json");
    check_micro_batches(plan);
    plan = resolve(plan, static_cast<int>(model.layers), rows);
    const json& adamw = expected_.at("adamw");
    lr_ = adamw.at("lr");
    OptimizerConfig optimizer{.beta1 = adamw.at("betas").at(0),
                              .beta2 = adamw.at("betas").at(1),
                              .eps = adamw.at("eps"),
                              .weight_decay = adamw.at("weight_decay"),
                              .clip_norm = expected_.at("clip_norm")};
    report_.name = expected_.at("case");
    report_.layout = show(plan);
    options.keep = {"logits"};
    job_ = std::make_unique<Job>(JobConfig{.model = model,
                                           .plan = plan,
                                           .rows = rows,
                                           .sequence = sequence,
                                           .real = real,
                                           .optimizer = optimizer,
                                           .kernels = kernels},
                                 pool, std::move(options));
    job_->load({SafeTensors::open(folder + "/model.safetensors")});
    job_->initialise_moments();
    const json& t = expected_.at("tolerance");
    tolerance_ = real == DType::f64    ? Tolerance{1e-6, 1e-6, 1e-6, 1e-6, 5e-5}
                 : real == DType::bf16 ? (model.moe.experts > 0 ? kOfExpertsInBf16 : kInBf16)
                                       : Tolerance{t.at("logits"), t.at("gradient"), t.at("loss"),
                                                   t.at("norm"), t.at("after")};
  }

  GoldenReport run() {
    const json& steps = expected_.at("steps");
    for (size_t i = 0; i < steps.size(); ++i) {
      if (i == 0) start_collecting();
      const StepResult r =
          job_->step(batch(static_cast<int>(i)), {.lr = lr_, .step = static_cast<int64_t>(i) + 1});
      if (i == 0) compare_first();
      compare_losses(steps[i], r);
      if (i == 0) compare_losses(expected_.at("first"), r);
    }
    compare_after();
    const GoldenReport& r = report_;
    report_.ok = r.logits <= tolerance_.logits && r.gradient <= tolerance_.gradient &&
                 r.loss <= tolerance_.loss && r.norm <= tolerance_.norm &&
                 r.after <= tolerance_.after && (r.routing == 0 || tolerance_.logits == kAny);
    return report_;
  }

 private:
  struct Tolerance {
    double logits, gradient, loss, norm, after;
  };
  // The golden files state the tolerances for fp32, docs/precision.md those for bf16. In bf16 a
  // router may choose another expert in a near tie, so only losses and norm of expert models are
  // judged.
  static constexpr double kAny = std::numeric_limits<double>::infinity();
  static constexpr Tolerance kInBf16{0x1p-5, 0x1p-3, 5e-3, 0x1p-3, 2};
  static constexpr Tolerance kOfExpertsInBf16{kAny, kAny, 5e-2, 0.5, kAny};

  void check_micro_batches(const Plan& plan) const {
    const json& routing = expected_.at("routing");
    if (!routing.contains("micro_batches") || routing.at("micro_batches") == plan.micro_batches)
      return;
    throw Error(fmt::format("the case is defined for {} micro-batches, the layout has {}",
                            routing.at("micro_batches").get<int>(), plan.micro_batches),
                folder_,
                fmt::format("layout.micro_batches={}", routing.at("micro_batches").get<int>()));
  }

  std::vector<int32_t> integers(const std::string& name) const {
    std::vector<int32_t> out;
    for (int64_t x : batches_.integers(name)) out.push_back(static_cast<int32_t>(x));
    return out;
  }

  Batch batch(int i) const {
    const auto key = [&](const char* name) { return fmt::format("{}.{}", name, i); };
    Batch b{.rows = job_->config().rows,
            .sequence = job_->config().sequence,
            .ids = integers(key("input_ids")),
            .targets = integers(key("targets"))};
    if (batches_.has(key("document_ids"))) {
      b.documents = integers(key("document_ids"));
      b.positions = integers(key("position_ids"));
    } else {
      b.documents.assign(b.ids.size(), 0);
      for (size_t k = 0; k < b.ids.size(); ++k)
        b.positions.push_back(static_cast<int32_t>(static_cast<int64_t>(k) % b.sequence));
    }
    return b;
  }

  void start_collecting() {
    job_->set_tap([this](int rank, const Action& a, int buffer, const Tensor& t) {
      const Program& p = job_->train().program;
      const Value& value = p.value(p.buffers[buffer]);
      const bool wanted = value.port == Port::logits || !value.parameter.empty();
      if (!wanted) return;
      const std::lock_guard lock(mutex_);
      collected_.try_emplace(buffer, p, buffer).first->second.add(rank, t);
      where_[buffer] = {a.unit, a.micro_batch};
    });
  }

  void compare_first() {
    job_->set_tap(nullptr);
    const SafeTensors expected = SafeTensors::open(folder_ + "/expected.safetensors");
    const Program& p = job_->train().program;
    std::map<int, std::vector<double>> logits;  // by micro-batch
    std::map<std::string, std::vector<double>> gradients;
    for (const auto& [buffer, collected] : collected_) {
      const Value& value = p.value(p.buffers[buffer]);
      const auto [unit, mb] = where_.at(buffer);
      if (value.port == Port::logits) {
        const Sizes& sizes = value.sizes;
        logits[mb] =
            in_row_order(collected.whole(value.name), sizes[0], sizes[1], job_->config().plan.cp);
      } else {
        const std::vector<std::string> names = job_->published(std::max(unit, 0), value.parameter);
        const std::vector<double> whole = collected.whole(names[0]);
        const auto part = static_cast<std::ptrdiff_t>(whole.size() / names.size());
        for (size_t i = 0; i < names.size(); ++i) {
          const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(i) * part;
          const std::vector<double> x(begin, begin + part);
          if (!gradients.emplace(names[i], x).second && gradients.at(names[i]) != x)
            throw Failure("copies of the gradient of " + names[i] + " differ");
        }
      }
    }
    std::vector<double> all;
    for (const auto& [mb, x] : logits) all.insert(all.end(), x.begin(), x.end());
    report_.logits = tensor_error(all, expected.doubles("logits"), "logits");
    for (const std::string& name : expected.names()) {
      if (!name.starts_with("grad.")) continue;
      const auto at = gradients.find(name.substr(5));
      if (at == gradients.end())
        throw Error(fmt::format("no gradient of {}", name.substr(5)), folder_);
      const double e = tensor_error(at->second, expected.doubles(name), name);
      if (e > report_.gradient || !(e == e) || report_.gradient_name.empty()) {
        report_.gradient = e;
        report_.gradient_name = at->first;
      }
    }
  }

  void compare_losses(const json& golden, const StepResult& r) {
    const auto worst = [](double& so_far, double e) {
      so_far = e > so_far || !(e == e) ? e : so_far;
    };
    worst(report_.loss, relative(r.loss(), golden.at("cross_entropy")));
    const double total = golden.at("total"), auxiliary = golden.at("auxiliary");
    worst(report_.loss,
          auxiliary == 0 ? std::abs(r.auxiliary) / total : relative(r.auxiliary, auxiliary));
    worst(report_.loss, relative(r.loss() + r.auxiliary, total));
    compare_routing(golden, r);
    if (golden.contains("gradient_norm"))
      worst(report_.norm, relative(r.norm, golden.at("gradient_norm")));
  }

  // Both lists have the expert layers in the order of the model.
  void compare_routing(const json& golden, const StepResult& r) {
    if (!golden.contains("tokens_per_expert")) return;
    size_t layer = 0;
    for (const auto& [unit, counts] : r.tokens_per_expert) {
      const json& theirs = golden.at("tokens_per_expert").at(layer);
      for (size_t e = 0; e < counts.size(); ++e)
        report_.routing += counts[e] != theirs.at(e).get<int64_t>();
      const auto dropped = r.dropped.find(unit);
      report_.routing += (dropped == r.dropped.end() ? 0 : dropped->second) !=
                         golden.at("dropped").at(layer).get<int64_t>();
      ++layer;
    }
    report_.routing += layer != golden.at("tokens_per_expert").size();
  }

  void compare_after() {
    const SafeTensors after = SafeTensors::open(folder_ + "/after.safetensors");
    for (const std::string& name : job_->parameters()) {
      const std::vector<double> got = job_->parameter(name), golden = after.doubles(name);
      double sum = 0;
      for (size_t i = 0; i < got.size(); ++i) sum += std::abs(got[i] - golden.at(i));
      const double e = sum / static_cast<double>(got.size()) / lr_;
      if (e > report_.after || !(e == e)) report_.after = e;
    }
  }

  std::string folder_;
  json config_, expected_;
  SafeTensors batches_;
  double lr_ = 0;
  Tolerance tolerance_{};
  std::unique_ptr<Job> job_;
  GoldenReport report_;
  std::mutex mutex_;
  std::map<int, Collected> collected_;
  std::map<int, std::pair<int, int>> where_;
};

}  // namespace

GoldenReport verify_golden(const std::string& folder, Plan plan, DType real, Pool& pool,
                           KernelSet kernels, Job::Options options) {
  try {
    return Case(folder, std::move(plan), real, pool, kernels, std::move(options)).run();
  } catch (const json::exception& e) {
    throw Error(fmt::format("not a golden case: {}", e.what()), folder);
  }
}

}  // namespace myriad
