// A run saved in one layout and taken up in another: the next step's loss, norm and gradients, for
// every ordered pair; the same layout gives the same bits. The reference is the run that went on.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/bpe.h"
#include "data/testing.h"
#include "train/checkpoint.h"
#include "verify/layouts.h"
#include "verify/trial.h"
#include "verify/variants.h"

namespace myriad {
namespace {

constexpr int kSavedAfter = 2;

const Variant& variant_named(const std::string& name) {
  static const std::vector<Variant> all = all_variants();
  return *std::find_if(all.begin(), all.end(), [&](const Variant& v) { return v.name == name; });
}

// What golden cases allow in fp32.
nlohmann::json golden_tolerance() {
  std::ifstream in(MYRIAD_SOURCE "/tests/golden/llama_gqa/expected.json");
  return nlohmann::json::parse(in).at("tolerance");
}

class Matrix {
 public:
  Matrix(const Variant& variant, std::vector<Plan> plans, DType real)
      : variant_(variant), plans_(std::move(plans)), real_(real) {
    for (Plan& plan : plans_) {
      plan = resolve(plan, static_cast<int>(variant.model.layers), variant.rows);
      JobConfig config = job_config(variant, plan);
      config.real = real;
      if (real == DType::f32) config.kernels = KernelSet::fast;
      jobs_.push_back(std::make_unique<Job>(config, pool_));
    }
    // Not `variant.steps`: one of them may have no targets.
    for (int step = 1; step <= kSavedAfter + 1; ++step)
      steps_.push_back(make_batch(variant, step, true, Targets::most));
  }

  void check() {
    for (size_t from = 0; from < plans_.size(); ++from) {
      const Record whole = save(from);
      for (size_t to = 0; to < plans_.size(); ++to) {
        SCOPED_TRACE(show(plans_[from]) + " taken up in " + show(plans_[to]));
        restore_run(*jobs_[to], find_checkpoint(run_));
        const Record part = next_step(to);
        EXPECT_EQ(part.faults, std::vector<std::string>{});
        if (to == from) {
          EXPECT_EQ(first_difference(part, whole), "");
        } else {
          expect_near(part, whole);
        }
      }
      std::filesystem::remove_all(run_);
    }
  }

 private:
  // Saves in the middle, and continues.
  Record save(size_t from) {
    Job& job = *jobs_[from];
    job.initialise(1);
    Record ignored;
    for (int step = 1; step <= kSavedAfter; ++step)
      record_step(job, steps_[step - 1], step, ignored);
    const RunConfig config{.name = "matrix", .model = variant_.model, .plan = plans_[from]};
    const TextData text{.tokenizer = std::make_shared<const Bpe>(Bpe::from_merges({}))};
    std::filesystem::create_directories(run_);
    Env env;
    EXPECT_EQ(save_run(env, run_, job, config, text, kSavedAfter).reason, "");
    return next_step(from);
  }

  Record next_step(size_t i) {
    Record record;
    record_step(*jobs_[i], steps_[kSavedAfter], kSavedAfter + 1, record);
    record.tensors.merge(states_of(*jobs_[i]));
    return record;
  }

  void expect_near(const Record& part, const Record& whole) {
    const nlohmann::json fp32 = golden_tolerance();
    for (const Deviation& d : compare(part, whole)) {
      const std::string kind = d.tensor.substr(0, d.tensor.find(' '));
      double bound = kLayoutBound;
      if (real_ == DType::f32) {
        if (!fp32.contains(kind)) continue;  // weights: AdamW divides by tiny second moments
        bound = fp32.at(kind).get<double>();
      }
      EXPECT_LE(d.error, bound) << d.tensor;
    }
  }

  const Variant& variant_;
  std::vector<Plan> plans_;
  const DType real_;
  Pool pool_{0};
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<Batch> steps_;
  TemporaryFolder folder_;
  const std::filesystem::path run_ = folder_ / "run";
};

const std::vector<Plan> kEight = {
    {},
    {.dp = 2, .zero = 1},
    {.tp = 3, .sp = true},
    {.pp = 2, .vpp = 2, .micro_batches = 3, .schedule = "interleaved"},
    {.dp = 3, .tp = 2, .zero = 3},
    {.cp = 2, .pp = 2, .micro_batches = 2, .zero = 2},
    {.tp = 2, .pp = 3, .micro_batches = 4, .schedule = "gpipe", .recompute = Recompute::full},
    {.dp = 2, .tp = 2, .pp = 2, .micro_batches = 2, .zero = 1, .sp = true},
};

TEST(ResumeMatrix, EveryPairOfEightLayoutsInFp32) {
  Matrix(variant_named("base"), kEight, DType::f32).check();
}

TEST(ResumeMatrix, EveryPairOfEightLayoutsInFp64) {
  Matrix(variant_named("base"), kEight, DType::f64).check();
}

TEST(ResumeMatrix, ATiedModel) {
  Matrix(variant_named("tied"), {kEight[0], kEight[3], kEight[4], kEight[7]}, DType::f64).check();
}

TEST(ResumeMatrix, Experts) {
  const std::vector<Plan> plans = {{.micro_batches = 2},
                                   {.dp = 3, .micro_batches = 2, .ep = 3, .expert_rows_bound = 0.3},
                                   {.tp = 2, .micro_batches = 2, .sp = true, .etp = 2},
                                   {.dp = 2, .pp = 2, .micro_batches = 2, .zero = 3, .ep = 2}};
  Matrix(variant_named("experts"), plans, DType::f64).check();
}

}  // namespace
}  // namespace myriad
