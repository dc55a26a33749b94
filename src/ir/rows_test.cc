// The table of rows: what each says of itself.
#include "ir/rows.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "base/error.h"

namespace myriad {
namespace {

Op op(Row row, std::vector<std::string> ins, std::vector<std::string> outs, LabelSizes size = {},
      Attrs attrs = {}) {
  return {.row = row,
          .ins = std::vector<int>(ins.size()),
          .outs = std::vector<int>(outs.size()),
          .in_labels = std::move(ins),
          .out_labels = std::move(outs),
          .size = std::move(size),
          .attrs = std::move(attrs)};
}

double work(const Op& o) { return info(o.row).work(o, o.size); }

TEST(Rows, EachHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int i = 0; i < kRows; ++i) {
    const RowInfo& r = info(static_cast<Row>(i));
    EXPECT_TRUE(names.insert(r.name).second) << r.name;
    EXPECT_EQ(row_named(r.name), static_cast<Row>(i));
    EXPECT_TRUE(r.linear && r.whole && r.work) << r.name;
  }
  EXPECT_THROW(row_named("conv"), Error);
}

using Masks = std::vector<uint32_t>;

TEST(Rows, LinearSets) {
  const auto linear = [](const Op& o) { return info(o.row).linear(o); };
  EXPECT_EQ(linear(op(Row::contract, {"bsd", "fd", "d"}, {"bsf"})), (Masks{1, 2, 4}));
  EXPECT_EQ(linear(op(Row::add, {"bs", "bs", "bs"}, {"bs"})), (Masks{7}));
  EXPECT_EQ(linear(op(Row::silu_grad, {"bs", "bs"}, {"bs"})), (Masks{2}));
  EXPECT_EQ(linear(op(Row::exp_scale, {"bsv", "bs", "bs"}, {"bsv"})), (Masks{4}));
  EXPECT_EQ(linear(op(Row::rope, {"bsgh", "bs"}, {"bsgh"})), (Masks{1}));
  EXPECT_EQ(linear(op(Row::attention_grad, std::vector<std::string>(10, "b"), {"b", "b", "b"})),
            (Masks{32}));
  Op cast = op(Row::cast, {"bs"}, {"bs"});
  cast.in_types = {DType::bf16}, cast.out_types = {DType::f32};
  EXPECT_EQ(linear(cast), (Masks{1}));
  std::swap(cast.in_types, cast.out_types);
  EXPECT_EQ(linear(cast), Masks{}) << "a sum of rounded parts is not the rounded sum";
  for (Row row : {Row::rsqrt, Row::silu, Row::gelu, Row::attention, Row::max_stop, Row::sum_exp,
                  Row::log, Row::recip, Row::sum_exact}) {
    EXPECT_EQ(linear(op(row, {"bs"}, {"bs"})), Masks{}) << info(row).name;
  }
}

TEST(Rows, WholeLabels) {
  const auto whole = [](const Op& o) { return info(o.row).whole(o); };
  EXPECT_EQ(whole(op(Row::rope, {"bsgrh", "bs"}, {"bsgrh"})), "h");
  EXPECT_EQ(whole(op(Row::attention, {"bsgrh"}, {"bsgru"})), "thu");
  EXPECT_EQ(whole(op(Row::place_rows, {"btgh", "bsgh", "bs"}, {"btgh"})), "st");
  EXPECT_EQ(whole(op(Row::slice, {"bsih"}, {"bsyh"}, {}, {.label = 'i', .to = 'y'})), "iy");
  EXPECT_EQ(whole(op(Row::contract, {"bsd", "fd"}, {"bsf"})), "");
  EXPECT_EQ(whole(op(Row::pick, {"bsv", "bs"}, {"bs"})), "") << "a cut vocabulary is no hindrance";
}

TEST(Rows, OnlyTheMaximumLeavesAMaximum) {
  for (int i = 0; i < kRows; ++i)
    EXPECT_EQ(info(static_cast<Row>(i)).reduces_max,
              static_cast<Row>(i) == Row::max_stop || static_cast<Row>(i) == Row::rounds);
}

TEST(Rows, WorkOfProducts) {
  const LabelSizes s{"bsdf", {2, 3, 5, 7}};
  EXPECT_EQ(work(op(Row::contract, {"bsd", "fd"}, {"bsf"}, s)), 2 * 2 * 3 * 5 * 7);
  EXPECT_EQ(work(op(Row::contract, {"bsd", "bsd"}, {"bsd"}, {"bsd", {2, 3, 5}})), 2 * 3 * 5)
      << "a product, no sum";
  EXPECT_EQ(work(op(Row::contract, {"bsd"}, {"bs"}, {"bsd", {2, 3, 5}})), 2 * 3 * 5)
      << "a sum, no product";
  EXPECT_EQ(work(op(Row::contract, {"bsd", "fd"}, {"bsf"}, {"bsdf", {2, 0, 5, 7}})), 0);
}

TEST(Rows, WorkOfAttentionIsTheFullSquare) {
  const LabelSizes s{"bsgrthu", {2, 3, 4, 5, 6, 7, 8}};
  const double square = 2 * 3 * 4 * 5 * 6;
  EXPECT_EQ(work(op(Row::attention, {"bsgrh"}, {"bsgru"}, s)), 2 * square * (7 + 8));
  EXPECT_EQ(work(op(Row::attention_grad, {"bsgrh"}, {"bsgrh"}, s)), 2 * square * (3 * 7 + 2 * 8));
}

// Gradients, as the ops they are made of.

struct Backward {
  Graph graph;
  Body body;
  Builder b{graph, body};
  std::vector<int> results;

  int value(const std::string& name, const std::string& labels, Sizes sizes, DType t = DType::f32) {
    return b.input(name, labels, std::move(sizes), t);
  }
  // Of the last op, given gradients of its outputs.
  std::string gradient() {
    const Op last = body.ops.back();
    std::vector<int> d;
    for (int o : last.outs)
      d.push_back(value("d." + graph[o].name, graph[o].labels, graph[o].sizes));
    const size_t before = body.ops.size();
    results = info(last.row).gradient(b, last, d);
    std::string text;
    for (size_t i = before; i < body.ops.size(); ++i) text += show(body.ops[i], graph) + "\n";
    return text;
  }
};

TEST(Rows, GradientOfAProduct) {
  Backward g;
  g.b.contract("bsd,fd->bsf", {g.value("x", "bsd", {2, 3, 5}), g.value("w", "fd", {7, 5})}, "y", 2);
  EXPECT_EQ(g.gradient(),
            "%1 = contract \"bsf,fd->bsd\", d.y, w\n%2 = contract \"bsf,bsd->fd\", d.y, x\n");
  EXPECT_EQ(g.body.ops.back().attrs.scale, 2);
}

TEST(Rows, GradientOfASquareIsMadeOnce) {
  Backward g;
  const int x = g.value("x", "bsd", {2, 3, 5});
  g.b.contract("bsd,bsd->bs", {x, x}, "y");
  EXPECT_EQ(g.gradient(), "%1 = contract \"bs,bsd->bsd\", d.y, x\n");
  EXPECT_EQ(g.results[0], g.results[1]);
}

TEST(Rows, GradientWhereALabelVanishesIsSpread) {
  Backward g;
  g.b.contract("bsd->b", {g.value("x", "bsd", {2, 3, 5})}, "y");
  EXPECT_EQ(g.gradient(), "%1 = contract \"b->b\", d.y\n%2 = broadcast \"b->bsd\", %1\n");
}

TEST(Rows, StoppedOperandsAndIndicesGetNone) {
  Backward g;
  g.b.contract("bs,bs->bs", {g.value("x", "bs", {2, 3}), g.value("y", "bs", {2, 3})}, "z", 1, 1);
  g.gradient();
  EXPECT_EQ(g.results[0], -1);
  EXPECT_GE(g.results[1], 0);
  Backward e;
  e.b.op1(Row::gather_rows, {e.value("w", "vd", {7, 5}), e.value("ids", "bs", {2, 3}, DType::i32)},
          "vd,bs->bsd", {.names = {"y"}, .sizes = {}, .attrs = {}, .dtypes = {}});
  EXPECT_EQ(e.gradient(), "%1 = scatter_rows \"bsd,bs->vd\", d.y, ids\n");
  EXPECT_EQ(e.results[1], -1);
}

TEST(Rows, RopeTurnsBack) {
  Backward g;
  const Attrs attrs{.frequencies = std::make_shared<const std::vector<double>>(std::vector{1.0}),
                    .mscale = 1.5,
                    .style = RopeStyle::interleaved};
  g.b.op1(Row::rope, {g.value("x", "bsgh", {1, 2, 3, 2}), g.value("pos", "bs", {1, 2}, DType::i32)},
          "bsgh,bs->bsgh", {.names = {"y"}, .sizes = {}, .attrs = attrs, .dtypes = {}});
  g.gradient();
  EXPECT_EQ(g.body.ops.back().row, Row::rope);
  EXPECT_EQ(g.body.ops.back().attrs.sign, -1);
  EXPECT_EQ(g.body.ops.back().attrs.mscale, 1.5);
}

}  // namespace
}  // namespace myriad
