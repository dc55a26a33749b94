// Lays out the optimizer's bodies of every piece, and the finish body. What reduce hands on (the
// gradient as the optimizer reads it) is what square and update are given.
#include <initializer_list>

#include "passes/bodies.h"
#include "passes/differentiate.h"

namespace myriad {

namespace {

std::vector<Output> outputs_of(const Body& body) {
  std::vector<Output> out;
  for (int o : body.outputs) out.push_back({o, std::nullopt});
  return out;
}

// Layouts of body's inputs that the bodies `from` hand over.
std::map<int, Layout> handed(const Lowering& l, const Body& body, std::initializer_list<int> from) {
  std::map<int, Layout> given;
  for (int i : inputs_of(body)) {
    for (int index : from) {
      const LoweredBody& b = l.program.bodies[index];
      for (int o : b.outputs) {
        if (b.versions[o].value == i) given[i] = b.versions[o].layout;
      }
    }
  }
  return given;
}

// The body that adds up and hands on gradients is already there.
void shard_square_and_update(Lowering& l, Sharder& sharder, size_t i, int gradients) {
  const Piece& piece = l.pieces.first().pieces.pieces[i];
  OptimizerBodies& o = l.pieces.optimizer;
  o.square[i] = l.add_body(sharder.lower(piece.square, handed(l, piece.square, {gradients}), {}),
                           BodyRole::square);
  o.update[i] = l.add_body(sharder.lower(piece.update, handed(l, piece.update, {gradients}), {}),
                           BodyRole::update);
}

// A tied weight has one gradient sum per use: each is reduced by itself, then they are added in
// order of use.
void shard_tied(Lowering& l) {
  const LoweredVariant& v = l.pieces.first();
  const Pieces& p = v.pieces;
  const size_t i = static_cast<size_t>(p.tied);
  const Piece& piece = p.pieces[i];
  OptimizerBodies& o = l.pieces.optimizer;
  const auto sharder_with = [&](int states) {
    return Sharder(l.program.mesh, l.wanted, l.memory, v.graphs[i], p.tied, l.states[states],
                   l.stage_atoms);
  };
  const auto reduce = [&](Sharder& sharder, const Body& body) {
    return l.add_body(sharder.lower(body, {}, outputs_of(body)), BodyRole::reduce);
  };
  Sharder of_embedding = sharder_with(p.units.front()), of_head = sharder_with(p.units.back());
  o.reduce[i] = reduce(of_embedding, piece.settle);
  o.reduce_other = reduce(of_head, piece.settle_other);
  const auto given = handed(l, piece.sum, {o.reduce[i], o.reduce_other});
  o.sum = l.add_body(of_embedding.lower(piece.sum, given, outputs_of(piece.sum)), BodyRole::reduce);
  shard_square_and_update(l, of_embedding, i, o.sum);
}

void shard_finish(Lowering& l) {
  const LoweredVariant& v = l.pieces.first();
  const int i = v.pieces.finish;
  const Body& finish = v.pieces.pieces[i].update;
  Sharder sharder(l.program.mesh, l.wanted, l.memory, v.graphs[i], i, l.states[-1],
                  l.program.mesh.all());
  l.pieces.finish = l.add_body(sharder.lower(finish, {}, outputs_of(finish)), BodyRole::finish);
}

}  // namespace

void shard_optimizer(Lowering& l) {
  const Pieces& p = l.pieces.first().pieces;
  OptimizerBodies& o = l.pieces.optimizer;
  o.reduce.assign(p.pieces.size(), -1);
  o.square.assign(p.pieces.size(), -1);
  o.update.assign(p.pieces.size(), -1);
  for (size_t i = 0; i < p.pieces.size() && !l.options.forward_only; ++i) {
    if (static_cast<int>(i) == p.tied) {
      shard_tied(l);
      continue;
    }
    const Body& reduce = p.pieces[i].settle;
    if (reduce.ops.empty()) continue;
    Sharder& sharder = *l.sharders.begin()->second[i];
    o.reduce[i] = l.add_body(sharder.lower(reduce, {}, outputs_of(reduce)), BodyRole::reduce);
    shard_square_and_update(l, sharder, i, o.reduce[i]);
  }
  shard_finish(l);
}

}  // namespace myriad
