// Routers: scores, choices with ties and groups, counting, capacity, rounds and the balancing bias,
// against plain code that follows the definitions.
#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "kernels/rows.h"
#include "kernels/trial.h"

namespace myriad {
namespace {

constexpr double kEps = 0x1p-24, kInf = std::numeric_limits<double>::infinity();

TEST(Sigmoid, FastEqualsRef) {
  for (int64_t n : {0, 1, 17, 16384 + 5}) {
    Trial t(Row::sigmoid, "d->d", {"d", {n}}, DType::f32);
    for (int64_t i = 0; i < n; i += 3) t.ins[0].set(i, t.ins[0].at(i) * 50);
    expect_close(
        t.run(t.fast()), t.run_ref(), 0, [](int64_t) { return 8 * kEps; }, "sigmoid");
    expect_steady(t, t.fast(), "sigmoid");
  }
}

TEST(Sigmoid, GradIsTheSlope) {
  Trial t(Row::sigmoid, "d->d", {"d", {30}}, DType::f64), lo = t, hi = t;
  Trial g(Row::sigmoid_grad, "d,d->d", {"d", {30}}, DType::f64, 2);
  g.ins[0] = t.run_ref()[0];
  for (int64_t i = 0; i < 30; ++i) {
    EXPECT_DOUBLE_EQ(g.ins[0].at(i), 1 / (1 + std::exp(-t.ins[0].at(i))));
    lo.ins[0].set(i, t.ins[0].at(i) - 1e-5), hi.ins[0].set(i, t.ins[0].at(i) + 1e-5);
  }
  const auto dx = g.run_ref(), a = lo.run_ref(), b = hi.run_ref();
  for (int64_t i = 0; i < 30; ++i) {
    EXPECT_NEAR(dx[0].at(i), g.ins[1].at(i) * (b[0].at(i) - a[0].at(i)) / 2e-5, 1e-9);
  }
}

TEST(Softmax, EqualsDefinition) {
  for (int64_t x : {1, 2, 8, 17, 192, 257}) {
    for (int64_t s : {0, 5, 100}) {
      for (DType real : {DType::f32, DType::f64}) {
        Trial t(Row::softmax, "bsx->bsx", {"bsx", {2, s, x}}, real);
        for (int64_t i = 0; i < 2 * s * x; ++i) t.ins[0].set(i, t.ins[0].at(i) * 8 + 500);
        const auto y = t.run(t.fast());
        const double eps = real == DType::f32 ? kEps : 0x1p-53;
        for (int64_t i = 0; i < 2 * s * x; ++i) {
          double sum = 0;  // of exp(z' - z)
          for (int64_t k = i / x * x; k < (i / x + 1) * x; ++k) {
            sum += std::exp(t.ins[0].at(k) - t.ins[0].at(i));
          }
          // exp, its sum, and the quotient
          ASSERT_NEAR(y[0].at(i), 1 / sum, (static_cast<double>(x) + 16) * eps / sum + 1e-37);
        }
        expect_steady(t, t.fast(), "softmax");
      }
    }
  }
}

TEST(Softmax, NaNIsNotHidden) {
  for (KernelSet set : {KernelSet::ref, KernelSet::fast}) {
    Trial t(Row::softmax, "bsx->bsx", {"bsx", {1, 2, 20}}, DType::f32);
    t.ins[0].set(23, NAN);
    const auto y = t.run(choose(t.op, t.op.size, t.real, set));
    EXPECT_TRUE(std::isfinite(y[0].at(3)));
    EXPECT_TRUE(std::isnan(y[0].at(23)) && std::isnan(y[0].at(30)));
  }
}

struct Choosing {
  int64_t b, s, x, k, groups, kept;
  bool bias;
};

// By sorting all experts of a token.
std::vector<int64_t> sorted_choice(const Trial& t, const Choosing& c, int64_t token) {
  std::vector<double> z(static_cast<size_t>(c.x));
  for (int64_t i = 0; i < c.x; ++i) {
    z[i] = t.ins[0].at(token * c.x + i) + (c.bias ? t.ins[1].at(i) : 0);
  }
  const auto order = [](const std::vector<double>& of) {
    std::vector<int64_t> at(of.size());
    std::iota(at.begin(), at.end(), 0);
    std::stable_sort(at.begin(), at.end(), [&](int64_t a, int64_t b) { return of[a] > of[b]; });
    return at;
  };
  if (c.groups > 0) {
    const int64_t size = c.x / c.groups;
    std::vector<double> of_group;
    for (int64_t g = 0; g < c.groups; ++g) {
      std::vector<double> mine(z.begin() + g * size, z.begin() + (g + 1) * size);
      std::sort(mine.rbegin(), mine.rend());
      of_group.push_back(size > 1 ? mine[0] + mine[1] : mine[0]);
    }
    const auto best = order(of_group);
    for (size_t i = static_cast<size_t>(c.kept); i < best.size(); ++i) {
      std::fill_n(z.begin() + best[i] * size, size, -kInf);
    }
  }
  auto at = order(z);
  at.resize(static_cast<size_t>(c.k));
  return at;
}

Trial choosing(const Choosing& c, DType real, uint32_t seed) {
  Trial t(Row::topk, c.bias ? "bsx,x->bsj" : "bsx->bsj", {"bsxj", {c.b, c.s, c.x, c.k}}, real,
          seed);
  t.op.attrs.k = c.k, t.op.attrs.groups = c.groups, t.op.attrs.kept_groups = c.kept;
  t.out_types[0] = DType::i32;
  if (seed % 2 == 0) {  // many ties
    for (const Block& in : t.ins) {
      for (int64_t i = 0; i < in.tensor.elements(); ++i) in.set(i, std::round(in.at(i)));
    }
  }
  return t;
}

TEST(TopK, EqualsSorting) {
  for (const Choosing& c : {Choosing{2, 7, 8, 2, 0, 0, false},
                            {1, 30, 16, 4, 0, 0, true},
                            {3, 9, 24, 5, 6, 2, true},
                            {1, 40, 192, 8, 8, 4, true},
                            {2, 5, 6, 3, 6, 3, false},
                            {1, 3, 7, 7, 0, 0, false},
                            {1, 3, 1, 1, 1, 1, true},
                            {0, 3, 8, 2, 0, 0, false},
                            {2, 0, 8, 2, 4, 2, true},
                            {1, 3, 100, 70, 0, 0, false}}) {
    for (uint32_t seed = 0; seed < 6; ++seed) {
      for (DType real : {DType::f32, DType::f64}) {
        const Trial t = choosing(c, real, seed);
        const auto y = t.run_ref();
        EXPECT_TRUE(same_bits(y, t.run(t.fast())));
        for (int64_t token = 0; token < c.b * c.s; ++token) {
          const auto want = sorted_choice(t, c, token);
          for (int64_t j = 0; j < c.k; ++j) ASSERT_EQ(y[0].at(token * c.k + j), want[j]);
        }
        expect_steady(t, t.fast(), "topk");
      }
    }
  }
}

TEST(TopK, NaNAndInfinityGiveExperts) {
  for (KernelSet set : {KernelSet::ref, KernelSet::fast}) {
    Trial t(Row::topk, "bsx->bsj", {"bsxj", {1, 2, 4, 3}}, DType::f32);
    t.op.attrs.k = 3;
    t.out_types[0] = DType::i32;
    for (int64_t i = 0; i < 8; ++i) t.ins[0].set(i, i < 4 ? NAN : -kInf);
    t.ins[0].set(2, kInf);
    const auto y = t.run(choose(t.op, t.op.size, t.real, set));
    const double want[] = {2, 0, 1, 0, 1, 2};
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(y[0].at(i), want[i]);
    // A group of inf and NaN counts as -inf: the second stays.
    Trial g(Row::topk, "bsx->bsj", {"bsxj", {1, 1, 4, 2}}, DType::f32);
    g.op.attrs.k = 2, g.op.attrs.groups = 2, g.op.attrs.kept_groups = 1;
    g.out_types[0] = DType::i32;
    const double x[] = {kInf, NAN, 1, 2};
    for (int64_t i = 0; i < 4; ++i) g.ins[0].set(i, x[i]);
    const auto z = g.run(choose(g.op, g.op.size, g.real, set));
    EXPECT_EQ(z[0].at(0), 3);
    EXPECT_EQ(z[0].at(1), 2);
  }
}

// Choices "bsj" of distinct experts, some of them -1.
enum class Spread { even, one, few };
void choose_experts(const Block& choices, int64_t experts, Spread spread, uint32_t seed) {
  std::mt19937 random(seed);
  const int64_t k = choices.tensor.size[2],
                tokens = choices.tensor.size[0] * choices.tensor.size[1];
  std::vector<int> all(static_cast<size_t>(experts));
  std::iota(all.begin(), all.end(), 0);
  for (int64_t t = 0; t < tokens; ++t) {
    if (spread != Spread::one) {
      std::shuffle(all.begin(), spread == Spread::few ? all.begin() + k : all.end(), random);
    }
    for (int64_t j = 0; j < k; ++j) {
      choices.set(t * k + j, spread != Spread::one && random() % 5 == 0 ? -1 : all[j]);
    }
  }
}

Trial counting(Row row, const std::string& rule, const LabelSizes& sizes, int64_t experts,
               Spread spread, DType real = DType::f32) {
  Trial t(row, rule, sizes, real, 1, {DType::i32});
  t.op.attrs.experts = experts;
  choose_experts(t.ins[0], experts, spread, 11);
  return t;
}

const LabelSizes kTokens[] = {
    {"bsj", {2, 17, 2}}, {"bsj", {3, 40, 4}}, {"bsj", {1, 1, 1}},
    {"bsj", {0, 5, 2}},  {"bsj", {3, 0, 2}},
};
const Spread kSpreads[] = {Spread::even, Spread::one, Spread::few};

TEST(Count, EqualsDefinition) {
  for (LabelSizes sizes : kTokens) {
    for (Spread spread : kSpreads) {
      for (DType real : {DType::f32, DType::f64}) {
        sizes.set('x', 5);
        Trial t = counting(Row::count, "bsj->x", sizes, 9, spread, real);
        Trial by_b = counting(Row::count, "bsj->bx", sizes, 9, spread, real);
        t.lo['x'] = by_b.lo['x'] = 3;  // experts [3, 8) of 9
        const auto y = t.run_ref(), z = by_b.run_ref();
        const int64_t per_b = sizes.at('s') * sizes.at('j');
        for (int64_t x = 0; x < 5; ++x) {
          double sum = 0;
          for (int64_t b = 0; b < sizes.at('b'); ++b) {
            double n = 0;
            for (int64_t i = b * per_b; i < (b + 1) * per_b; ++i)
              n += t.ins[0].at(i) == 3.0 + static_cast<double>(x);
            EXPECT_EQ(z[0].at(b * 5 + x), n);
            sum += n;
          }
          EXPECT_EQ(y[0].at(x), sum);
        }
      }
    }
  }
  Trial whole = counting(Row::count, "bsj->x", {"bsjx", {1, 6, 2, 4}}, 4, Spread::even);
  for (int64_t i = 0; i < 12; ++i) whole.ins[0].set(i, -1);
  const auto y = whole.run_ref();
  for (int64_t x = 0; x < 4; ++x) EXPECT_EQ(y[0].at(x), 0);
}

TEST(Fits, CountsEarlierChoices) {
  for (const LabelSizes& sizes : kTokens) {
    for (Spread spread : kSpreads) {
      for (int64_t capacity : {0, 1, 5, 1000}) {
        Trial t = counting(Row::fits, "bsj->bsj", sizes, 9, spread);
        t.op.attrs.capacity = capacity;
        const auto y = t.run_ref();
        for (int64_t i = 0; i < y[0].tensor.elements(); ++i) {
          int64_t before = 0;
          for (int64_t k = 0; k < i; ++k) before += t.ins[0].at(k) == t.ins[0].at(i);
          ASSERT_EQ(y[0].at(i), t.ins[0].at(i) >= 0 && before < capacity ? 1 : 0);
        }
      }
    }
  }
}

// The experts of owner p.
Range owned(int64_t experts, int64_t parts, int64_t p) {
  return {p * experts / parts, (p + 1) * experts / parts};
}

// Round after round keeps the next `bound` pairs of each owner's list.
void expect_windows_cut_the_lists(Trial t, int64_t experts, int64_t parts, int64_t bound,
                                  int64_t rounds) {
  const Range b = t.range('b'), s = t.range('s');
  for (int64_t p = 0; p < parts; ++p) {
    const Range e = owned(experts, parts, p);
    std::vector<int32_t> we, wb, ws, ge, gb, gs;  // wanted; got
    enumerate_rows(t.ins[0].tensor, e, b, s, we, wb, ws);
    for (int64_t round = 0; round < rounds; ++round) {
      t.round = round;
      const auto y = t.run_ref();
      std::vector<int32_t> re, rb, rs;
      enumerate_rows(y[0].tensor, e, b, s, re, rb, rs);
      ASSERT_TRUE(bound == 0 || static_cast<int64_t>(re.size()) <= bound);
      ge.insert(ge.end(), re.begin(), re.end());
      gb.insert(gb.end(), rb.begin(), rb.end());
      gs.insert(gs.end(), rs.begin(), rs.end());
    }
    ASSERT_EQ(we, ge);
    ASSERT_EQ(wb, gb);
    ASSERT_EQ(ws, gs);
  }
  std::vector<int> kept(static_cast<size_t>(t.ins[0].tensor.elements()));
  for (t.round = 0; t.round < rounds; ++t.round) {
    const auto y = t.run_ref();
    for (size_t i = 0; i < kept.size(); ++i) {
      const double got = y[0].at(static_cast<int64_t>(i));
      kept[i] += got >= 0;
      ASSERT_TRUE(got == -1 || got == t.ins[0].at(static_cast<int64_t>(i)));
    }
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    ASSERT_EQ(kept[i], t.ins[0].at(static_cast<int64_t>(i)) >= 0);
  }
}

TEST(Window, CutsTheListsOfOwners) {
  for (const LabelSizes& sizes : kTokens) {
    for (Spread spread : kSpreads) {
      for (int64_t parts : {1, 2, 3, 9, 12}) {
        for (int64_t bound : {0, 1, 7, 1000}) {
          Trial w = counting(Row::window, "bsj->bsj", sizes, 9, spread);
          w.out_types[0] = DType::i32;
          Trial r = counting(Row::rounds, "bsj->", sizes, 9, spread);
          r.out_types[0] = DType::i32;
          w.op.attrs.parts = r.op.attrs.parts = parts;
          w.op.attrs.bound = r.op.attrs.bound = bound;
          int64_t most = 0;
          for (int64_t p = 0; p < parts; ++p) {
            most = std::max(
                most, count_rows(w.ins[0].tensor, owned(9, parts, p), w.range('b'), w.range('s')));
          }
          const int64_t rounds = bound == 0 ? 1 : std::max<int64_t>(1, (most + bound - 1) / bound);
          ASSERT_EQ(r.run_ref()[0].at(0), static_cast<double>(rounds));
          if (bound != 1) expect_windows_cut_the_lists(w, 9, parts, bound, rounds);
        }
      }
    }
  }
}

// With nodes: every choice in one round, no owner above its bound, and a token's choices on a node
// together unless one owner alone has no room for its part of them.
TEST(Window, KeepsChoicesOnANodeTogether) {
  for (const LabelSizes& sizes : kTokens) {
    for (Spread spread : kSpreads) {
      for (const auto& [parts, nodes] : {std::pair<int64_t, int64_t>{4, 2}, {3, 3}, {12, 4}}) {
        for (int64_t bound : {1, 3, 7, 1000}) {
          Trial w = counting(Row::window, "bsj->bsj", sizes, 9, spread);
          w.out_types[0] = DType::i32;
          Trial r = counting(Row::rounds, "bsj->", sizes, 9, spread);
          r.out_types[0] = DType::i32;
          w.op.attrs.parts = r.op.attrs.parts = parts;
          w.op.attrs.bound = r.op.attrs.bound = bound;
          w.op.attrs.ranks_per_node = r.op.attrs.ranks_per_node = parts / nodes;
          w.nodes = r.nodes = w.op.attrs.nodes(0);
          const auto rounds = static_cast<int64_t>(r.run_ref()[0].at(0));
          const int64_t all = w.ins[0].tensor.elements(), k = w.ins[0].tensor.size[2];
          std::vector<int64_t> round_of(static_cast<size_t>(all), -1);
          for (w.round = 0; w.round < rounds; ++w.round) {
            const auto y = w.run_ref();
            std::vector<int64_t> taken(static_cast<size_t>(parts));
            for (int64_t i = 0; i < all; ++i) {
              if (y[0].at(i) < 0) continue;
              ASSERT_EQ(y[0].at(i), w.ins[0].at(i));
              ASSERT_EQ(round_of[static_cast<size_t>(i)], -1);
              round_of[static_cast<size_t>(i)] = w.round;
              for (int64_t p = 0; p < parts; ++p) {
                const Range e = owned(9, parts, p);
                if (y[0].at(i) >= static_cast<double>(e.lo) &&
                    y[0].at(i) < static_cast<double>(e.hi))
                  ASSERT_LE(++taken[static_cast<size_t>(p)], bound);
              }
            }
          }
          for (int64_t i = 0; i < all; ++i) {
            ASSERT_EQ(round_of[static_cast<size_t>(i)] >= 0, w.ins[0].at(i) >= 0);
            for (int64_t j = i / k * k; j < i && bound >= k; ++j) {
              const auto node = [&](int64_t at) {
                const auto e = static_cast<int64_t>(w.ins[0].at(at));
                return ((e + 1) * nodes - 1) / 9;
              };
              if (w.ins[0].at(i) < 0 || w.ins[0].at(j) < 0 || node(i) != node(j)) continue;
              ASSERT_EQ(round_of[static_cast<size_t>(i)], round_of[static_cast<size_t>(j)]);
            }
          }
        }
      }
    }
  }
}

TEST(Balance, StepsTowardsTheMean) {
  for (DType real : {DType::f32, DType::f64}) {
    Trial t(Row::balance, "x,x,->x", {"x", {3}}, real);
    t.op.attrs.a = 0.25, t.op.attrs.b = 10;
    t.ins[2].set(0, 0.5);  // the factor does not scale it
    for (int64_t i = 0; i < 3; ++i) t.ins[0].set(i, 1), t.ins[1].set(i, 9 + static_cast<double>(i));
    const auto y = t.run_ref();
    EXPECT_EQ(y[0].at(0), 1.25);
    EXPECT_EQ(y[0].at(1), 1);
    EXPECT_EQ(y[0].at(2), 0.75);
    t.ins[2].set(0, std::numeric_limits<double>::quiet_NaN());  // a step without an update
    const auto same = t.run_ref();
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(same[0].at(i), 1);
  }
}

TEST(Pick, SeveralAToken) {
  for (KernelSet set : {KernelSet::ref, KernelSet::fast}) {
    for (const LabelSizes& tokens : kTokens) {
      LabelSizes sizes = tokens;
      sizes.set('x', 6);
      Trial p(Row::pick, "bsx,bsj->bsj", sizes, DType::f32, 1, {DType::f32, DType::i32});
      choose_experts(p.ins[1], 9, Spread::even, 3);
      Trial u(Row::unpick, "bsj,bsj->bsx", sizes, DType::f32, 2, {DType::f32, DType::i32});
      u.ins[1] = p.ins[1];
      p.lo['x'] = u.lo['x'] = 2;
      const auto y = p.run(choose(p.op, p.op.size, p.real, set)),
                 z = u.run(choose(u.op, u.op.size, u.real, set));
      const int64_t n = y[0].tensor.elements(), k = sizes.at('j');
      std::vector<double> want(static_cast<size_t>(z[0].tensor.elements()));
      for (int64_t i = 0; i < n; ++i) {
        const int64_t x = static_cast<int64_t>(p.ins[1].at(i)) - 2;
        const bool here = x >= 0 && x < 6;
        ASSERT_EQ(y[0].at(i), here ? p.ins[0].at(i / k * 6 + x) : 0);
        if (here) want[i / k * 6 + x] = u.ins[0].at(i);
      }
      for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(z[0].at(static_cast<int64_t>(i)), want[i]);
    }
  }
}

TEST(Table, EachRowEndsWithItsReference) {
  for (int i = 0; i < kRows; ++i) {
    const Row row = static_cast<Row>(i);
    const auto list = choices(row);
    const bool moves_state = row == Row::read || row == Row::write || row == Row::accum;
    EXPECT_EQ(list.empty(), moves_state) << i;
    std::set<std::string> names;
    for (const KernelChoice& c : list) {
      EXPECT_TRUE(names.insert(c.name).second && c.run != nullptr && c.declines != nullptr)
          << c.name;
    }
    if (list.empty()) continue;
    EXPECT_STREQ(list.back().name, "ref");
    EXPECT_EQ(list.back().declines({}, {}, DType::f64), nullptr);
  }
}

}  // namespace
}  // namespace myriad
