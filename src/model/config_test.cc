#include "model/config.h"

#include <gtest/gtest.h>

#include "model/emit.h"
#include "model/testing.h"

namespace myriad {
namespace {

using nlohmann::json;

TEST(Config, ReadsTheGoldens) {
  const ModelConfig llama = read_config(golden("llama_gqa"), "c");
  EXPECT_EQ(llama, (ModelConfig{.family = Family::llama,
                                .hidden = 48,
                                .layers = 4,
                                .heads = 6,
                                .kv_heads = 2,
                                .head_dim = 8,
                                .ffn = 104,
                                .vocabulary = 131,
                                .positions = 64,
                                .norm_eps = 1e-5,
                                .tied = false,
                                .initializer_range = 0.08,
                                .rope = {}}));
  const ModelConfig tied = read_config(golden("llama_tied_llama3rope"), "c");
  EXPECT_TRUE(tied.tied);
  EXPECT_EQ(tied.head_dim, 12);
  EXPECT_EQ(tied.rope, (RopeConfig{.kind = RopeKind::llama3,
                                   .theta = 500000,
                                   .factor = 8,
                                   .original_positions = 16,
                                   .low_freq_factor = 1,
                                   .high_freq_factor = 4}));
  const ModelConfig qwen = read_config(golden("qwen3_yarn"), "c");
  EXPECT_EQ(qwen.family, Family::qwen3);
  EXPECT_EQ(qwen.rope, (RopeConfig{.kind = RopeKind::yarn, .factor = 4, .original_positions = 16}));
  const ModelConfig tele = read_config(golden("telechat2"), "c");
  EXPECT_EQ(tele.family, Family::telechat);
  EXPECT_EQ(tele.ffn, 104);
  EXPECT_EQ(tele.rope,
            (RopeConfig{.kind = RopeKind::telechat, .base_seqlen = 8, .training_seqlen = 8}));
}

TEST(Config, WrittenIsReadBack) {
  for (const char* name :
       {"llama_gqa", "llama_tied_llama3rope", "qwen3_yarn", "telechat2", "mixtral", "qwen3_moe"}) {
    const ModelConfig c = read_config(golden(name), name);
    EXPECT_EQ(read_config(write_config(c), name), c) << name;
  }
  ModelConfig c = read_config(golden("qwen3_yarn"), "c");
  c.rope.mscale = 0.7;
  c.rope.mscale_all_dim = 1.5;
  c.rope.attention_factor = 1.1;
  c.rope.truncate = false;
  c.positions = 0;
  EXPECT_EQ(read_config(write_config(c), "c"), c);
}

TEST(Config, BothSpellingsOfRopeAreOne) {
  const json now = golden("llama_tied_llama3rope");
  for (const char* key : {"rope_type", "type"}) {
    json before = now;
    before["rope_theta"] = now["rope_parameters"]["rope_theta"];
    before["rope_scaling"] = now["rope_parameters"];
    before["rope_scaling"].erase("rope_theta");
    before["rope_scaling"].erase("rope_type");
    before["rope_scaling"][key] = "llama3";
    before.erase("rope_parameters");
    EXPECT_EQ(read_config(before, "c"), read_config(now, "c"));
  }
}

TEST(Config, FillsWhatPublishedFilesLeaveOut) {
  json c = golden("llama_gqa");
  for (const char* key : {"head_dim", "rope_parameters", "attention_bias", "num_key_value_heads"})
    c.erase(key);
  const ModelConfig read = read_config(c, "c");
  EXPECT_EQ(read.head_dim, 8);
  EXPECT_EQ(read.kv_heads, 6);
  EXPECT_EQ(read.rope.theta, 10000);
  json q = golden("qwen3_yarn");
  q["rope_parameters"].erase("factor");
  EXPECT_EQ(read_config(q, "c").rope.factor, 4);  // 64 / 16
}

TEST(Config, RefusesWhatItDoesNotCompute) {
  const json llama = golden("llama_gqa"), qwen = golden("qwen3_yarn"), tele = golden("telechat2");
  EXPECT_REFUSED(llama, c["model_type"] = "mamba", "supported: llama, qwen3, telechat");
  EXPECT_REFUSED(llama, c["attention_bias"] = true, "attention_bias is true");
  EXPECT_REFUSED(llama, c["mlp_bias"] = true, "mlp_bias");
  EXPECT_REFUSED(llama, c["hidden_act"] = "gelu", "supported: \"silu\"");
  EXPECT_REFUSED(llama, c["attention_dropout"] = 0.1, "attention_dropout");
  EXPECT_REFUSED(llama, c["rope_parameters"]["rope_type"] = "longrope",
                 "supported: default, llama3, yarn");
  EXPECT_REFUSED(llama, c["rope_parameters"]["full_attention"] = json::object(),
                 "unknown key full_attention");
  EXPECT_REFUSED(llama, c["rope_scaling"] = json({{"type", "yarn"}}), "differ");
  EXPECT_REFUSED(llama, c["partial_rotary_factor"] = 0.5, "partial_rotary_factor");
  EXPECT_REFUSED(qwen, c["use_sliding_window"] = true, "use_sliding_window");
  EXPECT_REFUSED(qwen, c["layer_types"][1] = "sliding_attention", "layer_types");
  EXPECT_REFUSED(tele, c["embed_layernorm"] = true, "embed_layernorm");
  EXPECT_REFUSED(tele, c["apply_residual_connection_post_layernorm"] = true, "apply_residual");
}

TEST(Config, RefusesWhatIsMissingOrWrong) {
  const json llama = golden("llama_gqa"), qwen = golden("qwen3_yarn"), tele = golden("telechat2");
  for (const char* key : {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
                          "intermediate_size", "vocab_size", "rms_norm_eps"}) {
    json c = llama;
    c.erase(key);
    EXPECT_NE(refusal(c, [](json&) {}).find(std::string(key) + " is missing"), std::string::npos)
        << key;
  }
  EXPECT_REFUSED(json(3), (void)c, "expected an object");
  EXPECT_REFUSED(llama, c["hidden_size"] = 0, "hidden_size must be an integer from 1");
  EXPECT_REFUSED(llama, c["hidden_size"] = "48", "not \"48\"");
  EXPECT_REFUSED(llama, c["hidden_size"] = 48.5, "not 48.5");
  EXPECT_REFUSED(llama, c["vocab_size"] = 1ull << 63, "vocab_size");
  EXPECT_REFUSED(llama, c["num_key_value_heads"] = 4, "not a multiple of num_key_value_heads 4");
  EXPECT_REFUSED(llama, c["head_dim"] = 7, "even");
  EXPECT_REFUSED(llama, c.erase("head_dim");
                 c["hidden_size"] = 50, "not a multiple of num_attention_heads");
  EXPECT_REFUSED(llama, c["rms_norm_eps"] = 0, "rms_norm_eps");
  EXPECT_REFUSED(llama, c["tie_word_embeddings"] = 1, "tie_word_embeddings must be true or false");
  EXPECT_REFUSED(llama, c["rope_parameters"] = json({{"rope_type", "llama3"}}),
                 "rope_parameters: factor is missing");
  EXPECT_REFUSED(llama, c["num_hidden_layers"] = 900000000;
                 c["hidden_size"] = 900000000, "parameters; at most");
  EXPECT_REFUSED(qwen, c.erase("head_dim"), "Transformers takes 128");
  EXPECT_REFUSED(qwen, c["rope_parameters"]["factor"] = 0.5, "at least 1");
  EXPECT_REFUSED(qwen, c["rope_parameters"]["beta_slow"] = 64, "beta_slow");
  EXPECT_REFUSED(tele, c.erase("training_seqlen"), "training_seqlen is missing");
  EXPECT_REFUSED(tele, c.erase("tie_word_embeddings"), "tie_word_embeddings is missing");
  EXPECT_REFUSED(tele, c["hidden_size"] = 50, "not a multiple of n_head");
}

TEST(Config, CountsPublishedModels) {
  const json l = {{"model_type", "llama"},    {"hidden_size", 4096},
                  {"num_hidden_layers", 32},  {"num_attention_heads", 32},
                  {"num_key_value_heads", 8}, {"intermediate_size", 14336},
                  {"vocab_size", 128256},     {"rms_norm_eps", 1e-5}};
  const ModelConfig llama = read_config(l, "Llama 3 8B");
  EXPECT_EQ(parameter_count(llama), 8030261248);  // the published 8.03B
  const json q = {
      {"model_type", "qwen3"},     {"hidden_size", 1024},        {"num_hidden_layers", 28},
      {"num_attention_heads", 16}, {"num_key_value_heads", 8},   {"head_dim", 128},
      {"intermediate_size", 3072}, {"vocab_size", 151936},       {"rms_norm_eps", 1e-6},
      {"rope_theta", 1000000},     {"tie_word_embeddings", true}};
  EXPECT_EQ(parameter_count(read_config(q, "Qwen3 0.6B")), 596049920);  // the published 0.6B
}

TEST(Config, FlopsOfAToken) {
  const ModelConfig c = read_config(golden("llama_gqa"), "c");
  // q, o 48 x 48; k, v 16 x 48; three of 104 x 48; 4 layers; head 131 x 48. Attention: 4 layers x 6
  // heads x 8 x 24.
  const double matrices = 4 * (2 * 48 * 48 + 2 * 16 * 48 + 3 * 104 * 48) + 131 * 48;
  EXPECT_EQ(model_flops_per_token(c, 24), 6 * matrices + 6 * 4 * 6 * 8 * 24);
}

TEST(Config, Gpt2AsPublished) {
  const json c = golden("gpt2");
  const ModelConfig m = read_config(c, "gpt2");
  EXPECT_EQ(m.family, Family::gpt2);
  EXPECT_TRUE(m.tied);
  EXPECT_EQ(m.positions, 64);
  EXPECT_EQ(parameter_count(m), 353600 / 4);  // what its weights take
  EXPECT_EQ(read_config(write_config(m), "written"), m);
  EXPECT_REFUSED(c, c["activation_function"] = "relu", "supported: \"gelu_new\"");
  EXPECT_REFUSED(c, c["resid_pdrop"] = 0.1, "resid_pdrop");
  EXPECT_REFUSED(c, c["n_head"] = 7, "n_embd 48 is not a multiple of n_head 7");
  EXPECT_THROW(emit_model(m, 1, 65, DType::f32, {}), Error);
}

}  // namespace
}  // namespace myriad
