// Reads and writes the expert part of a config.json.
//
// The families say in different ways which layers are dense: by a step, by a number of first
// layers, or by a list. Readers therefore mark a flag for each layer and keep only the resulting
// list, which is also what is written; a model read back has the same dense layers whatever its
// first spelling. Likewise, groups of experts that are all kept are read as no groups at all. Our
// own key `routing` overrides the published settings in apply_routing. Read MoeConfig in
// model/config.h first.
#include "model/config_moe.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace myriad {

namespace {

using nlohmann::json;

// The default of MixtralConfig and Qwen3MoeConfig in Transformers.
constexpr double kPublishedBalance = 0.001;

void mark_dense(std::vector<bool>& dense, const Keys& k) {
  if (!k.has("mlp_only_layers")) return;
  const json& list = k.value("mlp_only_layers");
  const int64_t layers = static_cast<int64_t>(dense.size());
  const bool legal = list.is_array() && std::all_of(list.begin(), list.end(), [&](const json& i) {
                       return i.is_number_integer() && i >= 0 && i < layers;
                     });
  if (!legal) {
    k.fail(fmt::format("mlp_only_layers must be a list of layers from 0 to {}, not {}", layers - 1,
                       shown(list)));
  }
  for (const json& i : list) dense[i.get<size_t>()] = true;
}

void keep_dense(const std::vector<bool>& dense, const Keys& k, ModelConfig& c) {
  for (size_t i = 0; i < dense.size(); ++i) {
    if (dense[i]) c.moe.dense_layers.push_back(static_cast<int64_t>(i));
  }
  if (c.expert_layers() == 0) {
    k.fail(fmt::format("none of the {} layers has experts", c.layers),
           "leave a layer to the experts, or choose a dense model_type");
  }
  if (!c.moe.dense_layers.empty() && c.ffn == 0) {
    k.fail(fmt::format("{} is missing, but layer {} is dense",
                       c.family == Family::telechat_moe ? "ffn_hidden_size" : "intermediate_size",
                       c.moe.dense_layers[0]),
           "it is an integer of at least 1");
  }
}

void read_mixtral(const Keys& k, ModelConfig& c) {
  c.moe.experts = k.size("num_local_experts");
  c.moe.expert_ffn = k.size("intermediate_size");
  k.supports_only("router_jitter_noise", 0);
  if (k.has("sliding_window")) k.unsupported("sliding_window", "null (full attention)");
}

void read_qwen3(const Keys& k, ModelConfig& c) {
  const bool renamed = !k.has("num_experts") && k.has("num_local_experts");
  c.moe.experts = k.size(renamed ? "num_local_experts" : "num_experts");
  if (k.size("num_local_experts", c.moe.experts) != c.moe.experts) {
    k.fail(fmt::format("num_experts {} and num_local_experts {} are both given and differ",
                       c.moe.experts, k.size("num_local_experts")),
           "give one");
  }
  c.moe.expert_ffn = k.size("moe_intermediate_size");
  c.moe.renormalise = k.flag("norm_topk_prob", false);
  const int64_t step = k.size("decoder_sparse_step", 1);
  std::vector<bool> dense(static_cast<size_t>(c.layers));
  for (int64_t i = 0; i < c.layers; ++i) dense[i] = (i + 1) % step != 0;
  mark_dense(dense, k);
  keep_dense(dense, k, c);
}

void read_groups(const Keys& k, MoeConfig& m) {
  m.groups = k.size("n_group", 1);
  m.kept_groups = k.size("topk_group", m.groups);
  if (m.experts % m.groups != 0) {
    std::vector<int64_t> near;
    for (int64_t n = m.groups - 1; n >= 1 && near.empty(); --n) {
      if (m.experts % n == 0) near.push_back(n);
    }
    for (int64_t n = m.groups + 1; n <= m.experts && near.size() < 2; ++n) {
      if (m.experts % n == 0) near.push_back(n);
    }
    k.fail(fmt::format("n_group {} does not divide n_routed_experts {}", m.groups, m.experts),
           fmt::format("nearest: {}", fmt::join(near, " and ")));
  }
  if (m.kept_groups > m.groups) {
    k.fail(fmt::format("topk_group {} is above n_group {}", m.kept_groups, m.groups),
           fmt::format("nearest: {}", m.groups));
  }
  if (m.groups > 1 && !m.correction_bias) {
    k.fail(
        fmt::format("n_group is {} without topk_method noaux_tc, which is not supported", m.groups),
        "supported: n_group 1, or topk_method noaux_tc");
  }
  if (m.groups == m.kept_groups) m.groups = m.kept_groups = 1;  // every group is kept
}

void read_telechat(const Keys& k, ModelConfig& c) {
  MoeConfig& m = c.moe;
  m.experts = k.size("n_routed_experts");
  m.expert_ffn = k.size("moe_intermediate_size");
  m.shared_experts = k.count("n_shared_experts");
  m.renormalise = k.flag("norm_topk_prob", true);
  m.scaling = k.positive("routed_scaling_factor", 1);
  const std::string scores = k.has("scoring_func") ? k.text("scoring_func") : "softmax";
  if (scores != "softmax" && scores != "sigmoid") k.unsupported("scoring_func", "softmax, sigmoid");
  m.scores = scores == "sigmoid" ? Scores::sigmoid : Scores::softmax;
  const std::string method = k.has("topk_method") ? k.text("topk_method") : "greedy";
  if (method != "greedy" && method != "noaux_tc") k.unsupported("topk_method", "greedy, noaux_tc");
  m.correction_bias = method == "noaux_tc";
  read_groups(k, m);
  const int64_t first = k.count("first_k_dense_replace"), step = k.size("moe_layer_freq", 1);
  std::vector<bool> dense(static_cast<size_t>(c.layers));
  for (int64_t i = 0; i < c.layers; ++i) dense[i] = i < first || i % step != 0;
  mark_dense(dense, k);
  keep_dense(dense, k, c);
}

void check_top_k(const Keys& k, const MoeConfig& m) {
  const int64_t most = m.experts / m.groups * m.kept_groups;
  if (m.top_k <= most) return;
  const std::string of = m.groups == 1 ? fmt::format("{} experts", m.experts)
                                       : fmt::format("{} experts of the {} kept groups of {}", most,
                                                     m.kept_groups, m.groups);
  k.fail(fmt::format("num_experts_per_tok {} is above the {}", m.top_k, of),
         fmt::format("nearest: {}", most));
}

json write_routing(const RoutingConfig& r) {
  const RoutingConfig none;
  json j = json::object();
  if (r.capacity_factor != none.capacity_factor) j["capacity_factor"] = r.capacity_factor;
  if (r.z != none.z) j["z"] = r.z;
  if (r.scope != none.scope) j["scope"] = "sequence";
  if (r.bias_update_rate != none.bias_update_rate) j["bias_update_rate"] = r.bias_update_rate;
  return j;
}

}  // namespace

void read_experts(const Keys& k, ModelConfig& c) {
  c.moe.top_k = k.size("num_experts_per_tok");
  if (c.family == Family::mixtral) read_mixtral(k, c);
  if (c.family == Family::qwen3_moe) read_qwen3(k, c);
  if (c.family == Family::telechat_moe) read_telechat(k, c);
  check_top_k(k, c.moe);
  c.moe.routing.load_balance = k.at_least_zero(
      "router_aux_loss_coef", c.family == Family::telechat_moe ? 0 : kPublishedBalance);
  if (k.has("routing")) apply_routing(c, k.value("routing"), k.where() + ": routing");
}

void write_experts(const ModelConfig& c, json& j) {
  const MoeConfig& m = c.moe;
  if (m.experts == 0) return;
  j["num_experts_per_tok"] = m.top_k;
  j["router_aux_loss_coef"] = m.routing.load_balance;
  if (json routing = write_routing(m.routing); !routing.empty()) j["routing"] = std::move(routing);
  if (c.family == Family::mixtral) {
    j["num_local_experts"] = m.experts;
    j["intermediate_size"] = m.expert_ffn;
    j["sliding_window"] = nullptr;
    return;
  }
  j["moe_intermediate_size"] = m.expert_ffn;
  j["norm_topk_prob"] = m.renormalise;
  j["mlp_only_layers"] = m.dense_layers;
  if (c.family == Family::qwen3_moe) {
    j["num_experts"] = m.experts;
    j["decoder_sparse_step"] = 1;
    return;
  }
  j["n_routed_experts"] = m.experts;
  j["n_shared_experts"] = m.shared_experts;
  j["routed_scaling_factor"] = m.scaling;
  j["scoring_func"] = m.scores == Scores::sigmoid ? "sigmoid" : "softmax";
  j["topk_method"] = m.correction_bias ? "noaux_tc" : "greedy";
  j["n_group"] = m.groups;
  j["topk_group"] = m.kept_groups;
}

void apply_routing(ModelConfig& c, const json& routing, const std::string& where) {
  static constexpr std::array kKnown = {"load_balance", "z", "capacity_factor", "scope",
                                        "bias_update_rate"};
  const Keys k(routing, where);
  RoutingConfig& r = c.moe.routing;
  for (const auto& [key, value] : routing.items()) {
    if (key == "micro_batches" || value.is_null()) continue;
    if (std::find(kKnown.begin(), kKnown.end(), std::string_view(key)) == kKnown.end()) {
      k.fail(fmt::format("unknown key {}", key), fmt::format("known: {}", fmt::join(kKnown, ", ")));
    }
    if (c.moe.experts == 0) k.fail(fmt::format("{} is given, but the model has no experts", key));
  }
  r.load_balance = k.at_least_zero("load_balance", r.load_balance);
  r.z = k.at_least_zero("z", r.z);
  if (k.has("capacity_factor") && k.value("capacity_factor") == 0) {
    k.fail("capacity_factor must be a number above 0, not 0",
           "leave it out for dropless experts; 1 is an even share");
  }
  r.capacity_factor = k.positive("capacity_factor", r.capacity_factor);
  if (k.has("scope")) {
    const std::string scope = k.text("scope");
    if (scope != "micro_batch" && scope != "sequence") {
      k.unsupported("scope", "micro_batch, sequence");
    }
    r.scope = scope == "sequence" ? BalanceScope::sequence : BalanceScope::micro_batch;
  }
  r.bias_update_rate = k.at_least_zero("bias_update_rate", r.bias_update_rate);
  if (r.bias_update_rate > 0 && !c.moe.correction_bias) {
    k.fail(fmt::format("bias_update_rate is {}, but the router has no correction bias",
                       r.bias_update_rate),
           "it needs topk_method noaux_tc; nearest: 0");
  }
}

}  // namespace myriad
