// For faults_test: a golden case run with a fault planted in it, and the checks that ought to see
// it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "ir/sequence.h"
#include "passes/check.h"
#include "train/job.h"

namespace myriad {

struct Fed {
  const Program& program;
  const Batch& batch;
  int rank, micro_batch, micro_batches;
  std::string name;
  Tensor to;  // already holds the true values
};

// What somebody may have got wrong.
struct Fault {
  std::function<void(Pieces&)> pieces = {};    // in the model: the same in every layout
  std::function<void(Program&)> program = {};  // in the program of the layout under test
  std::function<void(const Fed&)> feed = {};   // in what its ranks are fed
};

struct Setup {
  std::string golden;  // folder name
  Plan plan = {};
  double head_scale = 1;               // factor on the head's weight: huge logits
  std::optional<Plan> same_bits = {};  // a layout of the same bits
  bool probe = false;                  // does a later document see the first one?
};

class Golden {
 public:
  explicit Golden(const std::string& name)
      : folder_(std::string(MYRIAD_SOURCE) + "/tests/golden/" + name),
        config_(json_of("config.json")),
        expected_(json_of("expected.json")),
        batches_(SafeTensors::open(folder_ + "/batches.safetensors")) {}

  JobConfig job(const Plan& plan) const {
    const nlohmann::json& a = expected_.at("adamw");
    const auto& shape = batches_.info("input_ids.0").shape;
    JobConfig c{.model = read_config(config_, folder_),
                .plan = {},
                .rows = shape[0],
                .sequence = shape[1],
                .real = DType::f64,
                .optimizer = {},
                .kernels = KernelSet::ref};
    c.optimizer = {.beta1 = a.at("betas").at(0),
                   .beta2 = a.at("betas").at(1),
                   .eps = a.at("eps"),
                   .weight_decay = a.at("weight_decay"),
                   .clip_norm = expected_.at("clip_norm")};
    c.plan = resolve(plan, static_cast<int>(c.model.layers), c.rows);
    return c;
  }
  int steps() const { return static_cast<int>(expected_.at("steps").size()); }
  double lr() const { return expected_.at("adamw").at("lr"); }

  Batch batch(int i) const {
    Batch b{.rows = batches_.info("input_ids.0").shape[0],
            .sequence = batches_.info("input_ids.0").shape[1]};
    b.ids = integers("input_ids", i);
    b.targets = integers("targets", i);
    const bool packed = batches_.has("document_ids.0");
    if (packed)
      b.documents = integers("document_ids", i), b.positions = integers("position_ids", i);
    for (int64_t k = 0; !packed && k < b.rows * b.sequence; ++k) {
      b.documents.push_back(0);
      b.positions.push_back(static_cast<int32_t>(k % b.sequence));
    }
    return b;
  }

  SafeTensors weights() const { return SafeTensors::open(folder_ + "/model.safetensors"); }
  SafeTensors expected() const { return SafeTensors::open(folder_ + "/expected.safetensors"); }
  SafeTensors after() const { return SafeTensors::open(folder_ + "/after.safetensors"); }
  double expected(int step, const char* key) const {
    return expected_.at("steps").at(step).at(key);
  }

 private:
  nlohmann::json json_of(const std::string& file) const {
    std::ifstream in(folder_ + "/" + file);
    if (!in) throw Error("cannot be read", folder_ + "/" + file);
    return nlohmann::json::parse(in);
  }
  std::vector<int32_t> integers(const char* name, int i) const {
    std::vector<int32_t> out;
    for (int64_t x : batches_.integers(fmt::format("{}.{}", name, i)))
      out.push_back(static_cast<int32_t>(x));
    return out;
  }

  std::string folder_;
  nlohmann::json config_, expected_;
  SafeTensors batches_;
};

// What a run leaves: "loss 1", "norm 1" by step from 1, "gradient NAME" of step 1 (raw), "weight
// NAME" at the end.
struct Trace {
  std::map<std::string, std::vector<double>> values;
  std::vector<double> logits;  // of step 1
  bool refused = false, unequal_copies = false, miscounted = false;
};

class FaultyRun {
 public:
  FaultyRun(const Golden& golden, const Setup& setup, const Plan& plan, const Fault& fault)
      : golden_(golden),
        fault_(fault),
        pool_(2),
        job_(golden.job(plan), pool_,
             {.keep = {"logits"},
              .wanted = {},
              .rewrite_pieces = fault.pieces,
              .rewrite = fault.program}) {
    job_.load({golden.weights()});
    job_.initialise_moments();
    if (setup.head_scale != 1) scale_head(setup.head_scale);
    job_.set_tap([this](int rank, const Action& a, int buffer, const Tensor& t) {
      see(rank, a, buffer, t);
    });
  }

  Trace run() {
    check();
    for (int i = 0; i < golden_.steps(); ++i) {
      step(golden_.batch(i), i + 1);
      trace_.miscounted |= job_.train().executor->measured() != job_.predicted();
      if (i > 0) continue;
      trace_.logits = logits();
      collect_states('g', "gradient ");
    }
    collect_states('p', "weight ");
    return std::move(trace_);
  }

  // Logits of the first step's batch, as `change` leaves it.
  std::vector<double> logits_of(const std::function<void(Batch&)>& change) {
    Batch b = golden_.batch(0);
    change(b);
    step(b, 1);
    return logits();
  }

 private:
  void check() {
    try {
      check_program(job_.train().program);
    } catch (const Error&) {
      trace_.refused = true;
    }
  }

  void scale_head(double factor) {
    const Program& p = job_.train().program;
    for (size_t i = 0; i < p.states.size(); ++i) {
      if (p.states[i].name != "p:head.w") continue;
      const std::vector<double> w = get_state(*job_.train().executor, static_cast<int>(i));
      set_state(*job_.train().executor, static_cast<int>(i),
                [&](int64_t k) { return factor * w[static_cast<size_t>(k)]; });
    }
  }

  void see(int rank, const Action& a, int buffer, const Tensor& t) {
    const Program& p = job_.train().program;
    const std::string& name = p.value(p.buffers[buffer]).name;
    const std::lock_guard lock(mutex_);
    if (p.value(p.buffers[buffer]).port == Port::logits)
      collected_[a.micro_batch].try_emplace(0, p, buffer).first->second.add(rank, t);
    if (name == "norm" || name == "loss") scalars_[name].push_back(*t.as<double>());
  }

  std::vector<double> logits() {
    std::vector<double> all;
    for (const auto& [mb, parts] : collected_) {
      const JobConfig& c = job_.config();
      const std::vector<double> whole = parts.at(0).whole("logits");
      const int64_t rows = std::ssize(whole) / (c.sequence * c.model.vocabulary);
      const std::vector<double> x = in_row_order(whole, rows, c.sequence, c.plan.cp);
      all.insert(all.end(), x.begin(), x.end());
    }
    return all;
  }

  void step(const Batch& batch, int number) {
    collected_.clear();
    scalars_.clear();
    const OptimizerConfig& o = job_.config().optimizer;
    const int micro_batches = job_.config().plan.micro_batches;
    const std::vector<int32_t> order = sequence_order(batch.sequence, job_.config().plan.cp);
    const std::map<std::string, double> scalars = {
        {"inv_n", 1.0 / static_cast<double>(batch.valid())},
        {"live", 1},
        {"lr", golden_.lr()},
        {"left1", 1 - std::pow(o.beta1, number)},
        {"left2", 1 - std::pow(o.beta2, number)}};
    const std::map<std::string, const std::vector<int32_t>*> tokens = {{"ids", &batch.ids},
                                                                       {"targets", &batch.targets},
                                                                       {"pos", &batch.positions},
                                                                       {"doc", &batch.documents}};
    const Outcome outcome =
        job_.train().executor->step([&](int rank, const Value& input, int mb, const Tensor& to) {
          const std::string& name = input.name;
          if (const auto at = scalars.find(name); at != scalars.end()) {
            *to.as<double>() = at->second;
          } else {
            const int64_t first = micro_batch_rows(batch.rows, micro_batches, mb).lo + to.lo[0];
            for (int64_t i = 0; i < to.elements(); ++i) {
              const auto place = static_cast<size_t>(to.lo[1] + i % to.size[1]);
              to.as<int32_t>()[i] = tokens.at(name)->at(
                  static_cast<size_t>((first + i / to.size[1]) * batch.sequence + order[place]));
            }
          }
          if (fault_.feed)
            fault_.feed({job_.train().program, batch, rank, mb, micro_batches, name, to});
        });
    if (!outcome.ok()) throw Failure(outcome.reason);
    for (const auto& [name, copies] : scalars_) {
      for (double x : copies) trace_.unequal_copies |= std::memcmp(&x, &copies[0], sizeof x) != 0;
      const double n = name == "loss" ? static_cast<double>(batch.valid()) : 1;
      trace_.values[fmt::format("{} {}", name, number)] = {copies[0] / n};
    }
  }

  // A tied weight has a gradient for each use; they are added.
  void collect_states(char kind, const std::string& prefix) {
    const Program& p = job_.train().program;
    for (size_t i = 0; i < p.states.size(); ++i) {
      if (letter_of(p.states[i].name.kind) != kind) continue;
      try {
        const std::vector<double> x = get_state(*job_.train().executor, static_cast<int>(i));
        std::vector<double>& sum =
            trace_.values[prefix + job_.published(p.states[i].unit, p.states[i].name.of).front()];
        sum.resize(x.size(), 0.0);
        for (size_t k = 0; k < x.size(); ++k) sum[k] += x[k];
      } catch (const Failure&) {
        trace_.unequal_copies = true;
      }
    }
  }

  const Golden& golden_;
  const Fault& fault_;
  Pool pool_;
  Job job_;
  Trace trace_;
  std::mutex mutex_;
  std::map<int, std::map<int, Collected>> collected_;  // by micro-batch
  std::map<std::string, std::vector<double>> scalars_;
};

// Largest difference over the largest reference value.
inline double difference(const std::vector<double>& got, const std::vector<double>& reference,
                         double least = 1e-300) {
  if (got.size() != reference.size()) return std::numeric_limits<double>::infinity();
  double most = 0, largest = least;
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = std::abs(got[i] - reference[i]);
    if (!(d <= most)) most = std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
    largest = std::max(largest, std::abs(reference[i]));
  }
  return most / largest;
}

inline bool equals_one_rank(const Trace& run, const Trace& one) {
  for (const auto& [name, reference] : one.values) {
    const auto at = run.values.find(name);
    if (at == run.values.end()) continue;  // copies differ, which has a check of its own
    // AdamW divides by the root of moments that may vanish: weights are compared in units of a
    // step's change.
    const double bound = name.starts_with("weight") ? 1e-6 : 1e-8,
                 least = name.starts_with("gradient") ? 1e-6 : 1e-300;
    if (!(difference(at->second, reference, least) <= bound)) return false;
  }
  return true;
}

inline bool equals_golden(const Trace& run, const Golden& golden) {
  const SafeTensors expected = golden.expected(), after = golden.after();
  bool same = true;
  for (int i = 1; i <= golden.steps(); ++i) {
    same &= difference(run.values.at(fmt::format("loss {}", i)),
                       {golden.expected(i - 1, "cross_entropy")}) <= 1e-6;
    same &= difference(run.values.at(fmt::format("norm {}", i)),
                       {golden.expected(i - 1, "gradient_norm")}) <= 1e-6;
  }
  for (const auto& [name, x] : run.values) {
    if (name.starts_with("gradient "))
      same &= difference(x, expected.doubles("grad." + name.substr(9))) <= 1e-6;
    if (!name.starts_with("weight ")) continue;
    const std::vector<double> w = after.doubles(name.substr(7));
    double sum = 0;
    for (size_t i = 0; i < w.size(); ++i) sum += std::abs(x[i] - w[i]);
    same &= sum / static_cast<double>(w.size()) / golden.lr() <= 5e-5;
  }
  return same;
}

// A token of the first document of row 0 changes: do logits of its other documents?
inline bool first_document_is_seen(const Golden& golden, const Setup& setup, const Fault& fault) {
  const std::vector<double> before =
      FaultyRun(golden, setup, setup.plan, fault).logits_of([](Batch&) {});
  const std::vector<double> after =
      FaultyRun(golden, setup, setup.plan, fault).logits_of([](Batch& b) {
        b.ids[0] = b.ids[0] == 5 ? 6 : 5;
      });
  const Batch b = golden.batch(0);
  const int64_t vocabulary = static_cast<int64_t>(before.size()) / (b.rows * b.sequence);
  for (int64_t s = 0; s < b.sequence; ++s) {
    if (b.documents[s] == b.documents[0]) continue;
    for (int64_t v = s * vocabulary; v < (s + 1) * vocabulary; ++v) {
      if (before[v] != after[v]) return true;
    }
  }
  return false;
}

inline Trace one_rank(const Golden& golden, const Setup& setup,
                      const std::function<void(Pieces&)>& pieces) {
  if (pieces) return FaultyRun(golden, setup, {}, Fault{.pieces = pieces}).run();
  static std::map<std::pair<std::string, double>, Trace> clean;
  const auto [at, fresh] = clean.try_emplace({setup.golden, setup.head_scale});
  if (fresh) at->second = FaultyRun(golden, setup, {}, {}).run();
  return at->second;
}

// Names of the checks that see the fault:
//   check_program  the checker refuses the program
//   counts         measured FLOPs, bytes, messages or memory are not those predicted
//   copies         ranks hold different bits of the same part
//   layouts        gradients, norms, losses or weights are not those of one rank
//   golden         ... not those of another implementation
//   bits           ... not those of `same_bits` to the last bit
//   probe          a token of the first document changes the logits of a later one
inline std::set<std::string> caught(const Setup& setup, const Fault& fault) {
  const Golden golden(setup.golden);
  std::set<std::string> names;
  const Trace run = FaultyRun(golden, setup, setup.plan, fault).run();
  const Trace one = one_rank(golden, setup, fault.pieces);
  if (run.refused) names.insert("check_program");
  if (run.unequal_copies) names.insert("copies");
  if (run.miscounted) names.insert("counts");
  if (!equals_one_rank(run, one)) names.insert("layouts");
  if (setup.head_scale == 1 && !equals_golden(run, golden)) names.insert("golden");
  if (setup.same_bits) {
    const Trace other =
        FaultyRun(golden, setup, *setup.same_bits, Fault{.pieces = fault.pieces}).run();
    if (run.values != other.values || run.logits != other.logits) names.insert("bits");
  }
  if (setup.probe && first_document_is_seen(golden, setup, fault)) names.insert("probe");
  return names;
}

}  // namespace myriad
