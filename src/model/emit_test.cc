#include "model/emit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "ir/rows.h"

namespace myriad {
namespace {

constexpr int64_t kRows = 2, kSequence = 24;

ModelConfig config_of(const std::string& name) {
  std::ifstream file(std::string(MYRIAD_SOURCE) + "/tests/golden/" + name + "/config.json");
  return read_config(nlohmann::json::parse(file), name);
}

Pieces emit(const std::string& name) {
  return emit_model(config_of(name), kRows, kSequence, DType::f32, {});
}

const Param* param(const Piece& piece, const std::string& name) {
  for (const Param& p : piece.params) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

std::vector<std::string> names(const Piece& piece, const std::vector<int>& values) {
  std::vector<std::string> out;
  for (int v : values) out.push_back(piece.graph[v].name);
  return out;
}

// Named values made by a body, as "name labels".
std::set<std::string> made(const Piece& piece, const Body& body) {
  std::set<std::string> out;
  for (const Op& op : body.ops) {
    for (int o : op.outs) {
      if (!piece.graph[o].temporary())
        out.insert(piece.graph[o].name + " " + piece.graph[o].labels);
    }
  }
  return out;
}

const std::vector<const Body*> bodies(const Piece& p) {
  return {&p.forward, &p.settle, &p.settle_other, &p.sum, &p.square, &p.update};
}

TEST(Emit, UnitsShareThreePieces) {
  const Pieces all = emit("llama_gqa");
  EXPECT_EQ(all.units, (std::vector<int>{0, 1, 1, 1, 1, 2}));
  EXPECT_EQ(all.layers(), 4);
  EXPECT_EQ(all.tied, -1);
  EXPECT_EQ(all.pieces[all.finish].name, "finish");
  EXPECT_EQ(all.rows, kRows);
}

TEST(Emit, LayerHasTheNamedValues) {
  const Pieces all = emit("qwen3_yarn");
  const Piece& layer = all.pieces[1];
  const std::set<std::string> have = made(layer, layer.forward);
  for (const char* v : {"xn1 bsd", "q.w grhd", "q bsgrh", "k bsgh", "v bsgh", "qn bsgrh", "kn bsgh",
                        "qr bsgrh", "kr bsgh", "o bsgru", "lse bsgr", "ao bsd", "x1 bsd", "xn2 bsd",
                        "u bsf", "g bsf", "a bsf", "mo bsd", "y bsd"}) {
    EXPECT_TRUE(have.contains(v)) << v;
  }
  EXPECT_EQ(layer.graph[layer.graph.at("q")].sizes, (Sizes{kRows, kSequence, 2, 3, 8}));
  EXPECT_EQ(layer.graph[layer.graph.at("lse")].sizes, (Sizes{kRows, kSequence, 2, 3}));
  EXPECT_EQ(layer.graph[layer.graph.at("x")].sizes, (Sizes{kRows, kSequence, 48}));
  EXPECT_EQ(layer.graph[layer.graph.at("pos")].dtype, DType::i32);
  EXPECT_EQ(names(layer, layer.forward.outputs), std::vector<std::string>{"y"});
}

TEST(Emit, EveryBodyIsStraightAndSingleAssignment) {
  for (const char* name : {"llama_gqa", "llama_tied_llama3rope", "qwen3_yarn", "telechat2",
                           "mixtral_capacity", "qwen3_moe"}) {
    for (const Piece& p : emit(name).pieces) {
      std::set<int> assigned;
      for (const Body* body : bodies(p)) {
        EXPECT_TRUE(body->name.starts_with(p.name + "."));
        for (const Op& op : body->ops) {
          for (int o : op.outs) EXPECT_TRUE(assigned.insert(o).second) << show(op, p.graph);
        }
        for (int o : body->outputs) EXPECT_TRUE(assigned.contains(o)) << p.graph[o].name;
      }
    }
  }
}

TEST(Emit, HeadSumsTheLossExactly) {
  const Pieces all = emit("llama_gqa");
  const Piece& head = all.pieces[2];
  for (const char* v :
       {"xf bsd", "logits bsv", "m bs", "s bs", "lse bs", "t bs", "nll bs", "ok bs", "loss "}) {
    EXPECT_TRUE(made(head, head.forward).contains(v)) << v;
  }
  EXPECT_EQ(head.graph[head.graph.at("loss")].dtype, DType::exact);
  EXPECT_EQ(head.forward.ops.back().row, Row::accum);
  EXPECT_EQ(head.forward.ops.back().attrs.state, "s:loss");
  EXPECT_EQ(head.graph[head.graph.at("inv_n")].dtype, DType::f32);
  EXPECT_TRUE(head.forward.outputs.empty());
}

// Parameters by name, with all sizes, against the tensors of the published file.
void expect_parameters(const std::string& name, const std::set<std::string>& layer_parameters) {
  const ModelConfig config = config_of(name);
  const Pieces all = emit(name);
  std::set<std::string> have;
  int64_t count = 0;
  for (int unit : all.units) {
    for (const Param& p : all.pieces[unit].params) {
      int64_t n = 1;
      for (int64_t s : p.sizes) n *= s;
      if (!p.tied) count += n;
      if (unit == 1) have.insert(p.published);
    }
  }
  EXPECT_EQ(count, parameter_count(config)) << name;
  EXPECT_EQ(have, layer_parameters) << name;
}

TEST(Emit, ParametersAreThePublishedOnes) {
  std::set<std::string> llama;
  for (const char* p :
       {"input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj",
        "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    llama.insert(fmt::format("model.layers.{{}}.{}.weight", p));
  }
  expect_parameters("llama_gqa", llama);
  expect_parameters("llama_tied_llama3rope", llama);
  llama.insert("model.layers.{}.self_attn.q_norm.weight");
  llama.insert("model.layers.{}.self_attn.k_norm.weight");
  expect_parameters("qwen3_yarn", llama);
  std::set<std::string> tele;
  for (const char* p :
       {"input_layernorm.weight", "post_attention_layernorm.weight", "self_attention.query.weight",
        "self_attention.key_value.weight", "self_attention.dense.weight",
        "self_attention.dense.bias", "mlp.gate_proj.weight", "mlp.up_proj.weight",
        "mlp.down_proj.weight", "mlp.down_proj.bias"}) {
    tele.insert(std::string("transformer.h.{}.") + p);
  }
  expect_parameters("telechat2", tele);
}

TEST(Emit, FirstValuesOfParameters) {
  const Pieces all = emit("telechat2");
  const Piece& layer = all.pieces[1];
  EXPECT_EQ(param(layer, "kv.w")->sizes, (Sizes{2, 2, 8, 48}));
  EXPECT_EQ(param(layer, "q.w")->std, 0.08);
  EXPECT_DOUBLE_EQ(param(layer, "o.w")->std, 0.08 / std::sqrt(8.0));
  EXPECT_DOUBLE_EQ(param(layer, "down.w")->std, 0.08 / std::sqrt(8.0));
  EXPECT_EQ(param(layer, "o.b")->init, Init::zeros);
  EXPECT_EQ(param(layer, "xn1.w")->init, Init::ones);
  EXPECT_EQ(param(all.pieces[2], "head.w")->published, "lm_head.weight");
  EXPECT_EQ(param(all.pieces[2], "xf.w")->published, "transformer.ln_f.weight");
}

TEST(Emit, OptimizerDecaysMatricesOnly) {
  const Pieces all =
      emit_model(config_of("llama_gqa"), kRows, kSequence, DType::f64, {.weight_decay = 0.3});
  const Piece& layer = all.pieces[1];
  EXPECT_EQ(layer.settle.outputs.size(), layer.params.size());
  EXPECT_EQ(names(layer, layer.settle.outputs)[1], layer.params[1].name + "/g");
  int updates = 0;
  for (const Op& op : layer.update.ops) {
    if (op.row != Row::adamw) continue;
    ++updates;
    EXPECT_EQ(op.attrs.decay, op.out_labels[0].size() >= 2 ? 0.3 : 0);
    EXPECT_EQ(layer.graph[op.ins[4]].name, "factor");
    EXPECT_EQ(layer.graph[op.ins[4]].dtype, DType::f64);
    EXPECT_EQ(layer.graph[op.outs[1]].dtype, DType::f64);
  }
  EXPECT_EQ(updates, static_cast<int>(layer.params.size()));
  EXPECT_EQ(layer.square.ops.back().attrs.state, "s:norm");
}

TEST(Emit, ATiedWeightHasOneUpdate) {
  const Pieces all = emit("llama_tied_llama3rope");
  ASSERT_EQ(all.tied, 3);
  const Piece &emb = all.pieces[0], &head = all.pieces[2], &tied = all.pieces[3];
  EXPECT_TRUE(emb.settle.ops.empty() && emb.square.ops.empty() && emb.update.ops.empty());
  EXPECT_FALSE(param(emb, "emb.w")->tied);
  EXPECT_TRUE(param(head, "emb.w")->tied);
  EXPECT_EQ(param(head, "emb.w")->published, "model.embed_tokens.weight");
  EXPECT_EQ(names(head, head.settle.outputs), std::vector<std::string>{"xf.w/g"});
  EXPECT_EQ(names(tied, tied.settle.outputs), std::vector<std::string>{"emb.w/g0"});
  EXPECT_EQ(names(tied, tied.settle_other.outputs), std::vector<std::string>{"emb.w/g1"});
  EXPECT_EQ(names(tied, tied.sum.outputs), std::vector<std::string>{"emb.w/g"});
  EXPECT_EQ(tied.update.ops.back().attrs.state, "v:emb.w");
}

TEST(Emit, FinishSettlesNormAndLoss) {
  const Pieces all =
      emit_model(config_of("llama_gqa"), kRows, kSequence, DType::f32, {.clip_norm = 2.5});
  const Piece& finish = all.pieces[all.finish];
  EXPECT_EQ(names(finish, finish.update.outputs),
            (std::vector<std::string>{"factor", "norm", "loss"}));
  for (int o : finish.update.outputs) EXPECT_EQ(finish.graph[o].dtype, DType::f64);
  EXPECT_EQ(finish.graph[finish.graph.at("norm.sum")].dtype, DType::exact);
  EXPECT_EQ(finish.graph[finish.graph.at("loss.sum")].dtype, DType::exact);
  EXPECT_EQ(finish.update.ops[1].attrs.max, 2.5);
}

}  // namespace
}  // namespace myriad
