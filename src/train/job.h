// A model under a plan, ready to step: emits, lowers, plans memory, prepares. The training loop,
// generation and all verification stand on it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/safetensors.h"
#include "ir/plan.h"
#include "machine/exec.h"
#include "machine/profile.h"
#include "model/emit.h"
#include "plan/make_program.h"

namespace myriad {

// Rows of a step, row-major [rows, sequence].
struct Batch {
  int64_t rows = 0, sequence = 0;
  std::vector<int32_t> ids, targets, positions, documents;
  int64_t valid() const;  // targets >= 0
};

struct StepScalars {
  double lr = 0;
  int64_t step = 1;  // counts from 1: AdamW's bias correction
};

struct StepResult {
  double loss_sum = 0;   // of cross-entropy over valid targets, in nats
  int64_t tokens = 0;    // valid targets
  double norm = 0;       // of the gradient, before clipping
  double auxiliary = 0;  // router losses, coefficients included
  std::map<int, std::vector<int64_t>> tokens_per_expert;  // by unit, choices of the step
  std::map<int, int64_t> dropped;                         // by unit, choices beyond capacity
  bool updated = false;
  double loss() const { return tokens ? loss_sum / static_cast<double>(tokens) : 0; }
};

struct JobConfig {
  ModelConfig model;
  Plan plan;  // resolved
  int64_t rows = 1, sequence = 1;
  DType real = DType::f32;  // of activations; states are of state_type(real)
  OptimizerConfig optimizer;
  KernelSet kernels = KernelSet::fast;
};

// Programs with a key/value cache, see train/decoder.h.
struct Generation {
  int64_t rows = 0;    // sequences at a time; 0: none
  int64_t tokens = 0;  // places of a sequence in the cache
};
constexpr int64_t kPrefill = 64;  // tokens of a prompt that are read at a time

// One program with its memory and its executor.
struct Compiled {
  Program program;
  std::vector<MemoryPlan> memory;
  std::unique_ptr<Executor> executor;
  std::vector<int64_t> peaks() const;
};

// A change of the executor's copy of a program, for tests of the checks.
using Rewrite = std::function<void(Program&)>;

class Job {
 public:
  // keep: values of the head to hand to taps ("logits"). wanted: see LowerOptions.
  struct Options {
    std::vector<std::string> keep;
    std::function<Want(const Value&)> wanted;
    std::function<void(Pieces&)> rewrite_pieces;  // tests
    Rewrite rewrite_lowered = {};                 // tests: applied before memory is planned
    Rewrite rewrite;                              // tests: applied after the prediction is made
    bool train = true;  // false: no training program, so no memory for moments and gradients
    int64_t evaluation_rows =
        0;  // > 0: also a forward-only program of so many rows (one micro-batch a dp rank's worth)
    int64_t logits_rows = 0;  // > 0: and one that hands out the logits of full passes
    Generation generation;
  };
  Job(JobConfig config, Pool& pool, Options options);
  Job(JobConfig config, Pool& pool) : Job(std::move(config), pool, Options{}) {}

  const JobConfig& config() const { return config_; }
  const Pieces& pieces() const { return pieces_; }
  Compiled& train() { return train_; }
  Compiled& evaluation() { return evaluation_; }
  Compiled& decoding() { return decoding_; }      // generation.rows rows, one token each
  Compiled& prefilling() { return prefilling_; }  // one row, min(kPrefill, sequence) tokens
  const Options& options() const { return options_; }
  // Of the last step; a program with routed rows is walked with the choices that the step recorded.
  const StepProfile& predicted();

  // Tensors in checkpoints that hold a parameter ("q.w" of unit 3) or a state of it, in the order
  // of its elements: one, or one an expert.
  std::vector<std::string> published(int unit, const std::string& param) const;

  // Counter-based: initialise then cut = cut then initialise. Moments become zero.
  void initialise(uint64_t seed);
  void initialise_moments();  // to zero
  // Every parameter must be there with its shape, and every tensor of the file must be used (throws
  // Error naming file and tensor).
  void load(const std::vector<SafeTensors>& files);
  std::vector<double> parameter(const std::string& published) const;
  std::vector<std::string> parameters() const;  // published names in model order

  // One optimizer step. Failure with the reason if it stalls. Nothing is updated where the norm is
  // not finite or no target is valid.
  StepResult step(const Batch& batch, const StepScalars& scalars);
  // Sum of cross-entropy over valid targets with the evaluation program.
  StepResult evaluate(const Batch& batch);
  // Logits [rows, sequence, vocabulary] of full passes.
  std::vector<double> logits(const Batch& batch);
  // A step of a program that hands out `value`: its elements; none is handed out: empty.
  std::vector<double> run(Compiled& c, const Feed& feed, const std::string& value);
  // Sees what runs hand over (settled gradients, kept values); called by several workers at once.
  void set_tap(Tap tap) { tap_ = std::move(tap); }
  // Steps again looking at every tensor, without an update; the name of the first that is not
  // finite.
  BadTensor hunt(const Batch& batch);

 private:
  Compiled compile(const LowerOptions& options, const Plan& plan, int64_t sequence,
                   const CacheShape& cache = {});
  void add_forward_only(std::vector<int64_t>& arena_bytes);
  // What holds the parameters.
  const Compiled& base() const { return *programs_.front(); }
  void see(Compiled& c, int rank, const Action& action, int buffer, const Tensor& value);
  Feed feed_of(const Compiled& c, const Batch& batch, const StepScalars& scalars, bool live) const;
  int micro_batches(const Compiled& c, const Batch& batch) const;
  StepResult run(Compiled& c, const Batch& batch, const StepScalars& scalars, bool live);
  // One call a parameter state: its tensors in checkpoints, of equal parts.
  void for_each_parameter(const std::function<void(const std::vector<std::string>& published,
                                                   const Param&, int index)>& f) const;
  void record(Compiled& c, int rank, const Action& action, int buffer, const Tensor& value);
  void report_experts(StepResult& result);

  JobConfig config_;
  Pool& pool_;
  Options options_;
  Pieces pieces_;
  Compiled train_, evaluation_, logits_, decoding_, prefilling_;
  std::vector<Compiled*> programs_;  // that there are
  std::unique_ptr<Arenas> arenas_;
  StepProfile predicted_;
  std::unique_ptr<Program> untouched_;  // by options.rewrite: what is predicted
  Tap tap_;
  double loss_sum_ = 0, norm_ = 0, aux_ = 0, zloss_ = 0;
  bool has_loops_ = false, predicted_fresh_ = true;
  std::mutex recorded_mutex_;
  std::map<int, Collected> recorded_;          // buffers "idx" and "fit" of the step
  std::map<int, std::pair<int, int>> places_;  // their unit and micro-batch
  Routing routing_;
};

}  // namespace myriad
