// Writes a ModelConfig in the published form, and computes the sizes that follow from it.
//
// write_config is the inverse of read_config: it writes every key that the reader needs, also where
// the reader has a default, so that reading the file again gives the same ModelConfig.
// parameter_count and model_flops_per_token share layer_matrices, which differs for them only in
// how many experts of a layer count: all of them as parameters, top_k of them as work. Read
// model/config.h first.
#include "model/config.h"

#include <algorithm>

#include "base/error.h"
#include "model/config_moe.h"

namespace myriad {

namespace {

using nlohmann::json;

// The object rope_scaling, which stands beside rope_theta in the older spelling. Transformers 5
// reads that too, and Transformers 4 knows no other.
json rope_scaling(const RopeConfig& r) {
  json j;
  switch (r.kind) {
    case RopeKind::standard:
    case RopeKind::telechat:
      return nullptr;
    case RopeKind::llama3:
      j = {{"rope_type", "llama3"},
           {"factor", r.factor},
           {"low_freq_factor", r.low_freq_factor},
           {"high_freq_factor", r.high_freq_factor},
           {"original_max_position_embeddings", r.original_positions}};
      return j;
    case RopeKind::yarn:
      j = {{"rope_type", "yarn"},
           {"factor", r.factor},
           {"original_max_position_embeddings", r.original_positions},
           {"beta_fast", r.beta_fast},
           {"beta_slow", r.beta_slow}};
      if (r.mscale != 0) j["mscale"] = r.mscale;
      if (r.mscale_all_dim != 0) j["mscale_all_dim"] = r.mscale_all_dim;
      if (r.attention_factor != 0) j["attention_factor"] = r.attention_factor;
      if (!r.truncate) j["truncate"] = false;
      return j;
  }
  CHECK(false, "rope kind {}", static_cast<int>(r.kind));
  return j;
}

json write_telechat(const ModelConfig& c) {
  json j = {{"architectures", {"TelechatForCausalLM"}},
            {"model_type", c.moe.experts > 0 ? "telechat_moe" : "telechat"},
            {"hidden_size", c.hidden},
            {"n_layer", c.layers},
            {"n_head", c.heads},
            {"num_key_value_heads", c.kv_heads},
            {"vocab_size", c.vocabulary},
            {"layer_norm_epsilon", c.norm_eps},
            {"training_seqlen", c.rope.training_seqlen},
            {"base_seqlen", c.rope.base_seqlen},
            {"hidden_dropout", 0.0},
            {"attention_dropout", 0.0},
            {"apply_residual_connection_post_layernorm", false},
            {"embed_layernorm", false},
            {"flash_attn", false},
            {"logn", false},
            {"tie_word_embeddings", c.tied},
            {"initializer_range", c.initializer_range}};
  if (c.ffn > 0) j["ffn_hidden_size"] = c.ffn;
  if (c.positions > 0) j["seq_length"] = c.positions;
  return j;
}

json write_gpt2(const ModelConfig& c) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_embd", c.hidden},
          {"n_layer", c.layers},
          {"n_head", c.heads},
          {"n_inner", c.ffn},
          {"n_positions", c.positions},
          {"vocab_size", c.vocabulary},
          {"layer_norm_epsilon", c.norm_eps},
          {"activation_function", "gelu_new"},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"resid_pdrop", 0.0},
          {"tie_word_embeddings", c.tied},
          {"initializer_range", c.initializer_range}};
}

struct LlamaLike {
  const char *architecture, *model_type;
};
LlamaLike llama_like(Family family) {
  switch (family) {
    case Family::qwen3:
      return {"Qwen3ForCausalLM", "qwen3"};
    case Family::mixtral:
      return {"MixtralForCausalLM", "mixtral"};
    case Family::qwen3_moe:
      return {"Qwen3MoeForCausalLM", "qwen3_moe"};
    default:
      return {"LlamaForCausalLM", "llama"};
  }
}

json write_llama_like(const ModelConfig& c) {
  const LlamaLike names = llama_like(c.family);
  json j = {{"architectures", {names.architecture}},
            {"model_type", names.model_type},
            {"hidden_size", c.hidden},
            {"num_hidden_layers", c.layers},
            {"num_attention_heads", c.heads},
            {"num_key_value_heads", c.kv_heads},
            {"head_dim", c.head_dim},
            {"vocab_size", c.vocabulary},
            {"hidden_act", "silu"},
            {"attention_bias", false},
            {"attention_dropout", 0.0},
            {"rms_norm_eps", c.norm_eps},
            {"rope_theta", c.rope.theta},
            {"rope_scaling", rope_scaling(c.rope)},
            {"tie_word_embeddings", c.tied},
            {"initializer_range", c.initializer_range}};
  if (c.ffn > 0) j["intermediate_size"] = c.ffn;
  if (c.family == Family::llama) j["mlp_bias"] = false;
  if (c.family == Family::qwen3 || c.family == Family::qwen3_moe) j["use_sliding_window"] = false;
  if (c.positions > 0) j["max_position_embeddings"] = c.positions;
  return j;
}

bool is_telechat(Family f) { return f == Family::telechat || f == Family::telechat_moe; }

// Entries of the matrices of all layers. An expert layer counts its router, `used` of its routed
// experts, and its shared experts.
int64_t layer_matrices(const ModelConfig& c, int64_t used) {
  const MoeConfig& m = c.moe;
  const int64_t attention = c.hidden * c.head_dim * 2 * (c.heads + c.kv_heads);
  const int64_t dense = (c.family == Family::gpt2 ? 2 : 3) * c.hidden * c.ffn;
  const int64_t sparse =
      c.hidden * m.experts + 3 * c.hidden * m.expert_ffn * (used + m.shared_experts);
  const int64_t expert_layers = c.expert_layers();
  return c.layers * attention + (c.layers - expert_layers) * dense + expert_layers * sparse;
}

}  // namespace

json write_config(const ModelConfig& config) {
  if (config.family == Family::gpt2) return write_gpt2(config);
  json j = is_telechat(config.family) ? write_telechat(config) : write_llama_like(config);
  write_experts(config, j);
  return j;
}

bool ModelConfig::has_experts(int64_t layer) const {
  const auto& dense = moe.dense_layers;
  return moe.experts > 0 && std::find(dense.begin(), dense.end(), layer) == dense.end();
}

int64_t ModelConfig::expert_layers() const {
  return moe.experts > 0 ? layers - static_cast<int64_t>(moe.dense_layers.size()) : 0;
}

CutSizes cut_sizes(const ModelConfig& c, int64_t rows, int64_t sequence) {
  return {.rows = rows,
          .sequence = sequence,
          .layers = c.layers,
          .kv_heads = c.kv_heads,
          .heads = c.heads,
          .ffn = c.ffn,
          .vocabulary = c.vocabulary,
          .top_k = c.moe.top_k};
}

int64_t parameter_count(const ModelConfig& c) {
  const int64_t expert_layers = c.expert_layers();
  int64_t n = layer_matrices(c, c.moe.experts) + 2 * c.layers * c.hidden;  // two norms
  if (c.family == Family::qwen3 || c.family == Family::qwen3_moe) n += 2 * c.layers * c.head_dim;
  if (is_telechat(c.family)) {  // a bias of dense in each layer, of down_proj in dense layers
    n += (c.layers + c.layers - expert_layers) * c.hidden;
  }
  if (c.family == Family::gpt2) {  // biases of norms and products, and learned positions
    n += c.layers * (7 * c.hidden + c.ffn) + c.hidden + c.positions * c.hidden;
  }
  if (c.moe.correction_bias) n += expert_layers * c.moe.experts;
  return n + c.hidden + (c.tied ? 1 : 2) * c.vocabulary * c.hidden;
}

double model_flops_per_token(const ModelConfig& c, int64_t sequence) {
  const double matrices = static_cast<double>(layer_matrices(c, c.moe.top_k)) +
                          static_cast<double>(c.vocabulary) * static_cast<double>(c.hidden);
  const double attention = static_cast<double>(c.layers) * static_cast<double>(c.heads) *
                           static_cast<double>(c.head_dim) * static_cast<double>(sequence);
  return 6 * matrices + 6 * attention;
}

}  // namespace myriad
