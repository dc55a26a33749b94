// Emits the optimizer: the bodies that settle gradients, sum their squares and update parameters.
//
// A step first settles each gradient, adds its squares to one exact sum, and then computes the
// clipping factor from that sum in the piece "finish"; every update body takes the factor as an
// input. The sum is exact, hence independent of the order of its terms, so the way gradients are
// sharded does not change the bits of the norm. A tied weight has two gradients, one from the
// embedding and one from the head, which may lie on different pipeline stages: its own piece adds
// them before they are squared, since the square of a sum is not the sum of the squares. Read
// ir/pieces.h first, for when each body runs.

#include <string>
#include <vector>

#include "base/error.h"
#include "model/emit_parts.h"

namespace myriad {

namespace {

int read_state(Builder& b, StateKind kind, const Param& p, std::string name = "") {
  return b.read(StateName{kind, p.name}, p.labels, p.sizes, b.graph().real, std::move(name));
}

void name_bodies(Piece& piece) {
  piece.forward.name = piece.name + ".forward";
  piece.settle.name = piece.name + ".settle";
  piece.settle_other.name = piece.name + ".settle_other";
  piece.sum.name = piece.name + ".sum";
  piece.square.name = piece.name + ".square";
  piece.update.name = piece.name + ".update";
}

// Adds the parameter's sum of squared gradients to that of the others.
void emit_square(Piece& piece, const Param& p, int g) {
  Builder b(piece.graph, piece.square);
  const int squares = b.op1(Row::sum_exact, {g, g}, p.labels + "," + p.labels + "->",
                            {.names = {}, .sizes = {}, .attrs = {}, .dtypes = {DType::exact}});
  b.write(Row::accum, squares, StateName{StateKind::scalar, "norm"});
}

void emit_update(Piece& piece, const Param& p, int g, const OptimizerConfig& o) {
  Builder b(piece.graph, piece.update);
  std::vector<int> ins = {read_state(b, StateKind::parameter, p), g,
                          read_state(b, StateKind::exp_avg, p),
                          read_state(b, StateKind::exp_avg_sq, p)};
  for (const char* scalar : {"factor", "lr", "left1", "left2"}) {
    ins.push_back(b.input(scalar, "", {}, DType::f64));
  }
  const std::string& l = p.labels;
  const Attrs attrs{
      .beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps, .decay = p.decays() ? o.weight_decay : 0};
  const std::vector<int> next =
      b.op(Row::adamw, ins, fmt::format("{0},{0},{0},{0},,,,->{0};{0};{0}", l),
           {.names = {}, .sizes = {}, .attrs = attrs, .dtypes = {}});
  b.write(Row::write, next[0], StateName{StateKind::parameter, p.name});
  b.write(Row::write, next[1], StateName{StateKind::exp_avg, p.name});
  b.write(Row::write, next[2], StateName{StateKind::exp_avg_sq, p.name});
}

// Moves correction biases: bias += rate * sign(mean count - count), where the counts are the
// choices of the whole step (Wang et al. 2024, arXiv:2408.15664, algorithm 1).
void emit_balance(Piece& piece, const Param& p, const Balance& balance) {
  if (balance.rate == 0) return;
  Builder b(piece.graph, piece.update);
  const int bias = read_state(b, StateKind::parameter, p);
  const int counts = b.read(kCounts, p.labels, p.sizes, b.graph().real);
  const int factor = b.input("factor", "", {}, DType::f64);
  const int next = b.op1(Row::balance, {bias, counts, factor}, "x,x,->x",
                         {.names = {},
                          .sizes = {},
                          .attrs = {.a = balance.rate, .b = balance.mean_count},
                          .dtypes = {}});
  b.write(Row::write, next, StateName{StateKind::parameter, p.name});
}

// The exact sum that the step has accumulated, rounded to f64.
int emit_settle(Builder& b, const std::string& name) {
  const int sum = b.read(StateName{StateKind::scalar, name}, "", {}, DType::exact, name + ".sum");
  return b.op1(Row::settle_exact, {sum}, "->",
               {.names = {name}, .sizes = {}, .attrs = {}, .dtypes = {DType::f64}});
}

}  // namespace

void emit_optimizer(Piece& piece, const OptimizerConfig& optimizer, const Balance& balance,
                    bool embedding_is_tied) {
  name_bodies(piece);
  Builder settle(piece.graph, piece.settle);
  for (const Param& p : piece.params) {
    if (p.tied || (embedding_is_tied && p.name == "emb.w")) continue;
    if (!p.trained) {
      emit_balance(piece, p, balance);
      continue;
    }
    const int g = read_state(settle, StateKind::gradient_sum, p, p.name + "/g");
    piece.graph[g].parameter = p.name;
    piece.settle.outputs.push_back(g);
    emit_square(piece, p, g);
    emit_update(piece, p, g, optimizer);
  }
}

Piece tied_piece(const Param& param, DType real, const OptimizerConfig& optimizer) {
  Piece piece{.name = "tied"};
  piece.graph.real = real;
  name_bodies(piece);
  piece.params = {param};
  Param& p = piece.params[0];
  p.tied = true;
  Builder own(piece.graph, piece.settle), other(piece.graph, piece.settle_other),
      sum(piece.graph, piece.sum);
  const int g0 = read_state(own, StateKind::gradient_sum, p, p.name + "/g0");
  const int g1 = read_state(other, StateKind::gradient_sum, p, p.name + "/g1");
  const int g = sum.add({g0, g1}, p.name + "/g");
  piece.graph[g].parameter = p.name;
  piece.settle.outputs = {g0};
  piece.settle_other.outputs = {g1};
  piece.sum.outputs = {g};
  emit_square(piece, p, g);
  emit_update(piece, p, g, optimizer);
  return piece;
}

Piece finish_piece(DType real, const OptimizerConfig& optimizer, const RoutingConfig& routing) {
  Piece piece{.name = "finish"};
  piece.graph.real = real;
  name_bodies(piece);
  Builder b(piece.graph, piece.update);
  const int squares =
      b.read(StateName{StateKind::scalar, "norm"}, "", {}, DType::exact, "norm.sum");
  const int ins[] = {squares, b.input("live", "", {}, DType::f64)};
  piece.update.outputs = b.op(Row::clip, ins, ",->;",
                              {.names = {"factor", "norm"},
                               .sizes = {},
                               .attrs = {.max = optimizer.clip_norm},
                               .dtypes = {DType::f64, DType::f64}});
  piece.update.outputs.push_back(emit_settle(b, "loss"));
  if (routing.load_balance > 0) piece.update.outputs.push_back(emit_settle(b, "aux"));
  if (routing.z > 0) piece.update.outputs.push_back(emit_settle(b, "zloss"));
  return piece;
}

}  // namespace myriad
