// Kernels on bf16 storage against the reference in double precision on the same values.
#include <functional>

#include "kernels/fast/matrix.h"
#include "kernels/trial.h"

namespace myriad {
namespace {

constexpr DType kNarrow = DType::bf16, kReal = DType::f32, kInt = DType::i32;

// The same tensors in double.
Trial widened(const Trial& t) {
  std::vector<DType> types;
  for (const Block& b : t.ins) types.push_back(b.tensor.dtype == kInt ? kInt : DType::f64);
  std::string rule;
  for (size_t i = 0; i < t.op.in_labels.size(); ++i) rule += (i ? "," : "") + t.op.in_labels[i];
  rule += "->";
  for (size_t o = 0; o < t.op.out_labels.size(); ++o) rule += (o ? ";" : "") + t.op.out_labels[o];
  Trial w(t.op.row, rule, t.op.size, DType::f64, 1, types);
  w.op.attrs = t.op.attrs;
  w.lo = t.lo;
  for (size_t i = 0; i < t.ins.size(); ++i) {
    for (int64_t j = 0; j < t.ins[i].tensor.elements(); ++j) w.ins[i].set(j, t.ins[i].at(j));
  }
  return w;
}

// The reference rounds once what double precision gives. A fast kernel may be `slack` further away,
// times the largest of all.
void expect_rounded_once(const Trial& t, double slack, const std::string& what) {
  const auto want = widened(t).run_ref(), plain = t.run_ref(), fast = t.run(t.fast());
  for (size_t o = 0; o < want.size(); ++o) {
    double largest = 0;
    for (int64_t i = 0; i < want[o].tensor.elements(); ++i) {
      if (std::isfinite(want[o].at(i))) largest = std::max(largest, std::fabs(want[o].at(i)));
    }
    const bool narrow = t.out_types[o] == kNarrow;
    for (int64_t i = 0; i < want[o].tensor.elements(); ++i) {
      const double w = want[o].at(i),
                   rounded = narrow ? double{Bf16(w)} : double{static_cast<float>(w)};
      ASSERT_EQ(plain[o].at(i), rounded) << what << ": reference, output " << o << " element " << i;
      if (fast[o].at(i) == rounded) continue;
      ASSERT_LE(std::fabs(fast[o].at(i) - w),
                std::fabs(w) * (narrow ? 0x1p-8 : 0) + slack * largest)
          << what << ": " << t.fast().name << ", output " << o << " element " << i;
    }
  }
  expect_steady(t, t.fast(), what);
}

struct Elementwise {
  Row row;
  const char* rule;
  std::vector<DType> ins;
  DType out;
};

TEST(Bf16Kernels, ElementwiseAndLoss) {
  const Elementwise cases[] = {
      {Row::cast, "bsd->bsd", {kReal}, kNarrow},
      {Row::cast, "bsd->bsd", {kNarrow}, kReal},
      {Row::add, "bsd,bsd,bsd->bsd", {kNarrow, kNarrow, kNarrow}, kNarrow},
      {Row::silu, "bsd->bsd", {kNarrow}, kNarrow},
      {Row::silu_grad, "bsd,bsd->bsd", {kNarrow, kNarrow}, kNarrow},
      {Row::gelu, "bsd->bsd", {kNarrow}, kNarrow},
      {Row::gelu_grad, "bsd,bsd->bsd", {kNarrow, kNarrow}, kNarrow},
      {Row::broadcast, "d->bsd", {kNarrow}, kNarrow},
      {Row::broadcast, "bs->bsd", {kReal}, kNarrow},
      {Row::max_stop, "bsd->bs", {kNarrow}, kReal},
      {Row::sum_exp, "bsd,bs->bs", {kNarrow, kReal}, kReal},
      {Row::exp_scale, "bsd,bs,bs->bsd", {kNarrow, kReal, kReal}, kNarrow},
  };
  for (const Elementwise& c : cases) {
    for (int64_t d : {0, 1, 7, 130, 2501}) {
      Trial t(c.row, c.rule, {"bsd", {2, 3, d}}, kReal, 3, c.ins);
      t.out_types = {c.out};
      if (c.row == Row::sum_exp || c.row == Row::exp_scale) {  // the maximum of the row, as in use
        for (int64_t i = 0; i < 6; ++i) t.ins[1].set(i, 3);
      }
      EXPECT_STRNE(t.fast().name, "ref") << info(c.row).name;
      expect_rounded_once(t, 1e-6, info(c.row).name);
    }
  }
}

struct Contraction {
  const char *rule, *kernel;
  std::vector<DType> ins;
  DType out;
};
const Contraction kContractions[] = {
    {"bsk,nk->bsn", "fast.gemm", {kNarrow, kNarrow}, kNarrow},
    {"bsn,nk->bsk", "fast.gemm", {kNarrow, kNarrow}, kNarrow},
    {"bsn,bsk->nk", "fast.gemm", {kNarrow, kNarrow}, kReal},
    {"bsk,nk->bsn", "fast.gemm", {kNarrow, kReal}, kReal},
    {"bsn,nk->bsk", "fast.gemm", {kReal, kReal}, kNarrow},
    {"bsk,bsk->bs", "fast.dot", {kNarrow, kNarrow}, kReal},
    {"bsk,bs,k->bsk", "fast.map", {kNarrow, kReal, kNarrow}, kNarrow},
    {"bsk,bsk,bs->k", "fast.columns", {kNarrow, kNarrow, kReal}, kReal},
    {"bsk->k", "fast.columns", {kNarrow}, kReal},
};

void expect_contractions(const LabelSizes& sizes, double slack) {
  for (const Contraction& c : kContractions) {
    LabelSizes of_rule;
    for (char l : std::string(c.rule)) {
      if (sizes.find(l) >= 0) of_rule.set(l, sizes.at(l));
    }
    for (double scale : {1.0, -0.7}) {
      Trial t(Row::contract, c.rule, of_rule, kReal, 5, c.ins);
      t.out_types = {c.out};
      t.op.attrs.scale = scale;
      EXPECT_STREQ(t.fast().name, sizes.at('k') > 1 ? c.kernel : t.fast().name) << c.rule;
      EXPECT_STRNE(t.fast().name, "ref") << c.rule;
      expect_rounded_once(t, slack, c.rule);
    }
  }
}

TEST(Bf16Kernels, Contractions) {
  for (int64_t k : {0, 1, 5, 64, 67}) expect_contractions({"bskn", {2, 7, k, 9}}, 1e-6);
  expect_contractions({"bskn", {2, 130, 201, 263}}, 1e-5);
}

// Blocks of f32 made from bf16, as on a processor that does not multiply it.
TEST(Bf16Kernels, ContractionsByWidening) {
  set_matrix_library(MatrixLibrary::openblas);
  EXPECT_FALSE(bf16_products());
  for (int64_t k : {0, 1, 67}) expect_contractions({"bskn", {2, 7, k, 9}}, 1e-6);
  expect_contractions({"bskn", {2, 130, 401, 263}}, 1e-5);
  set_matrix_library(MatrixLibrary::automatic);
}

TEST(Bf16Kernels, Indexed) {
  const LabelSizes sizes{"bsdv", {2, 5, 33, 11}};
  const auto trial = [&](Row row, const char* rule, std::vector<DType> ins, DType out) {
    Trial t(row, rule, sizes, kReal, 3, std::move(ins));
    t.out_types = {out};
    t.lo['v'] = 3;
    t.fill_ids(1, 0, 16);
    return t;
  };
  expect_rounded_once(trial(Row::gather_rows, "vd,bs->bsd", {kNarrow, kInt}, kNarrow), 0,
                      "gather_rows");
  expect_rounded_once(trial(Row::unpick, "bs,bs->bsv", {kReal, kInt}, kNarrow), 0, "unpick");
  expect_rounded_once(trial(Row::pick, "bsv,bs->bs", {kNarrow, kInt}, kReal), 0, "pick");
  // Sums in f32, which the reference keeps.
  const Trial scatter = trial(Row::scatter_rows, "bsd,bs->vd", {kNarrow, kInt}, kReal);
  EXPECT_STREQ(scatter.fast().name, "fast.scatter_rows");
  EXPECT_TRUE(same_bits(scatter.run_ref(), scatter.run(scatter.fast())));
}

TEST(Bf16Kernels, Rope) {
  for (const RopeStyle style : {RopeStyle::half, RopeStyle::interleaved}) {
    Trial t(Row::rope, "bsgrh,bs->bsgrh", {"bsgrh", {2, 9, 2, 3, 10}}, kReal, 3, {kNarrow, kInt});
    t.out_types = {kNarrow};
    t.fill_ids(1, 0, 50);
    t.op.attrs.frequencies =
        std::make_shared<const std::vector<double>>(std::vector<double>{1, 0.3, 0.1, 0.03, 0.01});
    t.op.attrs.style = style;
    expect_rounded_once(t, 1e-6, "rope");
  }
}

TEST(Bf16Kernels, Attention) {
  Trial f(Row::attention, "bsgrh,btgh,btgu,bs,bt,bs,bt->bsgru;bsgr",
          {"bsgrhtu", {2, 140, 2, 2, 8, 140, 6}}, kReal, 3,
          {kNarrow, kNarrow, kNarrow, kInt, kInt, kInt, kInt});
  f.out_types = {kNarrow, kReal};
  f.op.attrs.scale = 0.35;
  for (size_t i = 3; i < 7; ++i) {
    for (int64_t j = 0; j < f.ins[i].tensor.elements(); ++j)
      f.ins[i].set(j, i < 5 ? static_cast<double>(j % 140) : 0);
  }
  EXPECT_STREQ(f.fast().name, "fast.attention");
  expect_rounded_once(f, 1e-6, "attention");
  Trial b(Row::attention_grad, "bsgrh,btgh,btgu,bsgru,bsgr,bsgru,bs,bt,bs,bt->bsgrh;btgh;btgu",
          f.op.size, kReal, 4,
          {kNarrow, kNarrow, kNarrow, kNarrow, kReal, kNarrow, kInt, kInt, kInt, kInt});
  b.out_types = {kNarrow, kNarrow, kNarrow};
  b.op.attrs = f.op.attrs;
  const auto made = f.run_ref();
  for (size_t i = 0; i < 3; ++i) b.ins[i] = f.ins[i];
  b.ins[3] = made[0], b.ins[4] = made[1];
  for (size_t i = 0; i < 4; ++i) b.ins[6 + i] = f.ins[3 + i];
  EXPECT_STREQ(b.fast().name, "fast.attention_grad");
  expect_rounded_once(b, 1e-5, "attention_grad");
}

// A hundred rows of one half an ulp each: sums in bf16 would stay at 1.
TEST(Bf16Kernels, CombineSumsInF32) {
  std::vector<int32_t> e(101), b(101, 0), s(101, 0);
  for (int i = 0; i < 101; ++i) e[static_cast<size_t>(i)] = i;
  const RowSet rows{101, e.data(), b.data(), s.data()};
  Trial t(Row::combine, "ebsd,bsj->bsd", {"ebsdj", {101, 1, 1, 3, 101}}, kReal, 1, {kNarrow, kInt},
          0, &rows);
  t.out_types = {kNarrow};
  for (int64_t i = 0; i < 303; ++i) t.ins[0].set(i, i < 3 ? 1 : 0x1p-8);
  for (int64_t j = 0; j < 101; ++j) t.ins[1].set(j, static_cast<double>(j));
  EXPECT_STREQ(t.fast().name, "fast.combine");
  for (const auto& y : {t.run_ref(), t.run(t.fast())}) {
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(y[0].at(i), double{Bf16(1 + 100 * 0x1p-8)});
  }
}

}  // namespace
}  // namespace myriad
