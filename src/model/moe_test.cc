#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "ir/rows.h"
#include "model/emit.h"

namespace myriad {
namespace {

using nlohmann::json;

constexpr int64_t kRows = 2, kSequence = 24;

std::string folder(const std::string& name) {
  return std::string(MYRIAD_SOURCE) + "/tests/golden/" + name;
}

ModelConfig config_of(const std::string& name) {
  std::ifstream config(folder(name) + "/config.json"), expected(folder(name) + "/expected.json");
  ModelConfig c = read_config(json::parse(config), name);
  apply_routing(c, json::parse(expected)["routing"], name);
  return c;
}

// Sigmoid scores with correction bias and groups, a shared expert, two dense layers.
ModelConfig grouped() {
  ModelConfig c = config_of("qwen3_moe");
  c.family = Family::telechat_moe;
  c.rope = {.kind = RopeKind::telechat, .base_seqlen = 8, .training_seqlen = 8};
  c.moe = {.experts = 8,
           .top_k = 3,
           .expert_ffn = 40,
           .shared_experts = 2,
           .dense_layers = {0, 2},
           .scores = Scores::sigmoid,
           .scaling = 2.5,
           .correction_bias = true,
           .groups = 4,
           .kept_groups = 2,
           .routing = {.bias_update_rate = 0.01}};
  return c;
}

Pieces emit(const ModelConfig& c) { return emit_model(c, kRows, kSequence, DType::f32, {}, 6); }

const Piece& piece(const Pieces& all, const std::string& name) {
  const auto at = std::find_if(all.pieces.begin(), all.pieces.end(),
                               [&](const Piece& p) { return p.name == name; });
  CHECK(at != all.pieces.end(), "no piece {}", name);
  return *at;
}

// The op of `body` that makes a value.
const Op& maker(const Piece& p, const Body& body, const std::string& value) {
  const int v = p.graph.at(value);
  for (const Op& op : body.ops) {
    if (std::find(op.outs.begin(), op.outs.end(), v) != op.outs.end()) return op;
  }
  CHECK(false, "nothing makes {}", value);
}

const Op* of_state(const Body& body, Row row, const std::string& state) {
  for (const Op& op : body.ops) {
    if (op.row == row && op.attrs.state == state) return &op;
  }
  return nullptr;
}

struct Made {
  const char *name, *labels;
  Row row;
  int part;
};

TEST(Moe, LayerHasTheNamedValues) {
  const Pieces all = emit(config_of("mixtral_capacity"));
  const Piece& moe = piece(all, "moe");
  EXPECT_EQ(moe.loop_part, 1);
  for (const Made& m : std::initializer_list<Made>{
           {"x1", "bsd", Row::add, 0},        {"xn2", "bsd", Row::contract, 0},
           {"rz", "bsx", Row::contract, 0},   {"rp", "bsx", Row::softmax, 0},
           {"idx", "bsj", Row::topk, 0},      {"rk", "bsj", Row::pick, 0},
           {"rw", "bsj", Row::contract, 0},   {"fit", "bsj", Row::fits, 0},
           {"rwf", "bsj", Row::contract, 0},  {"cnt", "x", Row::count, 0},
           {"psum", "x", Row::contract, 0},   {"aux", "", Row::sum_exact, 0},
           {"rlse", "bs", Row::add, 0},       {"zloss", "", Row::sum_exact, 0},
           {"rounds", "", Row::rounds, 0},    {"idr", "bsj", Row::window, 1},
           {"ex", "ebsd", Row::dispatch, 1},  {"ew", "ebs", Row::dispatch_w, 1},
           {"eg.w", "efd", Row::read, 1},     {"eg", "ebsf", Row::contract, 1},
           {"eu", "ebsf", Row::contract, 1},  {"ea", "ebsf", Row::contract, 1},
           {"eaw", "ebsf", Row::contract, 1}, {"ed.w", "edf", Row::read, 1},
           {"ey", "ebsd", Row::contract, 1},  {"m", "bsd", Row::combine, 1},
           {"y", "bsd", Row::add, 2}}) {
    const Op& op = maker(moe, moe.forward, m.name);
    EXPECT_EQ(op.row, m.row) << m.name;
    EXPECT_EQ(op.part, m.part) << m.name;
    EXPECT_EQ(moe.graph[moe.graph.at(m.name)].labels, m.labels);
  }
  for (const char* sparse : {"ex", "ew", "eg", "eu", "ea", "eaw", "ey"}) {
    const Value& v = moe.graph[moe.graph.at(sparse)];
    EXPECT_EQ(v.routing, moe.graph.at("idr")) << sparse;
    EXPECT_EQ(v.density, 2.0 / 8) << sparse;
  }
  for (const char* whole : {"idx", "idr", "rounds"}) {
    EXPECT_EQ(moe.graph[moe.graph.at(whole)].dtype, DType::i32) << whole;
  }
  EXPECT_EQ(moe.graph[moe.graph.at("ex")].sizes, (Sizes{8, kRows, kSequence, 48}));
  EXPECT_EQ(moe.seeds, (std::vector<std::pair<std::string, std::string>>{{"aux", "balance_coef"},
                                                                         {"zloss", "z_coef"}}));
  EXPECT_EQ(maker(moe, moe.forward, "idr").attrs.experts, 8);
  EXPECT_TRUE(of_state(moe.forward, Row::accum, "c:counts"));
  EXPECT_TRUE(of_state(moe.forward, Row::accum, "s:aux"));
  EXPECT_TRUE(of_state(moe.forward, Row::accum, "s:zloss"));
}

// Parts run one after the other: no op reads what a later part makes.
TEST(Moe, PartsAreInOrder) {
  for (const ModelConfig& c : {config_of("mixtral_capacity"), grouped()}) {
    const Pieces all = emit(c);
    int part = 0;
    for (const Op& op : piece(all, "moe").forward.ops) {
      EXPECT_GE(op.part, part);
      part = op.part;
    }
    EXPECT_EQ(part, 2);
  }
}

TEST(Moe, CapacityIsRoundedUp) {
  const auto capacity = [](double factor, int64_t rows) {
    ModelConfig c = config_of("mixtral");
    c.moe.routing.capacity_factor = factor;
    const Pieces all = emit_model(c, rows, kSequence, DType::f32, {});
    const Piece& moe = piece(all, "moe");
    return maker(moe, moe.forward, "fit").attrs.capacity;
  };
  EXPECT_EQ(capacity(1.0, 4), 24);    // 96 x 2 / 8
  EXPECT_EQ(capacity(1.2, 4), 29);    // 28.8
  EXPECT_EQ(capacity(1.1, 5), 33);    // 33, though 1.1 is a little more in binary
  EXPECT_EQ(capacity(0.01, 1), 1);    // 0.06
  EXPECT_EQ(capacity(1e300, 1), 24);  // all tokens
}

TEST(Moe, DroplessHasNoFit) {
  const Pieces all = emit(config_of("mixtral"));
  const Piece& moe = piece(all, "moe");
  EXPECT_EQ(moe.graph.find("fit"), -1);
  EXPECT_EQ(moe.graph.find("zloss"), -1);
  EXPECT_EQ(moe.seeds.size(), 1u);
  EXPECT_TRUE(of_state(moe.forward, Row::accum, "c:counts"));
}

TEST(Moe, BalanceLossScales) {
  ModelConfig c = config_of("mixtral");
  const auto loss = [&](const Piece& p) {
    for (const Op& op : p.forward.ops) {
      if (!op.ins.empty() && op.out_labels == std::vector<std::string>{""} &&
          p.graph[op.ins.back()].name == "psum")
        return op;
    }
    CHECK(false, "no loss");
  };
  const Pieces batch = emit(c);
  EXPECT_DOUBLE_EQ(loss(piece(batch, "moe")).attrs.scale, 8.0 / (48 * 48));
  EXPECT_EQ(loss(piece(batch, "moe")).attrs.stop, 1u);
  c.moe.routing.scope = BalanceScope::sequence;
  const Pieces rows = emit(c);
  EXPECT_DOUBLE_EQ(loss(piece(rows, "moe")).attrs.scale, 8.0 / (24 * 24 * 2));
  EXPECT_EQ(loss(piece(rows, "moe")).in_labels, (std::vector<std::string>{"bx", "bx"}));
  EXPECT_EQ(maker(piece(rows, "moe"), piece(rows, "moe").forward, "cnt").in_labels[0], "bx");
}

TEST(Moe, UnitsSayWhichLayersAreDense) {
  const Pieces qwen = emit(config_of("qwen3_moe"));
  EXPECT_EQ(qwen.units, (std::vector<int>{0, 1, 2, 2, 2, 3}));
  EXPECT_EQ(qwen.pieces[1].name, "layer");
  EXPECT_EQ(qwen.pieces[1].loop_part, -1);
  const Pieces mixtral = emit(config_of("mixtral"));
  EXPECT_EQ(mixtral.units, (std::vector<int>{0, 1, 1, 1, 1, 2}));
  EXPECT_EQ(mixtral.pieces[1].name, "moe");
  EXPECT_EQ(emit(grouped()).units, (std::vector<int>{0, 1, 2, 1, 2, 3}));
}

TEST(Moe, SigmoidRouterWithBiasGroupsAndSharedExpert) {
  const Pieces all = emit(grouped());
  const Piece& moe = piece(all, "moe");
  const Op& topk = maker(moe, moe.forward, "idx");
  EXPECT_EQ(topk.in_labels, (std::vector<std::string>{"bsx", "x"}));
  EXPECT_EQ(topk.attrs.k, 3);
  EXPECT_EQ(topk.attrs.groups, 4);
  EXPECT_EQ(topk.attrs.kept_groups, 2);
  EXPECT_EQ(maker(moe, moe.forward, "rp").row, Row::sigmoid);
  EXPECT_EQ(maker(moe, moe.forward, "rw").attrs.scale, 2.5);
  const Op& y = maker(moe, moe.forward, "y");
  EXPECT_EQ(moe.graph[y.ins[2]].name, "sh.mo");
  EXPECT_EQ(moe.params[moe.find("sh.up.w")].sizes, (Sizes{80, 48}));
  EXPECT_EQ(moe.params[moe.find("sh.down.w")].published,
            "transformer.h.{}.mlp.shared_experts.down_proj.weight");
  ModelConfig plain = grouped();
  plain.moe.renormalise = false;
  plain.moe.scaling = 1;
  const Pieces weights = emit(plain);
  EXPECT_EQ(piece(weights, "moe").graph.find("rw"), -1);  // the scores themselves
}

TEST(Moe, TheStepMovesTheBias) {
  const Pieces all = emit(grouped());
  const Piece& moe = piece(all, "moe");
  EXPECT_FALSE(moe.params[moe.find("router.bias")].trained);
  EXPECT_EQ(moe.settle.outputs.size(), moe.params.size() - 1);
  const Op* write = of_state(moe.update, Row::write, "p:router.bias");
  ASSERT_TRUE(write);
  EXPECT_FALSE(of_state(moe.update, Row::read, "m:router.bias"));
  EXPECT_TRUE(of_state(moe.update, Row::read, "c:counts"));
  const Op& balance = maker(moe, moe.update, moe.graph[write->ins[0]].name);
  EXPECT_EQ(balance.row, Row::balance);
  EXPECT_EQ(balance.attrs.a, 0.01);
  EXPECT_EQ(balance.attrs.b, 6 * 24 * 3 / 8.0);  // a step of 6 rows
  ModelConfig still = grouped();
  still.moe.routing.bias_update_rate = 0;
  const Pieces frozen = emit(still);
  EXPECT_FALSE(of_state(piece(frozen, "moe").update, Row::write, "p:router.bias"));
}

TEST(Moe, FinishSettlesRouterLosses) {
  const auto outputs = [](const char* name) {
    const Pieces all = emit(config_of(name));
    const Piece& finish = all.pieces[all.finish];
    std::vector<std::string> names;
    for (int o : finish.update.outputs) names.push_back(finish.graph[o].name);
    return names;
  };
  EXPECT_EQ(outputs("mixtral_capacity"),
            (std::vector<std::string>{"factor", "norm", "loss", "aux", "zloss"}));
  EXPECT_EQ(outputs("mixtral"), (std::vector<std::string>{"factor", "norm", "loss", "aux"}));
}

// Names and sizes of a safetensors file, from its header.
std::map<std::string, int64_t> tensors(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  uint64_t n = 0;
  in.read(reinterpret_cast<char*>(&n), sizeof n);
  std::string header(n, ' ');
  in.read(header.data(), static_cast<std::streamsize>(n));
  std::map<std::string, int64_t> out;
  const json entries = json::parse(header);
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") continue;
    int64_t elements = 1;
    for (const json& d : entry["shape"]) elements *= d.get<int64_t>();
    out[name] = elements;
  }
  return out;
}

std::string filled(std::string text, const std::string& hole, int64_t number) {
  const size_t at = text.find(hole);
  if (at != std::string::npos) text.replace(at, hole.size(), std::to_string(number));
  return text;
}

TEST(Moe, ParametersAreThePublishedOnes) {
  for (const char* name : {"mixtral", "qwen3_moe"}) {
    const ModelConfig c = config_of(name);
    const Pieces all = emit(c);
    std::map<std::string, int64_t> have;
    int64_t count = 0;
    for (size_t unit = 0; unit < all.units.size(); ++unit) {
      for (const Param& p : all.pieces[all.units[unit]].params) {
        int64_t n = 1;
        for (int64_t s : p.sizes) n *= s;
        count += n;
        const int64_t entries = p.labels[0] == 'e' ? p.sizes[0] : 1;
        const std::string layer = filled(p.published, "{}", static_cast<int64_t>(unit) - 1);
        for (int64_t i = 0; i < entries; ++i) {
          EXPECT_TRUE(have.emplace(filled(layer, "{e}", i), n / entries).second) << p.published;
        }
      }
    }
    EXPECT_EQ(have, tensors(folder(name) + "/model.safetensors")) << name;
    EXPECT_EQ(count, parameter_count(c)) << name;
  }
  const Pieces all = emit(grouped());
  int64_t count = 0;
  for (int unit : all.units) {
    for (const Param& p : all.pieces[unit].params) {
      int64_t n = 1;
      for (int64_t s : p.sizes) n *= s;
      count += n;
    }
  }
  EXPECT_EQ(count, parameter_count(grouped()));
}

}  // namespace
}  // namespace myriad
