// For tests of passes: a model small enough to read. Embedding; layers y = x + W2 silu(W1 (n x));
// head with a squared loss. Its optimizer is plain descent by AdamW's row.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/pieces.h"

namespace myriad {

struct Toy {
  int layers = 2;
  int64_t sequence = 3, hidden = 6, ffn = 10, vocabulary = 7;
  DType real = DType::f32;
};

inline int toy_weight(Piece& p, Builder& b, std::string name, std::string labels, Sizes sizes) {
  p.params.push_back(
      {.name = name, .labels = labels, .sizes = sizes, .published = p.name + ".{}." + name});
  return b.read("p:" + name, labels, sizes, p.graph.real, name);
}

inline void toy_optimizer(Piece& p) {
  Builder settle(p.graph, p.settle), square(p.graph, p.square), update(p.graph, p.update);
  for (const Param& w : p.params) {
    const std::string& l = w.labels;
    const auto read = [&](Builder& b, const char* kind, std::string name = "") {
      return b.read(kind + w.name, l, w.sizes, p.graph.real, std::move(name));
    };
    const int g = read(settle, "g:", w.name + "/g");
    p.graph[g].parameter = w.name;
    p.settle.outputs.push_back(g);
    const int squares =
        square.op1(Row::sum_exact, {g, g}, l + "," + l + "->",
                   {.names = {}, .sizes = {}, .attrs = {}, .dtypes = {DType::exact}});
    square.write(Row::accum, squares, "s:norm");
    std::vector<int> ins = {read(update, "p:"), g, read(update, "m:"), read(update, "v:")};
    for (const char* scalar : {"factor", "lr", "left1", "left2"})
      ins.push_back(update.input(scalar, "", {}, DType::f64));
    const auto next =
        update.op(Row::adamw, ins, fmt::format("{0},{0},{0},{0},,,,->{0};{0};{0}", l), {});
    update.write(Row::write, next[0], "p:" + w.name);
    update.write(Row::write, next[1], "m:" + w.name);
    update.write(Row::write, next[2], "v:" + w.name);
  }
}

inline Piece toy_piece(const char* name, const Toy& toy) {
  Piece p{.name = name};
  p.graph.real = toy.real;
  for (Body* b : {&p.settle, &p.square, &p.update})
    b->name = std::string(name) + (b == &p.settle   ? ".settle"
                                   : b == &p.square ? ".square"
                                                    : ".update");
  return p;
}

inline Piece toy_embedding(const Toy& t, int64_t rows) {
  Piece p = toy_piece("emb", t);
  Builder b(p.graph, p.forward);
  const int w = toy_weight(p, b, "emb.w", "vd", {t.vocabulary, t.hidden});
  const int ids = b.input("ids", "bs", {rows, t.sequence}, DType::i32);
  p.forward.outputs = {b.op1(Row::gather_rows, {w, ids}, "vd,bs->bsd",
                             {.names = {"y"}, .sizes = {}, .attrs = {}, .dtypes = {}})};
  return p;
}

inline Piece toy_layer(const Toy& t, int64_t rows) {
  Piece p = toy_piece("layer", t);
  Builder b(p.graph, p.forward);
  const int x = b.input("x", "bsd", {rows, t.sequence, t.hidden}, t.real);
  const int xn = b.contract("bsd,d->bsd", {x, toy_weight(p, b, "n.w", "d", {t.hidden})}, "xn");
  const int u =
      b.contract("bsd,fd->bsf", {xn, toy_weight(p, b, "up.w", "fd", {t.ffn, t.hidden})}, "u");
  const int a = b.elementwise(Row::silu, {u}, "a");
  const int o =
      b.contract("bsf,df->bsd", {a, toy_weight(p, b, "down.w", "df", {t.hidden, t.ffn})}, "o");
  p.forward.outputs = {b.add({x, o}, "y")};
  return p;
}

inline Piece toy_head(const Toy& t, int64_t rows) {
  Piece p = toy_piece("head", t);
  Builder b(p.graph, p.forward);
  const int x = b.input("x", "bsd", {rows, t.sequence, t.hidden}, t.real);
  const int z = b.contract(
      "bsd,vd->bsv", {x, toy_weight(p, b, "head.w", "vd", {t.vocabulary, t.hidden})}, "logits");
  const int loss = b.op1(Row::sum_exact, {z, z}, "bsv,bsv->",
                         {.names = {"loss"}, .sizes = {}, .attrs = {}, .dtypes = {DType::exact}});
  b.write(Row::accum, loss, "s:loss");
  b.input("inv_n", "", {}, t.real);
  return p;
}

inline Piece toy_finish(const Toy& t) {
  Piece p = toy_piece("finish", t);
  Builder b(p.graph, p.update);
  const int ins[] = {b.read("s:norm", "", {}, DType::exact, "norm.sum"),
                     b.input("live", "", {}, DType::f64)};
  p.update.outputs = b.op(
      Row::clip, ins, ",->;",
      {.names = {"factor", "norm"}, .sizes = {}, .attrs = {}, .dtypes = {DType::f64, DType::f64}});
  const int losses = b.read("s:loss", "", {}, DType::exact, "loss.sum");
  p.update.outputs.push_back(
      b.op1(Row::settle_exact, {losses}, "->",
            {.names = {"loss"}, .sizes = {}, .attrs = {}, .dtypes = {DType::f64}}));
  return p;
}

inline Pieces toy_model(const Toy& toy, int64_t rows) {
  Pieces all{.rows = rows, .sequence = toy.sequence};
  all.pieces = {toy_embedding(toy, rows), toy_layer(toy, rows), toy_head(toy, rows)};
  for (Piece& p : all.pieces) toy_optimizer(p);
  all.units.assign(static_cast<size_t>(toy.layers) + 2, 1);
  all.units.front() = 0;
  all.units.back() = 2;
  all.finish = 3;
  all.pieces.push_back(toy_finish(toy));
  return all;
}

}  // namespace myriad
