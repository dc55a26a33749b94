// Emits attention with rotary positions and grouped key/value heads, for all families but GPT-2,
// which uses emit_attend only.
//
// Query heads are laid out as `g` groups of `r` heads, one group for each key/value head. As the
// group is a label that queries, keys, values and outputs share, keys are never repeated for the
// heads that use them, and sharding `g` keeps a key/value head with its queries. Training and
// generation share this code: with a cache, new keys and values are placed into it and attention
// reads the cache, whose entries carry the position and the document by which attention decides
// what a query may see. Labels: b row, s token, t key's token, h width of a key, u width of a
// value, d hidden. Read emit_parts.h first.

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/emit_parts.h"
#include "model/rope.h"

namespace myriad {

namespace {

struct KeyValue {
  int k, v;  // bsgh
};

int slice_part(Builder& b, int kv, int64_t part) {
  return b.op1(Row::slice, {kv}, "bsgih->bsgyh",
               {.names = {},
                .sizes = {"y", {1}},
                .attrs = {.label = 'i', .to = 'y', .lo = part},
                .dtypes = {}});
}

// TeleChat2 keeps keys and values in one matrix: for each kv head the key's rows come first, then
// the value's.
KeyValue fused_key_value(Emitter& e, int xn) {
  const ModelConfig& c = e.config;
  const int w = e.matrix("kv.w", "gihd", {c.kv_heads, 2, c.head_dim, c.hidden},
                         e.in_layer("self_attention.key_value.weight"));
  const int kv = e.b.contract("bsd,gihd->bsgih", {xn, w}, "kv");
  const int k = e.b.contract("bsgyh->bsgh", {slice_part(e.b, kv, 0)}, "k");
  const int v = e.b.contract("bsgyh->bsgh", {slice_part(e.b, kv, 1)}, "v");
  return {k, v};
}

KeyValue separate_key_value(Emitter& e, int xn) {
  const ModelConfig& c = e.config;
  const Sizes sizes = {c.kv_heads, c.head_dim, c.hidden};
  const int wk = e.matrix("k.w", "ghd", sizes, e.in_layer("self_attn.k_proj.weight"));
  const int k = e.b.contract("bsd,ghd->bsgh", {xn, wk}, "k");
  const int wv = e.matrix("v.w", "ghd", sizes, e.in_layer("self_attn.v_proj.weight"));
  const int v = e.b.contract("bsd,ghd->bsgh", {xn, wv}, "v");
  return {k, v};
}

// Rotates q (bsgrh) and k (bsgh) by their positions.
std::pair<int, int> turn(Emitter& e, int q, int k) {
  RopeTable table = rope_table(e.config.rope, e.config.head_dim,
                               e.cache.tokens > 0 ? e.cache.context : e.sequence);
  const Attrs attrs{
      .frequencies = std::make_shared<const std::vector<double>>(std::move(table.frequencies)),
      .mscale = table.mscale,
      .style = RopeStyle::half};
  const int pos = e.tokens("pos");
  const int qr = e.b.op1(Row::rope, {q, pos}, "bsgrh,bs->bsgrh",
                         {.names = {"qr"}, .sizes = {}, .attrs = attrs, .dtypes = {}});
  const int kr = e.b.op1(Row::rope, {k, pos}, "bsgh,bs->bsgh",
                         {.names = {"kr"}, .sizes = {}, .attrs = attrs, .dtypes = {}});
  return {qr, kr};
}

// Places x in the cache `name`, and returns the cache with x in it.
int cached(Emitter& e, int x, const char* name) {
  const Sizes& sizes = e.b.graph()[x].sizes;
  const StateName state{StateKind::cache, name};
  const int old = e.b.read(state, "btgh", {e.rows, e.cache.tokens, sizes[2], sizes[3]},
                           e.b.graph().activation, std::string(name) + ".before");
  const int now = e.b.op1(Row::place_rows, {old, x, e.tokens("cache.slot")}, "btgh,bsgh,bs->btgh",
                          e.named(std::string(name) + ".cache"));
  e.b.write(Row::write, now, state);
  return now;
}

}  // namespace

int emit_attend(Emitter& e, int q, int k, int v) {
  const int pos = e.tokens("pos"), doc = e.tokens("doc");
  int key_pos = pos, key_doc = doc;
  if (e.cache.tokens > 0) {
    k = cached(e, k, "k");
    v = cached(e, v, "v");
    key_pos = e.places("cache.pos");
    key_doc = e.places("cache.doc");
  }
  const int ins[] = {q, k, v, pos, key_pos, doc, key_doc};
  const double scale = 1 / std::sqrt(static_cast<double>(e.config.head_dim));
  return e.b.op(Row::attention, ins, "bsgrh,btgh,btgu,bs,bt,bs,bt->bsgru;bsgr",
                {.names = {"o", "lse"},
                 .sizes = {},
                 .attrs = {.scale = scale},
                 .dtypes = {e.b.graph().activation, e.b.graph().real}})[0];
}

int emit_attention(Emitter& e, int x) {
  const ModelConfig& c = e.config;
  const bool tele = e.telechat();
  const int64_t r = c.heads / c.kv_heads;
  const int xn = e.norm(x, "xn1", e.in_layer("input_layernorm.weight"));
  const int wq =
      e.matrix("q.w", "grhd", {c.kv_heads, r, c.head_dim, c.hidden},
               e.in_layer(tele ? "self_attention.query.weight" : "self_attn.q_proj.weight"));
  int q = e.b.contract("bsd,grhd->bsgrh", {xn, wq}, "q");
  KeyValue kv = tele ? fused_key_value(e, xn) : separate_key_value(e, xn);
  if (c.family == Family::qwen3 || c.family == Family::qwen3_moe) {
    q = e.norm(q, "qn", e.in_layer("self_attn.q_norm.weight"));
    kv.k = e.norm(kv.k, "kn", e.in_layer("self_attn.k_norm.weight"));
  }
  const auto [qr, kr] = turn(e, q, kv.k);
  const int o = emit_attend(e, qr, kr, kv.v);
  const int wo =
      e.matrix("o.w", "dgru", {c.hidden, c.kv_heads, r, c.head_dim},
               e.in_layer(tele ? "self_attention.dense.weight" : "self_attn.o_proj.weight"),
               e.residual_scale());
  std::vector<int> terms = {x, e.b.contract("bsgru,dgru->bsd", {o, wo}, "ao")};
  if (tele)
    terms.push_back(e.bias("o.b", "d", {c.hidden}, e.in_layer("self_attention.dense.bias")));
  return e.b.add(terms, "x1");
}

}  // namespace myriad
