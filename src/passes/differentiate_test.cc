// Backward bodies: what they read, make, carry and name. That the numbers are right is shown in
// verify/differences_test.cc.
#include "passes/differentiate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "passes/toy.h"

namespace myriad {
namespace {

const Toy kToy;

Piece differentiated(Piece p) {
  differentiate(p);
  return p;
}

std::set<std::string> names(const Graph& g, const std::vector<int>& values) {
  std::set<std::string> out;
  for (int v : values) out.insert(g[v].name);
  return out;
}

int count(const Body& body, Row row) {
  return static_cast<int>(
      std::count_if(body.ops.begin(), body.ops.end(), [&](const Op& op) { return op.row == row; }));
}

using Strings = std::set<std::string>;

TEST(Differentiate, LayerReceivesAndHandsOverBoundaryGradients) {
  const Piece p = differentiated(toy_layer(kToy, 2));
  EXPECT_EQ(names(p.graph, p.backward.outputs), Strings{"d.x"});
  EXPECT_EQ(p.backward.name, "layer.backward");
  const Value& dx = p.graph[p.backward.outputs[0]];
  EXPECT_EQ(dx.labels, "bsd");
  EXPECT_EQ(dx.gradient_of, p.graph.at("x"));
}

// Weights are read again, never carried from forward to backward: under ZeRO-3 what was carried
// would have been gathered.
TEST(Differentiate, ValuesMadeFromStateAreMadeAgain) {
  const Piece p = differentiated(toy_layer(kToy, 2));
  EXPECT_EQ(names(p.graph, inputs_of(p.backward)), (Strings{"d.y", "x", "xn", "u", "a"}));
  EXPECT_EQ(count(p.backward, Row::read), 3);
}

// bf16: a weight's gradient is made in the type of its sum; that of an activation in its own.
TEST(Differentiate, GradientsOfNarrowWeightsAreWide) {
  Piece p{.name = "p"};
  p.graph.activation = DType::bf16;
  Builder b(p.graph, p.forward);
  const int w = b.cast(b.read("p:w", "fd", {3, 4}, DType::f32), DType::bf16, "w");
  const int x = b.input("x", "bsd", {2, 5, 4}, DType::bf16);
  const int y = b.contract("bsd,fd->bsf", {x, w}, "y");
  EXPECT_EQ(p.graph[y].dtype, DType::bf16);
  differentiate(p);
  EXPECT_EQ(p.graph[p.graph.at("d.w")].dtype, DType::f32);
  EXPECT_EQ(p.graph[p.graph.at("d.x")].dtype, DType::bf16);
  EXPECT_EQ(count(p.backward, Row::cast), 1) << "the weight's, made again";
  const auto accum = std::find_if(p.backward.ops.begin(), p.backward.ops.end(),
                                  [](const Op& op) { return op.row == Row::accum; });
  ASSERT_NE(accum, p.backward.ops.end());
  EXPECT_EQ(accum->ins[0], p.graph.at("d.w"));
  EXPECT_EQ(accum->attrs.state, "g:w");
}

TEST(Differentiate, WhatIsMadeFromReadValuesIsMadeAgainToo) {
  Piece p{.name = "p"};
  Builder b(p.graph, p.forward);
  const int w = b.read("p:w", "d", {4}, DType::f32, "w"),
            x = b.input("x", "bd", {2, 4}, DType::f32);
  const int twice = b.contract("d->d", {w}, "twice", 2);
  b.contract("bd,d->bd", {x, twice}, "y");
  differentiate(p);
  EXPECT_EQ(names(p.graph, inputs_of(p.backward)), (Strings{"d.y", "x"}));
}

TEST(Differentiate, EveryParameterHasOneAccumulationAndItsLabels) {
  const Piece p = differentiated(toy_layer(kToy, 2));
  Strings states;
  for (const Op& op : p.backward.ops) {
    if (op.row != Row::accum) continue;
    EXPECT_TRUE(states.insert(show(op.attrs.state)).second) << show(op.attrs.state);
    const std::string name = op.attrs.state.of;
    const Value &g = p.graph[op.ins[0]], &w = p.graph[p.graph.at(name)];
    EXPECT_EQ(g.name, "d." + name);
    EXPECT_EQ(g.labels, w.labels);
    EXPECT_EQ(g.sizes, w.sizes);
    EXPECT_EQ(g.gradient_of, p.graph.at(name));
  }
  EXPECT_EQ(states, (Strings{"g:n.w", "g:up.w", "g:down.w"}));
}

TEST(Differentiate, EmbeddingNeedsNoInputGradientAndNoWeight) {
  const Piece p = differentiated(toy_embedding(kToy, 2));
  EXPECT_TRUE(p.backward.outputs.empty());
  EXPECT_EQ(names(p.graph, inputs_of(p.backward)), (Strings{"d.y", "ids"}));
  EXPECT_EQ(count(p.backward, Row::read), 0);
}

TEST(Differentiate, HeadBeginsWithTheNormaliser) {
  const Piece p = differentiated(toy_head(kToy, 2));
  EXPECT_EQ(names(p.graph, inputs_of(p.backward)), (Strings{"inv_n", "logits", "x"}));
  EXPECT_EQ(names(p.graph, p.backward.outputs), Strings{"d.x"});
}

TEST(Differentiate, UsesOfAValueAreAdded) {
  Piece p{.name = "p"};
  Builder b(p.graph, p.forward);
  const int x = b.input("x", "bd", {2, 4}, DType::f32);
  const int s = b.elementwise(Row::silu, {x}, "s");
  b.add({s, b.contract("bd,bd->bd", {s, x}), x}, "y");
  differentiate(p);
  EXPECT_EQ(count(p.backward, Row::add), 2);  // d.s of two uses, d.x of three
  EXPECT_NE(p.graph.find("d.s"), -1);
}

TEST(Differentiate, WhatNobodyNeedsIsDropped) {
  Piece p{.name = "p"};
  Builder b(p.graph, p.forward);
  const int x = b.input("x", "bd", {2, 4}, DType::f32),
            other = b.input("other", "bd", {2, 4}, DType::f32);
  b.contract("bd,bd->bd", {x, b.elementwise(Row::silu, {other}, "so")}, "y");
  differentiate(p);
  EXPECT_EQ(count(p.backward, Row::silu_grad), 0) << "no gradient of `other` is asked for";
}

TEST(Differentiate, GradientsOfParametersComeInOrderOfLastUse) {
  const Piece p = differentiated(toy_layer(kToy, 2));
  std::vector<std::string> order;
  for (const Op& op : p.backward.ops) {
    if (op.row == Row::accum) order.push_back(show(op.attrs.state));
  }
  EXPECT_EQ(order, (std::vector<std::string>{"g:down.w", "g:up.w", "g:n.w"}));
}

TEST(Recompute, KeepsOnlyTheInputsOfTheForwardBody) {
  const Piece p = differentiated(toy_layer(kToy, 2));
  const Body again = recompute(p.forward, p.backward);
  EXPECT_EQ(names(p.graph, inputs_of(again)), (Strings{"d.y", "x"}));
  EXPECT_EQ(again.outputs, p.backward.outputs);
}

TEST(Recompute, KeepsProductsIfAsked) {
  const Piece p = differentiated(toy_layer(kToy, 2));
  const std::set<int> products = dear_outputs(p.forward);
  EXPECT_EQ(names(p.graph, {products.begin(), products.end()}), (Strings{"u", "o"}));
  const Body again = recompute(p.forward, p.backward, products);
  EXPECT_EQ(names(p.graph, inputs_of(again)), (Strings{"d.y", "x", "u"}));
  EXPECT_EQ(count(again, Row::silu), 1);
  EXPECT_EQ(count(again, Row::read), 3);
}

TEST(Recompute, ClonesAreTheirOriginals) {
  const Piece p = differentiated(toy_layer(kToy, 2));
  const Body again = recompute(p.forward, p.backward);
  int clones = 0;
  for (const Op& op : again.ops) {
    const auto original =
        std::find_if(p.forward.ops.begin(), p.forward.ops.end(),
                     [&](const Op& o) { return !o.outs.empty() && o.outs == op.outs; });
    if (original == p.forward.ops.end()) continue;
    ++clones;
    EXPECT_EQ(op.row, original->row);
    EXPECT_EQ(op.ins, original->ins);
    EXPECT_TRUE(op.attrs == original->attrs);
  }
  EXPECT_EQ(clones, 6);  // three reads, xn, u, a; neither o nor y
  std::set<int> made;
  for (const Op& op : again.ops) {
    for (int o : op.outs) EXPECT_TRUE(made.insert(o).second) << p.graph[o].name << " is made twice";
  }
}

}  // namespace
}  // namespace myriad
