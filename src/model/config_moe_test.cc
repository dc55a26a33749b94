#include <gtest/gtest.h>

#include "model/config.h"
#include "model/testing.h"

namespace myriad {
namespace {

using nlohmann::json;

// examples/telechat2-39b.yaml, as the run file's reader hands it over.
json telechat_39b() {
  return {{"model_type", "telechat_moe"},
          {"hidden_size", 4096},
          {"n_layer", 30},
          {"n_head", 32},
          {"num_key_value_heads", 32},
          {"vocab_size", 131072},
          {"layer_norm_epsilon", 1e-5},
          {"training_seqlen", 8192},
          {"base_seqlen", 8192},
          {"tie_word_embeddings", false},
          {"n_routed_experts", 16},
          {"num_experts_per_tok", 4},
          {"moe_intermediate_size", 6144},
          {"router_aux_loss_coef", 0.01},
          {"routing", {{"capacity_factor", 1.2}}}};
}

// A router as DeepSeek-V3 has it.
json deepseek_router() {
  json c = telechat_39b();
  c.update({{"n_routed_experts", 24},
            {"n_shared_experts", 2},
            {"ffn_hidden_size", 100},
            {"first_k_dense_replace", 2},
            {"scoring_func", "sigmoid"},
            {"topk_method", "noaux_tc"},
            {"n_group", 6},
            {"topk_group", 3},
            {"routed_scaling_factor", 2.5},
            {"routing", {{"bias_update_rate", 0.001}, {"z", 0.01}, {"scope", "sequence"}}}});
  return c;
}

TEST(MoeConfig, ReadsTheGoldens) {
  const ModelConfig mixtral = read_config(golden("mixtral"), "c");
  EXPECT_EQ(mixtral.family, Family::mixtral);
  EXPECT_EQ(mixtral.ffn, 0);
  EXPECT_EQ(mixtral.moe, (MoeConfig{.experts = 8,
                                    .top_k = 2,
                                    .expert_ffn = 40,
                                    .dense_layers = {},
                                    .routing = {.load_balance = 0.02}}));
  const ModelConfig qwen = read_config(golden("qwen3_moe"), "c");
  EXPECT_EQ(qwen.ffn, 104);
  EXPECT_EQ(qwen.moe, (MoeConfig{.experts = 8,
                                 .top_k = 3,
                                 .expert_ffn = 40,
                                 .dense_layers = {0},
                                 .routing = {.load_balance = 0.01}}));
  EXPECT_FALSE(qwen.has_experts(0));
  EXPECT_TRUE(qwen.has_experts(1));
  EXPECT_EQ(qwen.expert_layers(), 3);
}

TEST(MoeConfig, GoldenRoutingIsApplied) {
  ModelConfig c = read_config(golden("mixtral_capacity"), "c");
  apply_routing(c, golden("mixtral_capacity", "expected")["routing"], "expected.json");
  EXPECT_EQ(c.moe.routing, (RoutingConfig{.capacity_factor = 1, .load_balance = 0.02, .z = 0.001}));
  ModelConfig dense = read_config(golden("llama_gqa"), "c");
  apply_routing(dense, json::object(), "expected.json");
  EXPECT_THROW(apply_routing(dense, {{"z", 0.1}}, "run"), Error);
}

TEST(MoeConfig, PublishedQwenSaysNumExperts) {
  json now = golden("qwen3_moe"), published = now;
  published["num_experts"] = 8;
  published.erase("num_local_experts");
  EXPECT_EQ(read_config(published, "c"), read_config(now, "c"));
  EXPECT_EQ(write_config(read_config(now, "c"))["num_experts"], 8);
  EXPECT_REFUSED(golden("qwen3_moe"), c["num_experts"] = 7, "are both given and differ");
  now["decoder_sparse_step"] = 2;  // experts in layers 1 and 3
  EXPECT_EQ(read_config(now, "c").moe.dense_layers, (std::vector<int64_t>{0, 2}));
  now.erase("router_aux_loss_coef");
  EXPECT_EQ(read_config(now, "c").moe.routing.load_balance, 0.001);
}

TEST(MoeConfig, WrittenIsReadBack) {
  for (const json& j :
       {telechat_39b(), deepseek_router(), golden("mixtral"), golden("qwen3_moe")}) {
    ModelConfig c = read_config(j, "c");
    EXPECT_EQ(read_config(write_config(c), "c"), c) << j;
    c.moe.routing.capacity_factor = 1.25;
    c.moe.routing.z = 0.5;
    EXPECT_EQ(read_config(write_config(c), "c"), c) << j;
  }
  const MoeConfig m = read_config(deepseek_router(), "c").moe;
  EXPECT_EQ(m.dense_layers, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(m.scores, Scores::sigmoid);
  EXPECT_TRUE(m.correction_bias);
  EXPECT_EQ(m.groups, 6);
  EXPECT_EQ(m.routing.scope, BalanceScope::sequence);
}

TEST(MoeConfig, RefusesWhatNoRouterCanDo) {
  const json tele = deepseek_router(), mixtral = golden("mixtral");
  EXPECT_REFUSED(mixtral, c["num_experts_per_tok"] = 9, "above the 8 experts");
  EXPECT_REFUSED(mixtral, c["num_experts_per_tok"] = 9, "nearest: 8");
  EXPECT_REFUSED(mixtral, c["num_local_experts"] = 0,
                 "num_local_experts must be an integer from 1");
  EXPECT_REFUSED(mixtral, c.erase("num_local_experts"), "num_local_experts is missing");
  EXPECT_REFUSED(mixtral, c["router_aux_loss_coef"] = -1, "at least 0, not -1");
  EXPECT_REFUSED(mixtral, c["router_jitter_noise"] = 0.1, "router_jitter_noise");
  EXPECT_REFUSED(mixtral, c["sliding_window"] = 4096, "sliding_window");
  EXPECT_REFUSED(tele, c["num_experts_per_tok"] = 13, "above the 12 experts of the 3 kept groups");
  EXPECT_REFUSED(tele, c["num_experts_per_tok"] = 13, "nearest: 12");
  EXPECT_REFUSED(tele, c["n_group"] = 5, "n_group 5 does not divide n_routed_experts 24");
  EXPECT_REFUSED(tele, c["n_group"] = 5, "nearest: 4 and 6");
  EXPECT_REFUSED(tele, c["n_group"] = 30, "nearest: 24");
  EXPECT_REFUSED(tele, c["topk_group"] = 7, "topk_group 7 is above n_group 6");
  EXPECT_REFUSED(tele, c["topk_method"] = "greedy", "noaux_tc");
  EXPECT_REFUSED(tele, c["scoring_func"] = "tanh", "supported: softmax, sigmoid");
  EXPECT_REFUSED(tele, c.erase("ffn_hidden_size"), "layer 0 is dense");
  EXPECT_REFUSED(tele, c["first_k_dense_replace"] = 30, "none of the 30 layers has experts");
  EXPECT_REFUSED(tele, c["mlp_only_layers"] = json({30}), "layers from 0 to 29");
  EXPECT_REFUSED(tele, c["model_type"] = "deepseek_v3", "latent attention is not supported");
  EXPECT_REFUSED(tele, c["n_routed_experts"] = 90000000, "parameters; at most");
}

TEST(MoeConfig, RefusesWrongRouting) {
  const json mixtral = golden("mixtral");
  EXPECT_REFUSED(mixtral, c["routing"]["capacity_factor"] = 0, "above 0, not 0");
  EXPECT_REFUSED(mixtral, c["routing"]["capacity_factor"] = 0, "dropless");
  EXPECT_REFUSED(mixtral, c["routing"]["capacity_factor"] = -1, "above 0, not -1");
  EXPECT_REFUSED(mixtral, c["routing"]["capacity"] = 1, "unknown key capacity");
  EXPECT_REFUSED(mixtral, c["routing"]["scope"] = "batch", "supported: micro_batch, sequence");
  EXPECT_REFUSED(mixtral, c["routing"]["bias_update_rate"] = 0.1, "no correction bias");
  EXPECT_REFUSED(mixtral, c["routing"] = 3, "expected an object");
  EXPECT_REFUSED(golden("llama_gqa"), c["routing"]["z"] = 0.1, "the model has no experts");
}

TEST(MoeConfig, CountsPublishedModels) {
  const ModelConfig tele = read_config(telechat_39b(), "TeleChat2-39B-A12B");
  EXPECT_NEAR(static_cast<double>(parameter_count(tele)), 39.3e9, 0.05e9);
  const double active = (model_flops_per_token(tele, 1) - 6.0 * 30 * 4096) / 6 + 131072.0 * 4096;
  EXPECT_NEAR(active, 12.15e9, 0.01e9);  // A12B counts both embeddings
  json q = {{"model_type", "qwen3_moe"},    {"hidden_size", 2048},      {"num_hidden_layers", 48},
            {"num_attention_heads", 32},    {"num_key_value_heads", 4}, {"head_dim", 128},
            {"intermediate_size", 6144},    {"vocab_size", 151936},     {"rms_norm_eps", 1e-6},
            {"rope_theta", 1000000},        {"num_experts", 128},       {"num_experts_per_tok", 8},
            {"moe_intermediate_size", 768}, {"norm_topk_prob", true}};
  EXPECT_EQ(parameter_count(read_config(q, "Qwen3 30B A3B")), 30532122624);  // the published 30.5B
  json m = {{"model_type", "mixtral"},   {"hidden_size", 4096},      {"num_hidden_layers", 32},
            {"num_attention_heads", 32}, {"num_key_value_heads", 8}, {"intermediate_size", 14336},
            {"vocab_size", 32000},       {"rms_norm_eps", 1e-5},     {"num_local_experts", 8},
            {"num_experts_per_tok", 2}};
  EXPECT_EQ(parameter_count(read_config(m, "Mixtral 8x7B")), 46702792704);  // the published 46.7B
}

TEST(MoeConfig, FlopsOfActiveExpertsOnly) {
  const ModelConfig c = read_config(golden("qwen3_moe"), "c");
  // Per layer q, o 48 x 48; k, v 16 x 48. Layer 0 dense 104; the others a router of 8 and 3
  // experts.
  const double matrices =
      4 * (2 * 48 * 48 + 2 * 16 * 48) + 3 * 104 * 48 + 3 * (8 * 48 + 3 * 3 * 40 * 48) + 131 * 48;
  EXPECT_EQ(model_flops_per_token(c, 24), 6 * matrices + 6 * 4 * 6 * 8 * 24);
  ModelConfig shared = c;
  shared.moe.shared_experts = 2;
  EXPECT_EQ(model_flops_per_token(shared, 24) - model_flops_per_token(c, 24),
            6.0 * 3 * 3 * 2 * 40 * 48);
}

}  // namespace
}  // namespace myriad
