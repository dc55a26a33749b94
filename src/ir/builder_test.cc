// Builder: shapes follow from labels, and what does not fit is named.
#include "ir/builder.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace myriad {
namespace {

struct Made {
  Graph graph;
  Body body;
  Builder b{graph, body};
  Made() { graph.real = DType::f64; }
  int value(const std::string& name, const std::string& labels, Sizes sizes, DType t = DType::f64) {
    return b.input(name, labels, std::move(sizes), t);
  }
};

TEST(Builder, OutputsHaveTheSizesOfTheirLabels) {
  Made m;
  const int y = m.b.contract("bsd,fd->bsf",
                             {m.value("x", "bsd", {2, 3, 5}), m.value("w", "fd", {7, 5})}, "y");
  EXPECT_EQ(m.graph[y].labels, "bsf");
  EXPECT_EQ(m.graph[y].sizes, (Sizes{2, 3, 7}));
  EXPECT_EQ(m.graph[y].dtype, DType::f64);
  EXPECT_EQ(m.body.ops[0].size, (LabelSizes{"bsdf", {2, 3, 5, 7}}));
  EXPECT_EQ(show(m.body.ops[0], m.graph), "y = contract \"bsd,fd->bsf\", x, w");
}

TEST(Builder, SizesThatDifferAreRefusedByOpRuleAndOperand) {
  Made m;
  const int x = m.value("x", "bsd", {2, 3, 5}), w = m.value("w", "fd", {7, 4});
  try {
    m.b.contract("bsd,fd->bsf", {x, w});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "contract \"bsd,fd->bsf\": d is 5 and 4 in operand w");
  }
}

TEST(Builder, AnOperandMayBearOtherLabelsInAnOp) {
  Made m;
  const int x = m.value("x", "bsd", {2, 3, 5});
  const int y = m.b.contract("btd->bt", {x});
  EXPECT_EQ(m.graph[y].labels, "bt");
  EXPECT_EQ(m.graph[x].labels, "bsd");
}

TEST(Builder, UnnamedOutputsAreTemporaries) {
  Made m;
  const int a = m.b.contract("b->b", {m.value("x", "b", {2})}), b = m.b.contract("b->b", {a});
  EXPECT_TRUE(m.graph[a].temporary());
  EXPECT_NE(m.graph[a].name, m.graph[b].name);
}

TEST(Builder, SeveralOutputs) {
  Made m;
  const int q = m.value("q", "bsgrh", {1, 3, 2, 2, 4}), k = m.value("k", "btgh", {1, 5, 2, 4}),
            v = m.value("v", "btgu", {1, 5, 2, 3});
  const int p = m.value("p", "bs", {1, 3}, DType::i32), t = m.value("t", "bt", {1, 5}, DType::i32);
  const int ins[] = {q, k, v, p, t, p, t};
  const auto outs = m.b.op(Row::attention, ins, "bsgrh,btgh,btgu,bs,bt,bs,bt->bsgru;bsgr",
                           {.names = {"o", "lse"}, .sizes = {}, .attrs = {}, .dtypes = {}});
  EXPECT_EQ(m.graph[outs[0]].sizes, (Sizes{1, 3, 2, 2, 3}));
  EXPECT_EQ(m.graph[outs[1]].sizes, (Sizes{1, 3, 2, 2}));
  EXPECT_EQ(m.graph.at("lse"), outs[1]);
}

TEST(Builder, SizesOfNewLabelsComeWithTheOp) {
  Made m;
  const int w = m.value("w", "d", {5});
  const int y = m.b.op1(Row::broadcast, {w}, "d->bsd",
                        {.names = {}, .sizes = {"bs", {2, 3}}, .attrs = {}, .dtypes = {}});
  EXPECT_EQ(m.graph[y].sizes, (Sizes{2, 3, 5}));
  EXPECT_THROW(m.b.op1(Row::broadcast, {w}, "d->bd",
                       {.names = {}, .sizes = {"bd", {2, 4}}, .attrs = {}, .dtypes = {}}),
               Error);
}

TEST(Builder, StatesAreReadAndWritten) {
  Made m;
  const int p = m.b.read("p:w", "fd", {7, 5}, DType::f32, "w");
  m.b.write(Row::accum, p, "g:w");
  EXPECT_EQ(m.graph[p].dtype, DType::f32);
  EXPECT_EQ(m.body.ops[0].attrs.state, "p:w");
  EXPECT_TRUE(m.body.ops[1].outs.empty());
  EXPECT_EQ(m.body.ops[1].size, (LabelSizes{"fd", {7, 5}}));
}

TEST(Builder, AnInputAskedForTwiceIsOne) {
  Made m;
  EXPECT_EQ(m.value("pos", "bs", {2, 3}, DType::i32), m.value("pos", "bs", {2, 3}, DType::i32));
  EXPECT_TRUE(m.body.ops.empty());
}

TEST(Graph, NamesAreUniqueAndMayChange) {
  Graph g;
  const int a = g.add({.name = "a"}), c = g.add({.name = "c"});
  g.rename(a, "b");
  EXPECT_EQ(g.find("a"), -1);
  EXPECT_EQ(g.at("b"), a);
  EXPECT_EQ(g.at("c"), c);
  EXPECT_DEATH(g.add({.name = "c"}), "exists");
  EXPECT_DEATH(g.rename(c, "b"), "exists");
  EXPECT_DEATH(g.at("a"), "no value a");
}

}  // namespace
}  // namespace myriad
