// Contracts of every kind against their definition, point by point; which kernel the table chooses
// for which labels; and products of all sizes around the edges of tiles.
#include "kernels/fast/fast.h"
#include "kernels/trial.h"

namespace myriad {
namespace {

// By definition: every point decoded from its number. `magnitude`: with absolute values, for
// tolerances.
std::vector<double> einsum(const Trial& t, bool magnitude) {
  std::string labels = t.op.out_labels[0];
  for (const auto& l : t.op.in_labels)
    for (char c : l)
      if (labels.find(c) == std::string::npos) labels += c;
  int64_t n = 1, outs = 1;
  for (char c : labels) n *= t.op.size.at(c);
  for (char c : t.op.out_labels[0]) outs *= t.op.size.at(c);
  std::vector<double> y(static_cast<size_t>(outs));
  const auto offset = [&](const std::string& of, const std::vector<int64_t>& index) {
    int64_t at = 0;
    for (char c : of) at = at * t.op.size.at(c) + index[labels.find(c)];
    return at;
  };
  std::vector<int64_t> index(labels.size());
  for (int64_t p = 0; p < n; ++p) {
    int64_t rest = p;
    for (size_t d = labels.size(); d-- > 0;) {
      index[d] = rest % t.op.size.at(labels[d]);
      rest /= t.op.size.at(labels[d]);
    }
    double x = t.op.attrs.scale;
    for (size_t i = 0; i < t.ins.size(); ++i) x *= t.ins[i].at(offset(t.op.in_labels[i], index));
    y[offset(t.op.out_labels[0], index)] += magnitude ? std::fabs(x) : x;
  }
  return y;
}

double terms(const Trial& t) {
  double k = 1;
  for (size_t i = 0; i < t.op.size.labels.size(); ++i) {
    if (t.op.out_labels[0].find(t.op.size.labels[i]) == std::string::npos)
      k *= static_cast<double>(t.op.size.sizes[i]);
  }
  return k;
}

// Sizes for the labels of a rule, some of them 0 or 1.
LabelSizes sizes_for(const std::string& rule, uint32_t seed, const std::vector<int64_t>& from) {
  std::mt19937 random(seed);
  LabelSizes s;
  for (char c : rule) {
    if (c >= 'a' && c <= 'z' && s.find(c) < 0) s.set(c, from[random() % from.size()]);
  }
  return s;
}

// A rounding per factor and per term summed one after the other.
double bound(const Trial& t, double eps) {
  return eps * (terms(t) + static_cast<double>(t.ins.size()) + 2);
}

struct RuleCase {
  const char* rule;
  const char* kernel;  // that should take it
};

const RuleCase kRules[] = {
    // products: all orders of operands
    {"bsk,nk->bsn", "fast.gemm"},
    {"nk,bsk->bsn", "fast.gemm"},
    {"bsk,kn->bsn", "fast.gemm"},
    {"kn,bsk->bsn", "fast.gemm"},
    {"bsm,bsn->mn", "fast.gemm"},
    {"bsn,bsm->mn", "fast.gemm"},
    {"km,nk->mn", "fast.gemm"},
    {"bsd,grhd->bsgrh", "fast.gemm"},
    {"bsgru,dgru->bsd", "fast.gemm"},
    {"bsgrh,bsd->grhd", "fast.gemm"},
    {"bsgrh,grhd->bsd", "fast.gemm"},
    {"bsk,,nk->bsn", "fast.gemm"},
    // maps
    {"bsd,bs,d->bsd", "fast.map"},
    {"bsd,bsd->bsd", "fast.map"},
    {"bsd,->bsd", "fast.map"},
    {"bsd->bsd", "fast.map"},
    {"bs,bs,bs,bs->bs", "fast.map"},
    {"b,d->bd", "fast.map"},
    {",b->b", "fast.map"},
    // dots and sums
    {"bsd,bsd->bs", "fast.dot"},
    {"bsd->bs", "fast.dot"},
    {"bsd,bsd,d->bs", "fast.dot"},
    {"bs->", "fast.dot"},
    {"bsd,bs->", "fast.dot"},
    {"bsd,d->bs", "fast.dot"},
    {"d,bsd,bsd,bs->bs", "fast.dot"},
    {"bsd,d->", "fast.dot"},
    {"bsd->d", "fast.columns"},
    {"bsd,bs->d", "fast.columns"},
    {"bsd,bsd,bs->d", "fast.columns"},
    {"bsd,bsd,bs,->d", "fast.columns"},
    {"bsd->bd", "fast.columns"},
    {"bsgh->gh", "fast.columns"},
    // the rest
    {"abc->cba", "ref"},
    {"ab,bc,cd->ad", "fast.columns"},
    {",->", "ref"},
    {"bij,bjk->bik", "fast.columns"},
};

TEST(Contract, RefEqualsDefinition) {
  for (const RuleCase& c : kRules) {
    for (uint32_t seed = 0; seed < 8; ++seed) {
      Trial t(Row::contract, c.rule, sizes_for(c.rule, seed, {0, 1, 2, 3, 5}), DType::f64, seed);
      t.op.attrs.scale = seed % 2 ? 1 : -0.7;
      const auto y = t.run_ref();
      const auto want = einsum(t, false), size = einsum(t, true);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_LE(std::fabs(y[0].at(static_cast<int64_t>(i)) - want[i]),
                  bound(t, 0x1p-53) * 2 * size[i])
            << c.rule;
      }
    }
  }
}

void expect_fast_equals_definition(const RuleCase& c, const LabelSizes& sizes, uint32_t seed) {
  Trial t(Row::contract, c.rule, sizes, DType::f32, seed);
  t.op.attrs.scale = seed % 2 ? 1 : -0.7;
  const KernelChoice& kernel = t.fast();
  const auto y = t.run(kernel);
  const auto want = einsum(t, false), size = einsum(t, true);
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_LE(std::fabs(y[0].at(static_cast<int64_t>(i)) - want[i]), bound(t, 0x1p-24) * size[i])
        << c.rule << " by " << kernel.name;
  }
  expect_steady(t, kernel, c.rule);
}

TEST(Contract, FastEqualsDefinition) {
  for (const RuleCase& c : kRules) {
    for (uint32_t seed = 0; seed < 8; ++seed) {
      expect_fast_equals_definition(c, sizes_for(c.rule, seed, {0, 1, 3, 7, 17}), seed);
    }
  }
}

TEST(Contract, EachRuleHasItsKernel) {
  for (const RuleCase& c : kRules) {
    LabelSizes sizes;
    for (char l : std::string(c.rule)) {
      if (l >= 'a' && l <= 'z') sizes.set(l, 6);
    }
    EXPECT_STREQ(Trial(Row::contract, c.rule, sizes, DType::f32).fast().name, c.kernel) << c.rule;
    EXPECT_STREQ(Trial(Row::contract, c.rule, sizes, DType::f64).fast().name, "ref") << c.rule;
  }
}

// Sizes beyond a tile or block, against the reference (and that with absolute values, for the
// tolerance).
TEST(Contract, ManyTilesAndBlocks) {
  const LabelSizes all{"bskndm", {2, 211, 301, 405, 301, 50}};
  for (const char* rule : {"bsk,nk->bsn", "bsk,bsn->kn", "bsd,bs,d->bsd", "bsd,bsd->bs",
                           "bsd,bsd,bs->d", "bsd,bsd->"}) {
    LabelSizes sizes;
    for (char l : std::string(rule)) {
      if (all.find(l) >= 0) sizes.set(l, all.at(l));
    }
    const Trial t(Row::contract, rule, sizes, DType::f32);
    Trial magnitude = t;
    for (const Block& x : magnitude.ins) {
      for (int64_t i = 0; i < x.tensor.elements(); ++i) x.set(i, std::fabs(x.at(i)));
    }
    const auto size = magnitude.run_ref();
    expect_close(
        t.run(t.fast()), t.run_ref(), 0,
        [&](int64_t i) { return bound(t, 0x1p-24) * size[0].at(i); }, rule);
    expect_steady(t, t.fast(), rule);
  }
}

TEST(Contract, ScalarOfAnotherType) {
  Trial t(Row::contract, "bsd,->bsd", {"bsd", {2, 3, 33}}, DType::f32, 1, {DType::f32, DType::f64});
  t.ins[1].set(0, 0.3);
  const auto y = t.run(t.fast());
  for (int64_t i = 0; i < y[0].tensor.elements(); ++i) {
    EXPECT_FLOAT_EQ(static_cast<float>(y[0].at(i)), static_cast<float>(0.3 * t.ins[0].at(i)));
  }
}

TEST(Broadcast, FastEqualsRef) {
  for (const char* rule : {"bs->bsd", "d->bsd", "->bsd", "bs->bs", "bd->bsd"}) {
    for (uint32_t seed = 0; seed < 4; ++seed) {
      Trial t(Row::broadcast, rule, sizes_for("bsd", seed, {0, 1, 5, 19}), DType::f32);
      t.op.attrs.scale = 3;  // not read
      EXPECT_TRUE(same_bits(t.run_ref(), t.run(t.fast()))) << rule;
      expect_steady(t, t.fast(), rule);
    }
  }
}

// What a tile of a product gives must not depend on uninitialised memory, or on NaN in it.
TEST(Contract, NaNStaysInItsRow) {
  Trial t(Row::contract, "mk,nk->mn", {"mkn", {20, 30, 40}}, DType::f32);
  t.ins[0].set(30 * 4, NAN);
  const auto y = t.run(t.fast());
  for (int64_t i = 0; i < 20 * 40; ++i) EXPECT_EQ(std::isnan(y[0].at(i)), i / 40 == 4);
}

// A row in any company, and any column beside any other, to the bit.
TEST(Contract, FewRowsDoNotKnowOfEachOther) {
  for (const char* rule : {"bsd,fd->bsf", "bsd,df->bsf"}) {
    for (int64_t d : {1, 7, 130, 1000}) {
      for (int64_t f : {1, 3, 150}) {
        const Trial all(Row::contract, rule, {"bsdf", {fast::kFewRows, 1, d, f}}, DType::f32);
        ASSERT_EQ(all.fast().name, std::string("fast.few"));
        expect_steady(all, all.fast(), rule);
        const auto y = all.run(all.fast()), ref = all.run_ref();
        const std::vector<double> magnitude = einsum(all, true);
        expect_close(
            y, ref, 0, [&](int64_t i) { return bound(all, 0x1p-24) * magnitude[i]; }, rule);
        for (int64_t m : {1, 2, 5}) {  // the last m rows by themselves
          Trial few(Row::contract, rule, {"bsdf", {m, 1, d, f}}, DType::f32);
          const int64_t skipped = fast::kFewRows - m;
          for (int64_t i = 0; i < m * d; ++i) few.ins[0].set(i, all.ins[0].at(skipped * d + i));
          few.ins[1] = all.ins[1];
          const auto z = few.run(few.fast());
          for (int64_t i = 0; i < m * f; ++i)
            ASSERT_EQ(z[0].at(i), y[0].at(skipped * f + i))
                << rule << " " << m << " rows, " << d << ", " << f;
        }
      }
    }
  }
}

}  // namespace
}  // namespace myriad
