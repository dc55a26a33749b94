// Builds the pieces of a model: the embedding, a dense layer, an expert layer and the head.
//
// Layers that compute the same thing share one piece, and `units` lists which piece each layer
// uses, so the size of the emitted code does not grow with the number of layers. The bodies know
// nothing of parallelism; what makes them easy to shard is their form. A norm takes its sum of
// squares as a contraction, and the loss uses only reductions over the vocabulary, so each can be
// computed from shards. Read model/emit.h for the inputs and outputs, then ir/pieces.h and
// model/emit_parts.h; the inside of a layer is in attention.cc, mlp.cc, moe.cc and gpt2.cc, the
// optimizer in optimizer.cc.
#include "model/emit.h"

#include <cmath>

#include "base/error.h"
#include "model/emit_parts.h"

namespace myriad {

Emitter::Emitter(Piece& piece, const ModelConfig& config, int64_t rows, int64_t sequence,
                 const CacheShape& cache)
    : b(piece.graph, piece.forward),
      config(config),
      rows(rows),
      sequence(sequence),
      cache(cache),
      piece_(piece) {}

// Where there is a cast, it gets the name of the parameter. Rules that name a weight then mean the
// value that is computed with, so that collectives move it after it was made narrower.
int Emitter::weight(Param param, std::optional<DType> used_as) {
  const DType type = used_as.value_or(piece_.graph.activation);
  const bool as_it_is = type == piece_.graph.real;
  const int v = b.read(StateName{StateKind::parameter, param.name}, param.labels, param.sizes,
                       piece_.graph.real, as_it_is ? param.name : "");
  const int w = b.cast(v, type, as_it_is ? "" : param.name);
  piece_.params.push_back(std::move(param));
  return w;
}

int Emitter::matrix(std::string name, std::string labels, Sizes sizes, std::string published,
                    double scale, std::optional<DType> used_as) {
  return weight({.name = std::move(name),
                 .labels = std::move(labels),
                 .sizes = std::move(sizes),
                 .published = std::move(published),
                 .init = Init::normal,
                 .std = config.initializer_range * scale},
                used_as);
}

int Emitter::bias(const std::string& name, std::string labels, Sizes sizes, std::string published) {
  const std::string rule = labels + "->bs" + labels;
  const int w = weight({.name = name,
                        .labels = std::move(labels),
                        .sizes = std::move(sizes),
                        .published = std::move(published),
                        .init = Init::zeros});
  return b.op1(
      Row::broadcast, {w}, rule,
      {.names = {name + ".spread"}, .sizes = {"bs", {rows, sequence}}, .attrs = {}, .dtypes = {}});
}

int Emitter::norm(int x, std::string name, std::string published) {
  const std::string all = b.graph()[x].labels, rest = all.substr(0, all.size() - 1);
  const std::string last = all.substr(all.size() - 1);
  const int64_t n = b.graph()[x].sizes.back();
  const int w = weight({.name = name + ".w",
                        .labels = last,
                        .sizes = {n},
                        .published = std::move(published),
                        .init = Init::ones});
  const int squares = b.contract(all + "," + all + "->" + rest, {x, x}, "", 1, 0, b.graph().real);
  const int r = b.elementwise(Row::rsqrt, {squares}, "",
                              {.a = 1 / static_cast<double>(n), .b = config.norm_eps});
  return b.contract(all + "," + rest + "," + last + "->" + all, {x, r, w}, std::move(name));
}

int Emitter::tokens(std::string name) {
  return b.input(std::move(name), "bs", {rows, sequence}, DType::i32);
}

int Emitter::places(std::string name) {
  return b.input(std::move(name), "bt", {rows, cache.tokens}, DType::i32);
}

int Emitter::hidden(std::string name) {
  return b.input(std::move(name), "bsd", {rows, sequence, config.hidden}, piece_.graph.activation);
}

int Emitter::scalar(std::string name) {
  return b.input(std::move(name), "", {}, piece_.graph.real);
}

Builder::Options Emitter::named(std::string name) const {
  return {.names = {std::move(name)}, .sizes = {}, .attrs = {}, .dtypes = {}};
}

Builder::Options Emitter::real(std::string name) const {
  return {.names = {std::move(name)}, .sizes = {}, .attrs = {}, .dtypes = {piece_.graph.real}};
}

int Emitter::exact_sum(int x, std::string name, StateName state) {
  Builder::Options options = named(std::move(name));
  options.dtypes = {DType::exact};
  const int sum = b.op1(Row::sum_exact, {x}, b.graph()[x].labels + "->", std::move(options));
  b.write(Row::accum, sum, std::move(state));
  return sum;
}

void Emitter::seed(std::string name, std::string coefficient) {
  scalar(coefficient);
  piece_.seeds.emplace_back(std::move(name), std::move(coefficient));
}

bool Emitter::telechat() const {
  return config.family == Family::telechat || config.family == Family::telechat_moe;
}

std::string Emitter::in_layer(std::string_view published) const {
  return fmt::format("{}.{{}}.{}", telechat() || gpt2() ? "transformer.h" : "model.layers",
                     published);
}

double Emitter::residual_scale() const {
  return 1 / std::sqrt(2 * static_cast<double>(config.layers));
}

namespace {

struct Sizing {
  int64_t rows, sequence;
  DType dtype;
  CacheShape cache;
};

Piece empty_piece(const char* name, DType dtype) {
  Piece p{.name = name};
  p.graph.real = state_type(dtype);
  p.graph.activation = dtype;
  return p;
}

Piece embedding_piece(const ModelConfig& c, const Sizing& size) {
  Piece p = empty_piece("emb", size.dtype);
  Emitter e(p, c, size.rows, size.sequence, size.cache);
  if (e.gpt2()) {
    p.forward.outputs = {emit_gpt2_embedding(e)};
    return p;
  }
  const bool tele = e.telechat();
  const int w = e.matrix("emb.w", "vd", {c.vocabulary, c.hidden},
                         tele ? "transformer.word_embeddings.weight" : "model.embed_tokens.weight");
  const int y = e.b.op1(Row::gather_rows, {w, e.tokens("ids")}, "vd,bs->bsd",
                        {.names = {"y"}, .sizes = {}, .attrs = {}, .dtypes = {}});
  p.forward.outputs = {y};
  return p;
}

Piece layer_piece(const ModelConfig& c, const Sizing& size) {
  Piece p = empty_piece("layer", size.dtype);
  Emitter e(p, c, size.rows, size.sequence, size.cache);
  const int x = e.hidden("x");
  p.forward.outputs = {e.gpt2() ? emit_gpt2_mlp(e, emit_gpt2_attention(e, x))
                                : emit_mlp(e, emit_attention(e, x))};
  return p;
}

Piece expert_piece(const ModelConfig& c, const Sizing& size) {
  Piece p = empty_piece("moe", size.dtype);
  p.loop_part = 1;
  Emitter e(p, c, size.rows, size.sequence, size.cache);
  const int x1 = emit_attention(e, e.hidden("x"));
  p.forward.outputs = {emit_experts(e, x1)};
  return p;
}

// Cross-entropy, -ln softmax(z)[target] = ln sum exp(z - m) + m - z[target], summed over the valid
// targets. Every op can work on a part of the vocabulary, so the logits need never be whole.
void emit_loss(Emitter& e, int logits) {
  Builder& b = e.b;
  const int targets = e.tokens("targets");
  const int m = b.op1(Row::max_stop, {logits}, "bsv->bs", e.real("m"));
  const int s = b.op1(Row::sum_exp, {logits, m}, "bsv,bs->bs", e.real("s"));
  const int lse = b.add({b.elementwise(Row::log, {s}), m}, "lse");
  const int t = b.op1(Row::pick, {logits, targets}, "bsv,bs->bs", e.real("t"));
  const int nll = b.add({lse, b.contract("bs->bs", {t}, "", -1)}, "nll");
  const int ok = b.elementwise(Row::valid, {targets}, "ok");
  Builder::Options sum = e.named("loss");
  sum.attrs.stop = 1u << 1;  // no gradient for ok
  sum.dtypes = {DType::exact};
  b.write(Row::accum, b.op1(Row::sum_exact, {nll, ok}, "bs,bs->", std::move(sum)),
          StateName{StateKind::scalar, "loss"});
  e.scalar("inv_n");
}

Piece head_piece(const ModelConfig& c, const Sizing& size) {
  Piece p = empty_piece("head", size.dtype);
  Emitter e(p, c, size.rows, size.sequence, size.cache);
  const bool tele = e.telechat();
  const int x = e.hidden("x");
  const int xf = e.gpt2() ? e.layer_norm(x, "xf", "transformer.ln_f")
                          : e.norm(x, "xf", tele ? "transformer.ln_f.weight" : "model.norm.weight");
  Param w{.name = c.tied ? "emb.w" : "head.w",
          .labels = "vd",
          .sizes = {c.vocabulary, c.hidden},
          .published = "lm_head.weight",
          .init = Init::normal,
          .std = c.initializer_range,
          .tied = c.tied};
  if (c.tied) {
    w.published = e.gpt2() ? "transformer.wte.weight"
                  : tele   ? "transformer.word_embeddings.weight"
                           : "model.embed_tokens.weight";
  }
  const int logits = e.b.contract("bsd,vd->bsv", {xf, e.weight(std::move(w))}, "logits");
  if (size.cache.tokens == 0) emit_loss(e, logits);
  return p;
}

}  // namespace

Pieces emit_model(const ModelConfig& config, int64_t rows, int64_t sequence, DType dtype,
                  const OptimizerConfig& optimizer, int64_t step_rows, const CacheShape& cache) {
  if (cache.tokens > 0 && config.moe.routing != RoutingConfig{}) {
    ModelConfig plain = config;
    plain.moe.routing = {};
    return emit_model(plain, rows, sequence, dtype, optimizer, step_rows, cache);
  }
  CHECK(rows >= 1 && sequence >= 1, "{} rows of {} tokens", rows, sequence);
  CHECK(is_real(dtype), "dtype is {}", name_of(dtype));
  const DType real = state_type(dtype);
  const Sizing size{rows, sequence, dtype, cache};
  Pieces all{.rows = rows, .sequence = sequence};
  const auto add = [&](Piece p) {
    all.pieces.push_back(std::move(p));
    return static_cast<int>(all.pieces.size()) - 1;
  };
  const int64_t experts = config.expert_layers();
  const int first = add(embedding_piece(config, size));
  const int dense = experts < config.layers ? add(layer_piece(config, size)) : -1;
  const int sparse = experts > 0 ? add(expert_piece(config, size)) : -1;
  const int last = add(head_piece(config, size));
  all.units = {first};
  for (int64_t i = 0; i < config.layers; ++i) {
    all.units.push_back(config.has_experts(i) ? sparse : dense);
  }
  all.units.push_back(last);
  Balance balance{.rate = config.moe.routing.bias_update_rate};
  if (experts > 0) {
    const double tokens = static_cast<double>((step_rows > 0 ? step_rows : rows) * sequence);
    balance.mean_count =
        tokens * static_cast<double>(config.moe.top_k) / static_cast<double>(config.moe.experts);
  }
  for (Piece& p : all.pieces) {
    emit_optimizer(p, optimizer, balance, config.tied && &p == &all.pieces[first]);
  }
  if (config.tied) {
    all.tied = static_cast<int>(all.pieces.size());
    all.pieces.push_back(tied_piece(all.pieces[0].params[0], real, optimizer));
  }
  all.finish = static_cast<int>(all.pieces.size());
  all.pieces.push_back(finish_piece(real, optimizer, config.moe.routing));
  return all;
}

}  // namespace myriad
