// GPT-2 (Radford et al. 2019), as published: weights lie [in, out], q, k and v in one.
#include <string>
#include <vector>

#include "base/error.h"
#include "model/emit_parts.h"

namespace myriad {

int Emitter::layer_norm(int x, const std::string& name, const std::string& published) {
  const int64_t d = config.hidden;
  const double n = static_cast<double>(d);
  const int w = weight({.name = name + ".w",
                        .labels = "d",
                        .sizes = {d},
                        .published = published + ".weight",
                        .init = Init::ones});
  const int minus_mean = b.contract("bsd->bs", {x}, "", -1 / n, 0, b.graph().real);
  const int spread = b.op1(Row::broadcast, {minus_mean}, "bs->bsd",
                           {.names = {name + ".mean"},
                            .sizes = {"d", {d}},
                            .attrs = {},
                            .dtypes = {b.graph()[x].dtype}});
  const int centred = b.add({x, spread}, name + ".c");
  const int squares = b.contract("bsd,bsd->bs", {centred, centred}, "", 1, 0, b.graph().real);
  const int r = b.elementwise(Row::rsqrt, {squares}, "", {.a = 1 / n, .b = config.norm_eps});
  const int scaled = b.contract("bsd,bs,d->bsd", {centred, r, w}, name + ".s");
  return b.add({scaled, bias(name + ".b", "d", {d}, published + ".bias")}, name);
}

namespace {

int part_of(Builder& b, int qkv, int64_t part, const char* to, const char* name) {
  const int one = b.op1(Row::slice, {qkv}, "bsigrh->bsygrh",
                        {.names = {},
                         .sizes = {"y", {1}},
                         .attrs = {.label = 'i', .to = 'y', .lo = part},
                         .dtypes = {}});
  return b.contract(std::string("bsygrh->") + to, {one}, name);
}

}  // namespace

int emit_gpt2_attention(Emitter& e, int x) {
  const ModelConfig& c = e.config;
  Builder& b = e.b;
  const int64_t d = c.hidden, g = c.heads, h = c.head_dim;
  const int xn = e.layer_norm(x, "xn1", e.in_layer("ln_1"));
  const int w = e.matrix("qkv.w", "digrh", {d, 3, g, 1, h}, e.in_layer("attn.c_attn.weight"));
  const int bias = e.bias("qkv.b", "igrh", {3, g, 1, h}, e.in_layer("attn.c_attn.bias"));
  const int qkv = b.add({b.contract("bsd,digrh->bsigrh", {xn, w}, "qkv0"), bias}, "qkv");
  const int q = part_of(b, qkv, 0, "bsgrh", "q");  // a head of keys for each of queries: r is 1
  const int k = part_of(b, qkv, 1, "bsgh", "k"), v = part_of(b, qkv, 2, "bsgh", "v");
  const int o = emit_attend(e, q, k, v);
  const int wo =
      e.matrix("o.w", "grud", {g, 1, h, d}, e.in_layer("attn.c_proj.weight"), e.residual_scale());
  const int out = b.contract("bsgru,grud->bsd", {o, wo}, "ao");
  return b.add({x, out, e.bias("o.b", "d", {d}, e.in_layer("attn.c_proj.bias"))}, "x1");
}

int emit_gpt2_mlp(Emitter& e, int x1) {
  const int64_t d = e.config.hidden, f = e.config.ffn;
  Builder& b = e.b;
  const int xn = e.layer_norm(x1, "xn2", e.in_layer("ln_2"));
  const int up = e.matrix("up.w", "df", {d, f}, e.in_layer("mlp.c_fc.weight"));
  const int bias = e.bias("up.b", "f", {f}, e.in_layer("mlp.c_fc.bias"));
  const int u = b.add({b.contract("bsd,df->bsf", {xn, up}, "u0"), bias}, "u");
  const int a = b.elementwise(Row::gelu, {u}, "a");
  const int down =
      e.matrix("down.w", "fd", {f, d}, e.in_layer("mlp.c_proj.weight"), e.residual_scale());
  const int out = b.contract("bsf,fd->bsd", {a, down}, "mo");
  return b.add({x1, out, e.bias("down.b", "d", {d}, e.in_layer("mlp.c_proj.bias"))}, "y");
}

int emit_gpt2_embedding(Emitter& e) {
  const ModelConfig& c = e.config;
  if (e.sequence > c.positions) {
    throw Error(fmt::format("sequences of {} tokens, but the model has {} learned positions",
                            e.sequence, c.positions),
                "model", fmt::format("n_positions: {}", e.sequence));
  }
  const auto look_up = [&](const char* name, int64_t entries, const char* published,
                           const char* index) {
    const int w = e.matrix(std::string(name) + ".w", "vd", {entries, c.hidden}, published);
    return e.b.op1(Row::gather_rows, {w, e.tokens(index)}, "vd,bs->bsd", e.named(name));
  };
  const int token = look_up("emb", c.vocabulary, "transformer.wte.weight", "ids");
  const int position = look_up("pos_emb", c.positions, "transformer.wpe.weight", "pos");
  return e.b.add({token, position}, "y");
}

}  // namespace myriad
