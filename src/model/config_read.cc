// Reads a config.json of every supported family into a ModelConfig.
//
// One reader serves the llama-like families, one TeleChat2 and one GPT-2; experts are read in
// config_moe.cc. The hard part is to compute what the file means or to refuse it: a key that would
// change the numbers in a way Myriad does not compute is checked with supports_only, and a missing
// key takes the default of Transformers only where that is certain. The checks that hold for all
// families (head counts, pairs for rotary positions, a bound on the number of parameters) come
// last, in read_config. Read model/config.h and model/config_keys.h first.

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "model/config_keys.h"
#include "model/config_moe.h"

namespace myriad {

namespace {

using nlohmann::json;

constexpr double kMostParameters = 1e15;

void read_llama3(const Keys& k, RopeConfig& r) {
  r.factor = k.positive("factor");
  r.low_freq_factor = k.positive("low_freq_factor");
  r.high_freq_factor = k.positive("high_freq_factor");
  r.original_positions = k.size("original_max_position_embeddings");
  if (r.low_freq_factor >= r.high_freq_factor) {
    k.fail(fmt::format("low_freq_factor {} must be below high_freq_factor {}", r.low_freq_factor,
                       r.high_freq_factor));
  }
}

void read_yarn(const Keys& k, int64_t positions, RopeConfig& r) {
  r.original_positions = k.size("original_max_position_embeddings", positions);
  if (r.original_positions == 0) k.size("original_max_position_embeddings");
  if (!k.has("factor") && positions > 0) {
    r.factor = static_cast<double>(positions) / static_cast<double>(r.original_positions);
  } else {
    r.factor = k.positive("factor");
  }
  if (r.factor < 1) k.fail(fmt::format("factor must be at least 1, not {}", r.factor));
  r.beta_fast = k.positive("beta_fast", 32);
  r.beta_slow = k.positive("beta_slow", 1);
  if (r.beta_slow > r.beta_fast) {
    k.fail(fmt::format("beta_slow {} must not be above beta_fast {}", r.beta_slow, r.beta_fast));
  }
  // Published files write 0 where nothing is given, and it is read so here.
  auto optional = [&](const char* key) {
    return k.has(key) && k.value(key) == 0 ? 0.0 : k.positive(key, 0);
  };
  r.mscale = optional("mscale");
  r.mscale_all_dim = optional("mscale_all_dim");
  r.attention_factor = k.positive("attention_factor", 0);
  r.truncate = k.flag("truncate", true);
}

// Transformers 5 keeps all rotary settings in rope_parameters. Earlier versions have rope_theta
// beside an object rope_scaling, in which rope_type was at first called `type`.
RopeConfig read_rope(const Keys& top, int64_t positions, bool needs_theta) {
  static constexpr std::array kKnown = {"rope_type",
                                        "type",
                                        "rope_theta",
                                        "factor",
                                        "low_freq_factor",
                                        "high_freq_factor",
                                        "original_max_position_embeddings",
                                        "beta_fast",
                                        "beta_slow",
                                        "mscale",
                                        "mscale_all_dim",
                                        "attention_factor",
                                        "truncate",
                                        "partial_rotary_factor"};
  static const json kNothing = json::object();
  const bool scaled = top.has("rope_scaling"), whole = top.has("rope_parameters");
  if (scaled && whole && top.value("rope_scaling") != top.value("rope_parameters")) {
    top.fail("rope_scaling and rope_parameters are both given and differ",
             "give one: rope_parameters, or rope_scaling and rope_theta");
  }
  const char* name = whole ? "rope_parameters" : "rope_scaling";
  const Keys k(whole || scaled ? top.value(name) : kNothing, top.where() + ": " + name);
  for (const auto& [key, value] : k.object().items()) {
    if (std::find(kKnown.begin(), kKnown.end(), std::string_view(key)) == kKnown.end()) {
      k.fail(fmt::format("unknown key {}", key), fmt::format("known: {}", fmt::join(kKnown, ", ")));
    }
  }
  k.supports_only("partial_rotary_factor", 1.0);
  RopeConfig r;
  const Keys& at = k.has("rope_theta") ? k : top;
  r.theta = needs_theta ? at.positive("rope_theta") : at.positive("rope_theta", r.theta);
  if (r.theta <= 1) at.fail(fmt::format("rope_theta must be above 1, not {}", r.theta));
  const char* type_key = k.has("rope_type") ? "rope_type" : "type";
  const std::string type = k.has(type_key) ? k.text(type_key) : "default";
  if (scaled && !whole && !k.has(type_key)) k.text("rope_type");
  if (type == "default") {
    r.kind = RopeKind::standard;
  } else if (type == "llama3") {
    r.kind = RopeKind::llama3;
    read_llama3(k, r);
  } else if (type == "yarn") {
    r.kind = RopeKind::yarn;
    read_yarn(k, positions, r);
  } else {
    k.unsupported(type_key, "default, llama3, yarn");
  }
  return r;
}

void refuse_windows(const Keys& k) {
  k.supports_only("use_sliding_window", false);
  if (!k.has("layer_types")) return;
  const json& types = k.value("layer_types");
  const bool full = types.is_array() && std::all_of(types.begin(), types.end(), [](const json& t) {
                      return t == "full_attention";
                    });
  if (!full) k.unsupported("layer_types", "full_attention in every layer (no sliding window)");
}

ModelConfig read_llama_like(const Keys& k, Family family) {
  const bool qwen = family == Family::qwen3 || family == Family::qwen3_moe;
  ModelConfig c{.family = family};
  c.hidden = k.size("hidden_size");
  c.layers = k.size("num_hidden_layers");
  c.heads = k.size("num_attention_heads");
  c.kv_heads = qwen ? k.size("num_key_value_heads") : k.size("num_key_value_heads", c.heads);
  if (family == Family::qwen3_moe) {
    c.ffn = k.size("intermediate_size", 0);  // the width of dense layers, if there are any
  } else if (family != Family::mixtral) {    // in mixtral it is the experts' width
    c.ffn = k.size("intermediate_size");
  }
  c.vocabulary = k.size("vocab_size");
  c.positions = k.size("max_position_embeddings", 0);
  c.norm_eps = k.positive("rms_norm_eps");
  c.tied = k.flag("tie_word_embeddings", false);
  if (!k.has("head_dim") && c.hidden % c.heads != 0) {
    k.fail(fmt::format("hidden_size {} is not a multiple of num_attention_heads {}", c.hidden,
                       c.heads),
           "give head_dim");
  }
  c.head_dim = k.size("head_dim", c.hidden / c.heads);
  if (qwen && !k.has("head_dim") && c.head_dim != 128) {
    k.fail(fmt::format("head_dim is missing; hidden_size / num_attention_heads is {}, but "
                       "Transformers takes 128 "
                       "for qwen3",
                       c.head_dim),
           "give head_dim");
  }
  c.rope = read_rope(k, c.positions, qwen);
  k.supports_only("hidden_act", "silu");
  k.supports_only("attention_bias", false);
  k.supports_only("mlp_bias", false);
  k.supports_only("attention_dropout", 0);
  k.supports_only("partial_rotary_factor", 1.0);
  refuse_windows(k);
  return c;
}

ModelConfig read_telechat(const Keys& k, Family family) {
  ModelConfig c{.family = family};
  c.hidden = k.size("hidden_size");
  c.layers = k.size("n_layer");
  c.heads = k.size("n_head");
  c.kv_heads = k.size("num_key_value_heads", c.heads);
  c.ffn = family == Family::telechat ? k.size("ffn_hidden_size") : k.size("ffn_hidden_size", 0);
  c.vocabulary = k.size("vocab_size");
  c.positions = k.size("seq_length", 0);
  c.norm_eps = k.positive("layer_norm_epsilon");
  c.tied = k.flag(
      "tie_word_embeddings");  // no default: the published code has true, its files say false
  if (c.hidden % c.heads != 0) {
    k.fail(fmt::format("hidden_size {} is not a multiple of n_head {}", c.hidden, c.heads));
  }
  c.head_dim = c.hidden / c.heads;
  if (c.head_dim < 4)
    k.fail(fmt::format("hidden_size / n_head is {}; it must be at least 4", c.head_dim));
  c.rope.kind = RopeKind::telechat;
  c.rope.training_seqlen = k.size("training_seqlen");
  c.rope.base_seqlen = k.size("base_seqlen");
  k.supports_only("head_dim", c.head_dim);
  k.supports_only("hidden_act", "silu");
  k.supports_only("hidden_dropout", 0);
  k.supports_only("attention_dropout", 0);
  k.supports_only("apply_residual_connection_post_layernorm", false);
  k.supports_only("embed_layernorm", false);
  return c;
}

ModelConfig read_gpt2(const Keys& k) {
  ModelConfig c{.family = Family::gpt2};
  c.hidden = k.size("n_embd");
  c.layers = k.size("n_layer");
  c.heads = c.kv_heads = k.size("n_head");
  c.ffn = k.size("n_inner", 4 * c.hidden);
  c.vocabulary = k.size("vocab_size");
  c.positions = k.size("n_positions");
  c.norm_eps = k.positive("layer_norm_epsilon", 1e-5);
  c.tied = k.flag("tie_word_embeddings", true);
  if (c.hidden % c.heads != 0) {
    k.fail(fmt::format("n_embd {} is not a multiple of n_head {}", c.hidden, c.heads));
  }
  c.head_dim = c.hidden / c.heads;
  k.supports_only("activation_function", "gelu_new");
  k.supports_only("scale_attn_weights", true);
  k.supports_only("scale_attn_by_inverse_layer_idx", false);
  k.supports_only("add_cross_attention", false);
  for (const char* dropout : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) {
    k.supports_only(dropout, 0);
  }
  return c;
}

}  // namespace

ModelConfig read_config(const json& config, const std::string& where) {
  const Keys k(config, where);
  const std::string type = k.text("model_type");
  ModelConfig c;
  if (type == "llama") {
    c = read_llama_like(k, Family::llama);
  } else if (type == "qwen3") {
    c = read_llama_like(k, Family::qwen3);
  } else if (type == "telechat") {
    c = read_telechat(k, Family::telechat);
  } else if (type == "mixtral") {
    c = read_llama_like(k, Family::mixtral);
  } else if (type == "qwen3_moe") {
    c = read_llama_like(k, Family::qwen3_moe);
  } else if (type == "telechat_moe") {
    c = read_telechat(k, Family::telechat_moe);
  } else if (type == "gpt2") {
    c = read_gpt2(k);
  } else if (type == "deepseek_v3") {
    k.fail("model_type is \"deepseek_v3\", whose latent attention is not supported",
           "its router and experts are, under model_type telechat_moe");
  } else {
    k.unsupported("model_type",
                  "llama, qwen3, telechat (TeleChat2), mixtral, qwen3_moe, telechat_moe, gpt2");
  }
  const bool experts = c.family == Family::mixtral || c.family == Family::qwen3_moe ||
                       c.family == Family::telechat_moe;
  if (experts) read_experts(k, c);
  if (!experts && k.has("routing")) apply_routing(c, k.value("routing"), where + ": routing");
  c.initializer_range = k.positive("initializer_range", c.initializer_range);
  if (c.heads % c.kv_heads != 0) {
    k.fail(fmt::format("{} attention heads are not a multiple of num_key_value_heads {}", c.heads,
                       c.kv_heads));
  }
  if (c.head_dim % 2 != 0 && c.family != Family::gpt2) {
    k.fail(
        fmt::format("head_dim is {}; rotary positions turn pairs, so it must be even", c.head_dim));
  }
  const auto real = [](int64_t n) { return static_cast<double>(n); };
  const double attention = 2 * real(c.heads + c.kv_heads) * real(c.head_dim);
  const double experts_ffn = real(c.moe.experts + c.moe.shared_experts) * real(c.moe.expert_ffn);
  const double layer = attention + 3 * std::max(real(c.ffn), experts_ffn);
  const double all = real(c.hidden) * (real(c.layers) * layer + 2 * real(c.vocabulary));
  if (all > kMostParameters)
    k.fail(
        fmt::format("about {:.1e} parameters; at most {:.0e} are supported", all, kMostParameters));
  return c;
}

}  // namespace myriad
