#include "train/run_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/yaml.h"
#include "data/tokenizer.h"
#include "train/model_folder.h"

namespace myriad {

namespace {

using nlohmann::json;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int64_t kMost = int64_t{1} << 40;

const std::vector<std::string> kDataKeys = {"corpus",          "sources", "tokenizer",
                                            "vocabulary",      "packing", "held_out_permille",
                                            "held_out_tokens", "cache"};
const std::vector<std::string> kPackings = {"cut", "whole"};
const std::vector<std::string> kSchedules = {"constant", "cosine", "linear", "wsd"};
const std::vector<std::string> kRecompute = {"none", "selective", "full"};
const std::vector<std::string> kGradReduce = {"step", "micro_batch"};
const std::vector<std::string> kDtypes = {"fp32", "fp64", "bf16"};
const std::vector<std::string> kKernels = {"fast", "reference"};
const std::vector<std::string> kAxes = {"pp", "dp", "cp", "tp", "tg", "tr"};
const std::vector<std::string> kLayoutKeys = {"dp",
                                              "cp",
                                              "tp",
                                              "pp",
                                              "vpp",
                                              "micro_batches",
                                              "zero",
                                              "sp",
                                              "ep",
                                              "etp",
                                              "expert_rows_bound",
                                              "dispatch",
                                              "ranks_per_node",
                                              "schedule",
                                              "recompute",
                                              "grad_reduce",
                                              "stages",
                                              "rules",
                                              "prices"};

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

// Also of a name that no file can have.
bool there(const std::filesystem::path& path) {
  std::error_code refused;
  return std::filesystem::exists(path, refused);
}

void read_model(const YamlMap& root, RunConfig& c) {
  if (!root.has("model"))
    root.refuse("model", "a Hugging Face folder, the path of a config.json, or a map of its keys");
  if (root.node("model").IsScalar()) {
    const std::filesystem::path path = root.node("model").Scalar();
    if (!there(path))
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

std::string name_of_source(const std::string& path) {
  const std::filesystem::path p = path;
  const std::string last = (p.has_filename() ? p : p.parent_path()).filename();
  return last.substr(0, std::max<size_t>(1, last.find('.', 1)));
}

void read_sources(const YamlMap& data, std::vector<DataSource>& to) {
  if (data.has("corpus") && data.has("sources"))
    data.refuse("corpus", "left out where data.sources is given");
  if (data.has("corpus")) {
    to.emplace_back();
    data.text("corpus", to[0].path);
    to[0].name = name_of_source(to[0].path);
    return;
  }
  std::vector<double> weights;
  for (const YamlMap& s : data.children("sources", {"path", "corpus", "name", "weight"})) {
    DataSource source;
    if (s.has("path") == s.has("corpus"))
      s.refuse("path",
               "the file or folder of the source, and corpus, another word for it, left out");
    s.text("path", source.path);
    s.text("corpus", source.path);
    source.name = name_of_source(source.path);
    s.text("name", source.name);
    for (const DataSource& other : to) {
      if (other.name == source.name)
        s.refuse("name",
                 fmt::format("another than that of {}, which is {}", other.path, other.name));
    }
    s.positive("weight", source.weight);
    weights.push_back(source.weight);
    to.push_back(std::move(source));
  }
  if (data.has("sources") && to.empty()) data.refuse("sources", "a list of at least one source");
  if (!to.empty()) whole_weights(weights, data.place("sources"));
}

void read_data(const YamlMap& root, DataConfig& d) {
  const YamlMap s = root.child("data", kDataKeys);
  read_sources(s, d.sources);
  s.text("tokenizer", d.tokenizer);
  if (!d.tokenizer.empty() && !there(d.tokenizer))
    s.refuse("tokenizer", "a file or folder that exists",
             "paths are relative to the working directory");
  if (!d.tokenizer.empty()) d.vocabulary = 0;  // not told
  s.integer("vocabulary", 257, INT32_MAX, d.vocabulary);
  if (const int i = s.choice("packing", kPackings); i >= 0) d.packing = static_cast<Packing>(i);
  s.integer("held_out_permille", 1, 999, d.held_out_permille);
  s.integer("held_out_tokens", 0, kMost, d.held_out_tokens);
  s.text("cache", d.cache);
}

void read_optimizer(const YamlMap& train, OptimizerConfig& o) {
  const YamlMap s =
      train.child("optimizer", {"beta1", "beta2", "eps", "weight_decay", "clip_norm"});
  for (const auto& [key, beta] : {std::pair{"beta1", &o.beta1}, {"beta2", &o.beta2}}) {
    s.number(key, 0, 1, *beta);
    if (*beta >= 1) s.refuse(key, "a number of 0 or more and below 1");
  }
  s.positive("eps", o.eps);
  s.number("weight_decay", 0, kInfinite, o.weight_decay);
  s.number("clip_norm", 0, kInfinite, o.clip_norm);
}

void read_train(const YamlMap& root, TrainConfig& t) {
  const YamlMap s = root.child(
      "train", {"sequence_length", "tokens_per_step", "steps", "learning_rate", "min_learning_rate",
                "schedule", "warmup_steps", "decay_steps", "optimizer", "dtype", "seed",
                "evaluate_every", "save_every", "keep", "workers", "kernels"});
  s.integer("sequence_length", 1, 1 << 24, t.sequence_length);
  if (!s.has("tokens_per_step"))
    t.tokens_per_step =
        std::max<int64_t>(1, t.tokens_per_step / t.sequence_length) * t.sequence_length;
  s.integer("tokens_per_step", 1, kMost, t.tokens_per_step);
  if (const int64_t n = t.sequence_length, over = t.tokens_per_step % n; over != 0) {
    const int64_t below = t.tokens_per_step - over;
    s.refuse("tokens_per_step", fmt::format("a multiple of train.sequence_length ({})", n),
             below > 0 ? fmt::format("nearest: {} and {}", below, below + n)
                       : fmt::format("nearest: {}", n));
  }
  s.integer("steps", 1, kMost, t.steps);
  if (const int64_t most = (int64_t{1} << 60) / t.tokens_per_step; t.steps > most)
    s.refuse("steps", "so few that a run has at most 2^60 tokens",
             fmt::format("nearest: {}", most));
  s.positive("learning_rate", t.learning_rate);
  s.number("min_learning_rate", 0, kInfinite, t.min_learning_rate);
  if (t.min_learning_rate > t.learning_rate) {
    s.refuse("min_learning_rate", fmt::format("at most train.learning_rate ({})", t.learning_rate),
             fmt::format("nearest: {}", t.learning_rate));
  }
  if (const int i = s.choice("schedule", kSchedules); i >= 0)
    t.schedule = static_cast<LrSchedule>(i);
  s.integer("warmup_steps", 0, kMost, t.warmup_steps);
  s.integer("decay_steps", 0, kMost, t.decay_steps);
  if (t.decay_steps > 0 && t.schedule != LrSchedule::wsd)
    s.refuse("decay_steps", "0 unless train.schedule is wsd: other schedules decay over all steps");
  read_optimizer(s, t.optimizer);
  if (const int i = s.choice("dtype", kDtypes); i >= 0)
    t.dtype = dtype_named(kDtypes[static_cast<size_t>(i)]);
  s.integer("seed", t.seed);
  s.integer("evaluate_every", 0, kMost, t.evaluate_every);
  s.integer("save_every", 0, kMost, t.save_every);
  s.integer("keep", 0, 1 << 20, t.keep);
  s.integer("workers", 0, 4096, t.workers);
  if (const int i = s.choice("kernels", kKernels); i >= 0)
    t.kernels = i == 1 ? KernelSet::ref : KernelSet::fast;
}

Plan read_plan(const YamlMap& s) {
  Plan p;
  constexpr int64_t kRanks = 1 << 20;
  s.integer("dp", 1, kRanks, p.dp);
  s.integer("cp", 1, kRanks, p.cp);
  s.integer("tp", 1, kRanks, p.tp);
  s.integer("pp", 1, kRanks, p.pp);
  s.integer("vpp", 1, kRanks, p.vpp);
  s.integer("micro_batches", 1, 1 << 30, p.micro_batches);
  s.integer("zero", 0, 3, p.zero);
  s.flag("sp", p.sp);
  s.integer("ep", 1, kRanks, p.ep);
  s.integer("etp", 1, kRanks, p.etp);
  s.number("expert_rows_bound", 0.001, 1e6, p.expert_rows_bound);
  if (const int i = s.choice("dispatch", {"flat", "node_gather", "node_relay"}); i >= 0)
    p.dispatch = static_cast<Dispatch>(i);
  s.integer("ranks_per_node", 1, kRanks, p.ranks_per_node);
  if (const int i = s.choice("schedule", {"gpipe", "1f1b", "interleaved"}); i >= 0)
    s.text("schedule", p.schedule);
  if (const int i = s.choice("recompute", kRecompute); i >= 0)
    p.recompute = static_cast<Recompute>(i);
  if (const int i = s.choice("grad_reduce", kGradReduce); i >= 0)
    p.grad_reduce = i == 0 ? GradReduce::step : GradReduce::micro_batch;
  p.stages = s.integers("stages");
  s.text("rules", p.rules);
  const YamlMap prices = s.child("prices", kAxes);
  for (const std::string& axis : kAxes) {
    double price = 0;
    prices.positive(axis, price);
    if (price > 0) p.prices[axis] = price;
  }
  return p;
}

void read_generate(const YamlMap& root, RunConfig& c) {
  const YamlMap s = root.child("generate", {"prompts", "every", "max_tokens", "temperature"});
  if (s.has("prompts")) c.prompts = s.texts("prompts");
  s.integer("every", 0, kMost, c.generate_every);
  s.integer("max_tokens", 0, 1 << 20, c.generate_tokens);
  s.number("temperature", 0, kInfinite, c.temperature);
}

void read_name(const YamlMap& root, RunConfig& c) {
  root.text("name", c.name);
  const auto legal = [](unsigned char x) {
    return std::isalnum(x) || x == '.' || x == '_' || x == '-';
  };
  if (c.name.empty() || c.name[0] == '.' || !std::all_of(c.name.begin(), c.name.end(), legal)) {
    root.refuse("name", "the name of a folder: letters, digits, . _ -, and no dot in front");
  }
}

std::string quoted(const std::string& text) { return json(text).dump(); }

std::string write_sources(const std::vector<DataSource>& sources) {
  if (sources.empty()) return "";
  if (sources.size() == 1 && sources[0].name == name_of_source(sources[0].path))
    return fmt::format("  corpus: {}\n", quoted(sources[0].path));
  std::string out;
  for (const DataSource& s : sources) {
    out += fmt::format("{}{{path: {}, name: {}, weight: {}}}", out.empty() ? "" : ",\n    ",
                       quoted(s.path), quoted(s.name), s.weight);
  }
  return fmt::format("  sources: [\n    {}]\n", out);
}

std::string write_layout(const Plan& p) {
  std::string out = fmt::format(
      "layout:\n  dp: {}\n  cp: {}\n  tp: {}\n  pp: {}\n  vpp: {}\n  micro_batches: {}\n  zero: "
      "{}\n  ep: "
      "{}\n"
      "  etp: {}\n  expert_rows_bound: {}\n  dispatch: {}\n  sp: {}\n",
      p.dp, p.cp, p.tp, p.pp, p.vpp, p.micro_batches, p.zero, p.ep, p.etp, p.expert_rows_bound,
      name_of(p.dispatch), p.sp);
  if (p.ranks_per_node > 0 && p.ranks_per_node < p.ranks())
    out += fmt::format("  ranks_per_node: {}\n", p.ranks_per_node);
  if (!p.schedule.empty()) out += fmt::format("  schedule: {}\n", p.schedule);
  out += fmt::format("  recompute: {}\n", kRecompute[static_cast<int>(p.recompute)]);
  if (p.grad_reduce != GradReduce::automatic)
    out +=
        fmt::format("  grad_reduce: {}\n", kGradReduce[p.grad_reduce == GradReduce::micro_batch]);
  if (!p.stages.empty()) out += fmt::format("  stages: [{}]\n", fmt::join(p.stages, ", "));
  if (!p.rules.empty()) out += fmt::format("  rules: {}\n", quoted(p.rules));
  if (!p.prices.empty()) out += "  prices:\n";
  for (const auto& [axis, price] : p.prices) out += fmt::format("    {}: {}\n", axis, price);
  return out;
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
  const YamlMap root(file, file.root(), "",
                     {"name", "model", "data", "train", "layout", "generate", "cluster"});
  RunConfig c;
  c.name = path.stem();
  read_name(root, c);
  read_data(root, c.data);
  read_model(root, c);
  const YamlMap data = root.child("data", kDataKeys);
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
  read_train(root, c.train);
  read_generate(root, c);
  root.text("cluster", c.cluster);
  const YamlMap layout = root.child("layout", kLayoutKeys);
  c.plan = read_plan(layout);
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
  return read_plan(root.child("layout", kLayoutKeys));
}

std::string write_run(const RunConfig& c) {
  std::string out = fmt::format("name: {}\n", quoted(c.name));
  if (c.weights.empty()) {
    out += "model:\n";
    const json sizes = write_config(c.model);
    for (const auto& [key, value] : sizes.items()) {
      if (!value.is_null()) out += fmt::format("  {}: {}\n", key, value.dump());
    }
  } else {
    out += fmt::format("model: {}\n", quoted(c.weights));
  }
  const DataConfig& d = c.data;
  out += "data:\n";
  out += write_sources(d.sources);
  if (!d.tokenizer.empty()) out += fmt::format("  tokenizer: {}\n", quoted(d.tokenizer));
  if (d.vocabulary >= 257) out += fmt::format("  vocabulary: {}\n", d.vocabulary);
  out += fmt::format("  packing: {}\n  held_out_permille: {}\n  held_out_tokens: {}\n  cache: {}\n",
                     kPackings[d.packing == Packing::whole], d.held_out_permille, d.held_out_tokens,
                     quoted(d.cache));
  const TrainConfig& t = c.train;
  const OptimizerConfig& o = t.optimizer;
  out += fmt::format(
      "train:\n  sequence_length: {}\n  tokens_per_step: {}\n  steps: {}\n  learning_rate: {}\n  "
      "min_learning_rate: {}\n  schedule: {}\n"
      "  warmup_steps: {}\n  decay_steps: {}\n  optimizer: {{beta1: {}, beta2: {}, eps: {}, "
      "weight_decay: {}, clip_norm: {}}}\n  dtype: {}\n"
      "  seed: {}\n  evaluate_every: {}\n  save_every: {}\n  keep: {}\n  workers: {}\n  kernels: "
      "{}\n",
      t.sequence_length, t.tokens_per_step, t.steps, t.learning_rate, t.min_learning_rate,
      kSchedules[static_cast<int>(t.schedule)], t.warmup_steps, t.decay_steps, o.beta1, o.beta2,
      o.eps, o.weight_decay, o.clip_norm, text_of(t.dtype), t.seed, t.evaluate_every, t.save_every,
      t.keep, t.workers, kKernels[t.kernels == KernelSet::ref]);
  out += write_layout(c.plan);
  if (!c.cluster.empty()) out += fmt::format("cluster: {}\n", quoted(c.cluster));
  out += "generate:\n  prompts: [";
  for (size_t i = 0; i < c.prompts.size(); ++i) out += (i ? ", " : "") + quoted(c.prompts[i]);
  return out + fmt::format("]\n  every: {}\n  max_tokens: {}\n  temperature: {}\n",
                           c.generate_every, c.generate_tokens, c.temperature);
}

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
