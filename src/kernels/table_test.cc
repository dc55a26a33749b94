// The table names what runs: a kernel that is chosen takes every call of its types and sizes and
// hands none to another.
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "kernels/fast/fast.h"
#include "kernels/trial.h"

namespace myriad {
namespace {

constexpr DType kF32 = DType::f32, kF64 = DType::f64, kBf16 = DType::bf16, kI32 = DType::i32;

const char* reason(const Trial& t, size_t choice = 0) {
  const Op op = t.typed();
  return choices(op.row)[choice].declines(op, op.size, t.real);
}

// A letter for each tensor: a: what flows through the model, r: real (statistics, states),
// i: i32, d: an f64 scalar, x: an exact sum.
struct Spec {
  Row row;
  const char *rule, *ins, *outs;
  const char *f32, *bf16;  // the kernels that are chosen; f64 runs on the reference
};

const Spec kSpecs[] = {
    {Row::contract, "bsd,fd->bsf", "aa", "a", "fast.few", "fast.gemm"},
    {Row::contract, "bsd,fd,->bsf", "aad", "a", "fast.few", "fast.gemm"},
    {Row::contract, "bsv,dv->bsd", "aa", "a", "fast.few", "fast.gemm"},
    {Row::contract, "bsd,bs->bsd", "ar", "a", "fast.map", "fast.map"},
    {Row::contract, "bsd,bsd->bs", "aa", "r", "fast.dot", "fast.dot"},
    {Row::contract, "bsd,bs->d", "ar", "r", "fast.columns", "fast.columns"},
    {Row::contract, ",->", "rd", "r", "ref", "ref"},
    {Row::broadcast, "bs->bsd", "r", "a", "fast.map", "fast.map"},
    {Row::add, "bsd,bsd,bsd->bsd", "aaa", "a", "fast.add", "fast.add"},
    {Row::cast, "bsd->bsd", "r", "a", "fast.cast", "fast.cast"},
    {Row::silu, "bsd->bsd", "a", "a", "fast.silu", "fast.silu"},
    {Row::silu_grad, "bsd,bsd->bsd", "aa", "a", "fast.silu_grad", "fast.silu_grad"},
    {Row::sigmoid, "bsd->bsd", "a", "a", "fast.sigmoid", "ref"},
    {Row::gelu, "bsd->bsd", "a", "a", "fast.gelu", "fast.gelu"},
    {Row::gelu_grad, "bsd,bsd->bsd", "aa", "a", "fast.gelu_grad", "fast.gelu_grad"},
    {Row::softmax, "bsd->bsd", "a", "a", "fast.softmax", "ref"},
    {Row::max_stop, "bsv->bs", "a", "r", "fast.max_stop", "fast.max_stop"},
    {Row::sum_exp, "bsv,bs->bs", "ar", "r", "fast.sum_exp", "fast.sum_exp"},
    {Row::exp_scale, "bsv,bs,bs->bsv", "arr", "a", "fast.exp_scale", "fast.exp_scale"},
    {Row::unpick, "bs,bs->bsv", "ri", "a", "fast.unpick", "fast.unpick"},
    {Row::unpick, "bsj,bsj->bsv", "ri", "a", "ref", "ref"},
    {Row::topk, "bsv->bsj", "r", "i", "fast.topk", "fast.topk"},
    {Row::topk, "bsv,v->bsj", "rr", "i", "fast.topk", "fast.topk"},
    {Row::dispatch, "bsd,bsj->ebsd", "ai", "a", "fast.dispatch", "fast.dispatch"},
    {Row::combine, "ebsd,bsj->bsd", "ai", "a", "fast.combine", "fast.combine"},
    {Row::gather_rows, "vd,bs->bsd", "ai", "a", "fast.gather_rows", "fast.gather_rows"},
    {Row::scatter_rows, "bsd,bs->vd", "ai", "r", "fast.scatter_rows", "fast.scatter_rows"},
    {Row::scatter_rows, "bsd,bs->vd", "ai", "a", "fast.scatter_rows", "ref"},
    {Row::rope, "bsgrh,bs->bsgrh", "ai", "a", "fast.rope", "fast.rope"},
    {Row::rope, "bsgh,bs->bsgh", "ai", "a", "fast.rope", "fast.rope"},
    {Row::attention, "bsgrh,btgh,btgu,bs,bt,bs,bt->bsgru;bsgr", "aaaiiii", "ar", "fast.attention",
     "fast.attention"},
    {Row::attention_grad, "bsgrh,btgh,btgu,bsgru,bsgr,bsgru,bs,bt,bs,bt->bsgrh;btgh;btgu",
     "aaaaraiiii", "aaa", "fast.attention_grad", "fast.attention_grad"},
    {Row::sum_exact, "d->", "a", "x", "fast.sum_exact", "ref"},
    {Row::sum_exact, "d,d->", "rr", "x", "fast.sum_exact", "fast.sum_exact"},
    {Row::sum_exact, "d,d,d->", "rrr", "x", "ref", "ref"},
    {Row::sum_exact, "->", "d", "x", "ref", "ref"},
    {Row::adamw, "d,d,d,d,,,,->d;d;d", "rrrrdddd", "rrr", "fast.adamw", "fast.adamw"},
    {Row::adamw, "d,d,d,d,,,,->d;d;d", "aaaadddd", "aaa", "fast.adamw", "ref"},
};

std::vector<DType> types_of(const char* letters, DType activation, DType real) {
  std::vector<DType> types;
  for (const char* l = letters; *l; ++l) {
    types.push_back(*l == 'a'   ? activation
                    : *l == 'r' ? real
                    : *l == 'i' ? kI32
                    : *l == 'd' ? kF64
                                : DType::exact);
  }
  return types;
}

// All pairs of two experts, two sequences of three tokens.
constexpr int32_t kRowE[] = {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1};
constexpr int32_t kRowB[] = {0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1};
constexpr int32_t kRowS[] = {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2};
constexpr RowSet kAllPairs{12, kRowE, kRowB, kRowS};

// `wide`: the type of labelled reals, where it is not what `real` says.
Trial trial_of(const Spec& spec, DType activation, DType real, DType wide) {
  const bool routed = spec.row == Row::dispatch || spec.row == Row::combine;
  LabelSizes sizes{"bsdfvjegrhtu", {2, 3, 40, 48, 11, 2, 2, 2, 2, 8, 5, 6}};
  Trial t(spec.row, spec.rule, sizes, real, 5, types_of(spec.ins, activation, wide), 0,
          routed ? &kAllPairs : nullptr);
  t.out_types = types_of(spec.outs, activation, wide);
  Attrs& a = t.op.attrs;
  a.k = 2;
  a.beta1 = 0.9, a.beta2 = 0.99, a.eps = 1e-8, a.decay = 0.1;
  a.frequencies = std::make_shared<const std::vector<double>>(std::vector<double>{1, 0.5, 0.1, 0});
  for (size_t i = 0; i < t.ins.size(); ++i) {
    if (spec.ins[i] == 'i') t.fill_ids(static_cast<int>(i), 0, 2);
  }
  if (spec.row == Row::adamw) {
    for (int64_t i = 0; i < 40; ++i) t.ins[3].set(i, std::fabs(t.ins[3].at(i)));
    for (int i = 4; i < 8; ++i) t.ins[i].set(0, 0.5);
  }
  return t;
}

std::string text_of(const Spec& spec) {
  return fmt::format("{} {}", info(spec.row).name, spec.rule);
}

void expect_runs(const Trial& t, const char* kernel, const std::string& what) {
  EXPECT_STREQ(t.fast().name, kernel) << what;
  const auto x = t.run(t.fast()), y = t.run_ref();
  for (size_t o = 0; o < x.size(); ++o) {
    double largest = 0;
    for (int64_t i = 0; i < y[o].tensor.elements(); ++i) {
      if (std::isfinite(y[o].at(i))) largest = std::max(largest, std::fabs(y[o].at(i)));
    }
    const double eps = t.out_types[o] == kBf16 ? 0x1p-7 : 1e-5;
    expect_close(
        x, y, o, [&](int64_t) { return eps * largest; }, what);
  }
}

TEST(Table, TheChosenKernelRuns) {
  for (const Spec& spec : kSpecs) {
    expect_runs(trial_of(spec, kF32, kF32, kF32), spec.f32, text_of(spec) + " f32");
    expect_runs(trial_of(spec, kBf16, kF32, kF32), spec.bf16, text_of(spec) + " bf16");
    expect_runs(trial_of(spec, kF64, kF64, kF64), "ref", text_of(spec) + " f64");
  }
}

// f64 tensors of a graph whose real is f32: what `real` says is not enough.
TEST(Table, DoubleRunsOnTheReference) {
  for (const Spec& spec : kSpecs) {
    expect_runs(trial_of(spec, kF64, kF32, kF64), "ref", text_of(spec) + " f64 in an f32 graph");
  }
}

TEST(Table, EveryFastKernelIsTried) {
  std::set<std::string> tried, all;
  for (const Spec& spec : kSpecs) tried.insert({spec.f32, spec.bf16});
  for (int row = 0; row < kRows; ++row) {
    const auto list = choices(static_cast<Row>(row));
    for (const KernelChoice& c : list) all.insert(c.name);
    if (!list.empty()) {
      EXPECT_STREQ(list.back().name, "ref");
    }
  }
  EXPECT_EQ(tried, all);
}

TEST(Table, SumsOfManyOperands) {
  for (int n : {16, 17}) {
    std::string rule = "d";
    for (int i = 1; i < n; ++i) rule += ",d";
    const Trial t(Row::add, rule + "->d", {"d", {1100}}, kF32);
    expect_runs(t, n == 16 ? "fast.add" : "ref", rule);
    EXPECT_STREQ(reason(t), n == 16 ? nullptr : "more than 16 operands");
  }
}

TEST(Table, RopeOfManyPairs) {
  struct {
    int64_t h;
    const char *kernel, *reason;
  } const cases[] = {{0, "ref", "no pairs"},
                     {2, "fast.rope", nullptr},
                     {1024, "fast.rope", nullptr},
                     {1026, "ref", "more than 512 pairs"}};
  for (const auto& c : cases) {
    Trial t(Row::rope, "bsgh,bs->bsgh", {"bsgh", {1, 3, 2, c.h}}, kF32, 1, {kF32, kI32});
    t.fill_ids(1, 0, 9);
    t.op.attrs.frequencies = std::make_shared<const std::vector<double>>(c.h / 2, 0.25);
    expect_runs(t, c.kernel, fmt::format("rope over {}", c.h));
    EXPECT_STREQ(reason(t), c.reason);
  }
}

TEST(Table, TopkOfMany) {
  struct {
    int64_t experts, k, groups, kept;
    const char* reason;
  } const cases[] = {{80, 64, 0, 0, nullptr},    {80, 65, 0, 0, "more than 64 choices"},
                     {512, 8, 256, 8, nullptr},  {514, 8, 257, 8, "more than 256 groups"},
                     {256, 8, 128, 64, nullptr}, {256, 8, 128, 65, "more than 64 groups stay"}};
  for (const auto& c : cases) {
    Trial t(Row::topk, "bsx->bsj", {"bsxj", {1, 3, c.experts, c.k}}, kF32);
    t.out_types = {kI32};
    t.op.attrs.k = c.k, t.op.attrs.groups = c.groups, t.op.attrs.kept_groups = c.kept;
    EXPECT_STREQ(reason(t), c.reason);
    EXPECT_STREQ(t.fast().name, c.reason ? "ref" : "fast.topk");
    EXPECT_TRUE(same_bits(t.run(t.fast()), t.run_ref())) << c.experts;
    EXPECT_EQ(choices(Row::topk)[0].scratch, nullptr) << "the reference's, not the fast kernel's";
  }
}

TEST(Table, ReasonsOfTypes) {
  const auto of = [](Row row, const char* rule, std::vector<DType> ins, std::vector<DType> outs) {
    Trial t(row, rule, {"bsdvj", {2, 3, 4, 5, 2}}, kF32, 1, std::move(ins));
    t.out_types = std::move(outs);
    return reason(t);
  };
  EXPECT_STREQ(of(Row::silu, "bsd->bsd", {kF64}, {kF64}), "f32 and bf16 only");
  EXPECT_STREQ(of(Row::cast, "->", {kF64}, {kF32}), "f32 and bf16 only");
  EXPECT_STREQ(of(Row::cast, "->", {kF32}, {kF64}), "f32 and bf16 only");
  EXPECT_STREQ(of(Row::softmax, "bsd->bsd", {kBf16}, {kBf16}), "f32 only");
  EXPECT_STREQ(of(Row::unpick, "bsj,bsj->bsv", {kF32, kI32}, {kF32}), "more than one index a row");
  EXPECT_STREQ(of(Row::scatter_rows, "bsd,bs->vd", {kBf16, kI32}, {kBf16}), "sums in a bf16 table");
  EXPECT_STREQ(of(Row::scatter_rows, "bsd,bs->vd", {kBf16, kI32}, {kF32}), nullptr);
  EXPECT_STREQ(of(Row::sum_exact, "d,d,d->", {kF32, kF32, kF32}, {DType::exact}),
               "products of more than two factors are rounded");
  EXPECT_STREQ(of(Row::sum_exact, "->", {kF64}, {DType::exact}), "f32 only");
}

// Nothing that decides is left to the kernels: they do not know the reference.
TEST(Table, FastKernelsDoNotCallTheReference) {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(MYRIAD_SOURCE "/src/kernels/fast")) {
    std::ifstream in(file.path());
    std::stringstream text;
    text << in.rdbuf();
    ++files;
    EXPECT_EQ(text.str().find("ref::"), std::string::npos) << file.path();
    EXPECT_EQ(text.str().find("kernels/ref/"), std::string::npos) << file.path();
  }
  EXPECT_GT(files, 10);
}

TEST(TableDeathTest, AKernelChecksItsTypes) {
  Trial t(Row::silu, "d->d", {"d", {4}}, kF64);
  EXPECT_DEATH(t.run(choices(Row::silu)[0]), "was given f64");
  Trial u(Row::softmax, "d->d", {"d", {4}}, kBf16);
  EXPECT_DEATH(u.run(choices(Row::softmax)[0]), "was given bf16");
}

}  // namespace
}  // namespace myriad
