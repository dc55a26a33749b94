// The sizes of a model, its rotary and its expert settings, read from and written as a Hugging Face
// config.json. Families: Llama, Qwen3, TeleChat2, and with experts Mixtral, Qwen3-MoE,
// TeleChat2-MoE, and GPT-2. Sizes given inline in a run file use the same keys and the same reader.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ir/plan.h"

namespace myriad {

// telechat_moe: the attention of TeleChat2, experts under the keys and names of DeepSeek-V3.
enum class Family : uint8_t { llama, qwen3, telechat, mixtral, qwen3_moe, telechat_moe, gpt2 };
enum class RopeKind : uint8_t { standard, llama3, yarn, telechat };  // standard: "default" in files

// A field that a kind does not read keeps its default.
struct RopeConfig {
  RopeKind kind = RopeKind::standard;
  double theta = 10000;
  double factor = 1;                             // llama3, yarn
  int64_t original_positions = 0;                // llama3, yarn: context length before stretching
  double low_freq_factor = 1;                    // llama3
  double high_freq_factor = 4;                   // llama3
  double beta_fast = 32, beta_slow = 1;          // yarn: rotations over the original context
  double mscale = 0, mscale_all_dim = 0;         // yarn; 0: not given
  double attention_factor = 0;                   // yarn; 0: from factor and the mscales
  bool truncate = true;                          // yarn: ramp ends at whole dims
  int64_t base_seqlen = 0, training_seqlen = 0;  // telechat
  bool operator==(const RopeConfig&) const = default;
};

enum class Scores : uint8_t { softmax, sigmoid };             // of experts, from router logits
enum class BalanceScope : uint8_t { micro_batch, sequence };  // of the load-balancing loss

// How much a run leans on balance; nothing here changes a checkpoint.
struct RoutingConfig {
  double capacity_factor = 0;  // an expert takes ceil(factor tokens k / experts) choices of a
                               // micro-batch, later ones get no weight; 0: it takes all (dropless)
  double load_balance = 0;     // coefficient of the load-balancing loss; 0: none
  double z = 0;                // coefficient of the z-loss; 0: none
  BalanceScope scope = BalanceScope::micro_batch;
  double bias_update_rate = 0;  // the step moves each correction bias by so much
  bool operator==(const RoutingConfig&) const = default;
};

// The expert layers. A token's experts are the top_k best by score (plus the correction bias, which
// only chooses); with groups, only of the kept_groups groups whose two best add up to most.
struct MoeConfig {
  int64_t experts = 0;  // 0: a dense model
  int64_t top_k = 0;
  int64_t expert_ffn = 0;
  int64_t shared_experts = 0;         // that every token uses: one MLP of so many times expert_ffn
  std::vector<int64_t> dense_layers;  // with an ordinary MLP instead; ascending
  Scores scores = Scores::softmax;
  bool renormalise = true;  // the weights of a token's experts sum to `scaling`
  double scaling = 1;
  bool correction_bias = false;
  int64_t groups = 1, kept_groups = 1;
  RoutingConfig routing;
  bool operator==(const MoeConfig&) const = default;
};

struct ModelConfig {
  Family family = Family::llama;
  int64_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocabulary = 0;
  int64_t positions = 0;  // max_position_embeddings, seq_length; 0: not given. No limit but in
                          // gpt2, which learns a vector for each (n_positions)
  double norm_eps = 0;
  bool tied = false;  // the head uses the embedding's weight
  double initializer_range = 0.02;
  RopeConfig rope;
  MoeConfig moe;
  bool has_experts(int64_t layer) const;
  int64_t expert_layers() const;
  bool operator==(const ModelConfig&) const = default;
};

// `where` names the file (or the place in a run file) in messages. Throws Error naming key and
// value, and what is supported, if a field is missing, of a wrong type, or asks for something that
// Myriad does not compute. The load-balancing coefficient is router_aux_loss_coef (absent: 0.001
// for Mixtral and Qwen3-MoE, as in Transformers); a map `routing` of ours may set all of
// RoutingConfig, see apply_routing. Keys that do not change the numbers (token ids, dtype,
// use_cache, ...) are passed over.
ModelConfig read_config(const nlohmann::json& config, const std::string& where);

// Overrides the routing of `config` by the keys that `routing` has: load_balance, z,
// capacity_factor, scope (micro_batch or sequence), bias_update_rate; micro_batches, which the
// goldens note there, is passed over. Throws Error as read_config does.
void apply_routing(ModelConfig& config, const nlohmann::json& routing, const std::string& where);

// The published form, which Transformers 4 and 5 load (all but TeleChat2-MoE). Read again, it gives
// `config`.
nlohmann::json write_config(const ModelConfig& config);

// For warnings of a plan: the model with so many rows of so many tokens a step.
CutSizes cut_sizes(const ModelConfig& config, int64_t rows, int64_t sequence);

// All parameters, correction biases too; a tied weight once.
int64_t parameter_count(const ModelConfig& config);

// FLOPs to train on one token of a sequence of `sequence` tokens, forward and backward, nothing
// recomputed: 6 for each entry of the matrices that a token uses (of the experts top_k and the
// shared one; the head, but not the embedding, which is a look-up), and 6 layers heads head_dim
// sequence for the causal half of attention (Narayanan et al. 2021, arXiv:2104.04473, section 5.1,
// without its factor for recomputing, and with half of its attention).
double model_flops_per_token(const ModelConfig& config, int64_t sequence);

}  // namespace myriad
