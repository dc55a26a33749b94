// A run file: one YAML document, every key of which can be overridden (`-s layout.tp=4`).
// docs/configuration.md lists all keys.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/samples.h"
#include "ir/plan.h"
#include "kernels/kernel.h"
#include "model/config.h"
#include "model/emit.h"

namespace myriad {

struct DataSource {
  std::string
      path;  // a file or a folder as read_corpus takes it, relative to the working directory
  std::string name;  // for people; default: of the file or folder
  double weight = 1;
  bool operator==(const DataSource&) const = default;
};

struct DataConfig {
  std::vector<DataSource> sources;  // data.corpus: X is short for data.sources: [{path: X}]
  std::string tokenizer;  // a file or folder as load_tokenizer takes it; empty: one is trained
  int vocabulary = 4096;  // of the byte-level BPE trained on the training documents
  Packing packing = Packing::cut;
  int held_out_permille = 20;  // documents held out, by content hash
  int64_t held_out_tokens =
      200000;  // at most so many tokens are evaluated (whole documents, in hash order; 0: all)
  std::string cache = "runs/cache";  // tokenizer and packed files, by content hash
  std::vector<double> weights() const;
  bool operator==(const DataConfig&) const = default;
};

enum class LrSchedule : uint8_t { constant, cosine, linear, wsd };

// As train.dtype and --dtype say it: fp32, fp64, bf16.
DType dtype_named(std::string_view text);
const char* text_of(DType dtype);

struct TrainConfig {
  int64_t sequence_length = 256, tokens_per_step = 1024, steps = 100;
  double learning_rate = 3e-3, min_learning_rate = 0;  // peak, and where the decay ends
  LrSchedule schedule = LrSchedule::cosine;
  int64_t warmup_steps = 0;   // linear from 0: step i (from 1) has i / warmup of the peak
  int64_t decay_steps = 0;    // wsd: length of the decay at the end
  OptimizerConfig optimizer;  // train.optimizer: {beta1, beta2, eps, weight_decay, clip_norm}
  DType dtype = DType::f32;   // fp32 | fp64 | bf16
  uint64_t seed = 1;
  int64_t evaluate_every = 50;          // steps; 0: only at the end
  int64_t save_every = 0;               // steps, and at the end; 0: no checkpoints
  int keep = 2;                         // newest checkpoints that stay; 0: all
  int workers = 0;                      // 0: as many as cores
  KernelSet kernels = KernelSet::fast;  // fast | reference
  bool operator==(const TrainConfig&) const = default;
};

struct RunConfig {
  std::string name;   // of the run folder; default: the file's name
  ModelConfig model;  // data.vocabulary overrides nothing: they must agree (model.vocab_size may be
                      // left out when inline)
  std::string weights;  // folder whose model.safetensors the run starts from; empty: random start
  DataConfig data;
  TrainConfig train;
  Plan plan;            // resolved
  std::string cluster;  // that `simulate` prices the run on; empty: this machine
  std::vector<std::string> prompts = {
      "如果您想安装", "The kernel can be"};  // generate.prompts: passages sampled at the end
  int64_t generate_every = 0;                // generate.every: and every so many steps; 0: not
  int64_t generate_tokens = 60;              // generate.max_tokens
  double temperature = 0.8;                  // generate.temperature; 0: greedy
  int64_t rows() const { return train.tokens_per_step / train.sequence_length; }
};

// Throws Error naming file, key, value, rule and nearest legal values for whatever is unknown, of
// the wrong type or illegal. overrides: "layout.tp=4", values are YAML.
RunConfig read_run(const std::filesystem::path& file, const std::vector<std::string>& overrides);
// The same keys from overrides alone, for `verify golden -s ...`: only the `layout` part; not
// resolved.
Plan read_layout(const std::vector<std::string>& overrides);
// The configuration as it was resolved, readable by read_run, defaults included.
std::string write_run(const RunConfig& config);

// Learning rate of step i, counted from 1: a function of configuration and step alone.
double learning_rate(const TrainConfig& config, int64_t step);

}  // namespace myriad
