// Reads and writes run files. The keys stand in train/run_keys.cc; here is what they have to do
// with one another: the order of the sections, the model (whose keys are those of a config.json),
// and the rules that speak of two sections at once.
#include "train/run_config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/yaml.h"
#include "data/tokenizer.h"
#include "train/model_folder.h"
#include "train/run_keys.h"

namespace myriad {

namespace {

using nlohmann::json;

// Of config.json for any family: what read_config reads, and what published files hold besides.
const std::vector<std::string> kModelKeys = {"model_type",
                                             "architectures",
                                             "hidden_size",
                                             "intermediate_size",
                                             "num_hidden_layers",
                                             "num_attention_heads",
                                             "num_key_value_heads",
                                             "head_dim",
                                             "vocab_size",
                                             "rms_norm_eps",
                                             "tie_word_embeddings",
                                             "initializer_range",
                                             "max_position_embeddings",
                                             "rope_theta",
                                             "rope_scaling",
                                             "rope_parameters",
                                             "hidden_act",
                                             "attention_bias",
                                             "mlp_bias",
                                             "attention_dropout",
                                             "partial_rotary_factor",
                                             "use_sliding_window",
                                             "sliding_window",
                                             "max_window_layers",
                                             "layer_types",
                                             "n_layer",
                                             "n_head",
                                             "ffn_hidden_size",
                                             "layer_norm_epsilon",
                                             "seq_length",
                                             "training_seqlen",
                                             "base_seqlen",
                                             "hidden_dropout",
                                             "apply_residual_connection_post_layernorm",
                                             "embed_layernorm",
                                             "flash_attn",
                                             "logn",
                                             "bos_token_id",
                                             "eos_token_id",
                                             "pad_token_id",
                                             "torch_dtype",
                                             "dtype",
                                             "use_cache",
                                             "pretraining_tp",
                                             "transformers_version",
                                             "auto_map",
                                             "n_embd",
                                             "n_inner",
                                             "n_positions",
                                             "n_ctx",
                                             "activation_function",
                                             "resid_pdrop",
                                             "embd_pdrop",
                                             "attn_pdrop",
                                             "scale_attn_weights",
                                             "scale_attn_by_inverse_layer_idx",
                                             "reorder_and_upcast_attn",
                                             "summary_type",
                                             "summary_use_proj",
                                             "summary_activation",
                                             "summary_first_dropout",
                                             "summary_proj_to_labels",
                                             "num_local_experts",
                                             "num_experts",
                                             "num_experts_per_tok",
                                             "moe_intermediate_size",
                                             "norm_topk_prob",
                                             "mlp_only_layers",
                                             "decoder_sparse_step",
                                             "router_aux_loss_coef",
                                             "router_jitter_noise",
                                             "output_router_logits",
                                             "n_routed_experts",
                                             "n_shared_experts",
                                             "first_k_dense_replace",
                                             "moe_layer_freq",
                                             "scoring_func",
                                             "topk_method",
                                             "n_group",
                                             "topk_group",
                                             "routed_scaling_factor",
                                             "routing"};

json to_json(const YAML::Node& n) {
  if (is_null(n)) return nullptr;
  if (n.IsMap()) {
    json out = json::object();
    for (const auto& entry : n) out[entry.first.Scalar()] = to_json(entry.second);
    return out;
  }
  if (n.IsSequence()) {
    json out = json::array();
    for (const auto& item : n) out.push_back(to_json(item));
    return out;
  }
  bool flag = false;
  int64_t whole = 0;
  double number = 0;
  if (read_flag(n, flag)) return flag;
  if (read_integer(n, whole)) return whole;
  if (read_number(n, number)) return number;
  return n.Scalar();
}

void read_model(const YamlMap& root, RunConfig& c) {
  if (!root.has("model"))
    root.refuse("model", "a Hugging Face folder, the path of a config.json, or a map of its keys");
  if (root.node("model").IsScalar()) {
    const std::filesystem::path path = root.node("model").Scalar();
    if (!path_exists(path))
      root.refuse("model", "a folder or file that exists",
                  "paths are relative to the working directory");
    const bool folder = std::filesystem::is_directory(path);
    c.model = read_model_config(folder ? path / "config.json" : path);
    if (folder) c.weights = path;
    return;
  }
  const YamlMap model = root.child("model", kModelKeys);
  json sizes = to_json(root.node("model"));
  if (!model.has("model_type")) sizes["model_type"] = "llama";
  const bool names_its_own = sizes["model_type"] == "telechat" ||
                             sizes["model_type"] == "telechat_moe" || sizes["model_type"] == "gpt2";
  if (!model.has("rms_norm_eps") && !names_its_own) sizes["rms_norm_eps"] = 1e-5;
  if (!model.has("vocab_size")) {
    if (c.data.vocabulary == 0) c.data.vocabulary = load_tokenizer(c.data.tokenizer)->vocabulary();
    sizes["vocab_size"] = c.data.vocabulary;
  }
  try {
    c.model = read_config(sizes, "model");
  } catch (const Error& e) {
    model.refuse(e);
  }
}

}  // namespace

DType dtype_named(std::string_view text) {
  return text == "fp64" ? DType::f64 : text == "bf16" ? DType::bf16 : DType::f32;
}

const char* text_of(DType dtype) {
  return dtype == DType::f64 ? "fp64" : dtype == DType::bf16 ? "bf16" : "fp32";
}

RunConfig read_run(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  YamlFile file = YamlFile::open(path);
  for (const std::string& o : overrides) file.override_with(o);
  const YamlMap root(file, file.root(), "", names_of_keys(""));
  const auto child = [&](const char* section) {
    return root.child(section, names_of_keys(section));
  };
  RunConfig c;
  c.name = path.stem();
  read_keys(root, "", c);
  const YamlMap data = child("data");
  read_keys(data, "data", c);
  read_model(root, c);
  if (!data.has("vocabulary")) c.data.vocabulary = static_cast<int>(c.model.vocabulary);
  if (c.data.vocabulary != c.model.vocabulary) {
    throw Error(fmt::format("model.vocab_size is {}, but data.vocabulary is {}: they must be equal",
                            c.model.vocabulary, c.data.vocabulary),
                root.place("data"), fmt::format("data.vocabulary: {}", c.model.vocabulary));
  }
  if (!c.data.sources.empty() && c.data.tokenizer.empty() && c.data.vocabulary < 257) {
    throw Error(
        fmt::format("a byte-level tokenizer has at least 257 tokens, but model.vocab_size is {}",
                    c.data.vocabulary),
        root.place("model"), "vocab_size: 257 or more");
  }
  read_keys(child("train"), "train", c);
  read_keys(child("generate"), "generate", c);
  const YamlMap layout = child("layout");
  read_keys(layout, "layout", c);
  try {
    c.plan = resolve(c.plan, static_cast<int>(c.model.layers), c.rows());
  } catch (const Error& e) {
    layout.refuse(e);
  }
  return c;
}

Plan read_layout(const std::vector<std::string>& overrides) {
  YamlFile file = YamlFile::parse("", "layout");
  for (const std::string& o : overrides) file.override_with(o);
  const YamlMap root(file, file.root(), "", {"layout"});
  RunConfig c;
  read_keys(root.child("layout", names_of_keys("layout")), "layout", c);
  return c.plan;
}

std::string write_run(const RunConfig& c) { return write_keys("", c); }

std::vector<double> DataConfig::weights() const {
  std::vector<double> out;
  for (const DataSource& s : sources) out.push_back(s.weight);
  return out;
}

double learning_rate(const TrainConfig& t, int64_t step) {
  if (step <= t.warmup_steps)
    return t.learning_rate * static_cast<double>(step) / static_cast<double>(t.warmup_steps);
  const int64_t begin = t.schedule == LrSchedule::wsd
                            ? std::max(t.warmup_steps, t.steps - t.decay_steps)
                            : t.warmup_steps;
  if (t.schedule == LrSchedule::constant || step <= begin) return t.learning_rate;
  const double done =
      std::min(1.0, static_cast<double>(step - begin) / static_cast<double>(t.steps - begin));
  const double left =
      t.schedule == LrSchedule::cosine ? 0.5 * (1 + std::cos(M_PI * done)) : 1 - done;
  return t.min_learning_rate + (t.learning_rate - t.min_learning_rate) * left;
}

}  // namespace myriad
