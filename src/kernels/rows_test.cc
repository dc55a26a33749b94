// Routed rows: their enumeration, the ops between tokens and rows, and products by expert, against
// definitions that look at one pair at a time.
#include "kernels/rows.h"

#include <algorithm>
#include <numeric>

#include "kernels/grouped.h"
#include "kernels/trial.h"

namespace myriad {
namespace {

constexpr double kEps = 0x1p-24;

struct Lists {
  std::vector<int32_t> e, b, s;
  RowSet set() const { return {static_cast<int64_t>(e.size()), e.data(), b.data(), s.data()}; }
};

// A rank's part: experts e, rows b and positions s, of choices over [0, experts).
struct Case {
  int64_t experts, k;
  Range e, b, s;
  int64_t width;
  bool one = false;  // all tokens choose the same experts
};
const Case kCases[] = {
    {8, 2, {0, 8}, {0, 3}, {0, 17}, 33},      {9, 3, {3, 7}, {2, 5}, {4, 15}, 5},
    {16, 4, {5, 6}, {1, 2}, {0, 300}, 70},    {8, 2, {0, 3}, {0, 3}, {0, 11}, 8, true},
    {8, 2, {4, 8}, {0, 3}, {0, 11}, 8, true}, {8, 2, {4, 4}, {0, 3}, {0, 11}, 8},
    {8, 2, {0, 8}, {2, 2}, {0, 11}, 8},       {8, 2, {0, 8}, {1, 3}, {5, 5}, 8},
    {40, 20, {0, 40}, {0, 1}, {0, 9}, 3},     {5, 1, {1, 4}, {0, 2}, {0, 9}, 0},
};

Block choices_of(const Case& c, uint32_t seed) {
  Block choices;
  choices.make(DType::i32, "bsj", {"bsj", {c.b.size(), c.s.size(), c.k}});
  choices.tensor.lo[0] = c.b.lo, choices.tensor.lo[1] = c.s.lo;
  std::mt19937 random(seed);
  std::vector<int> all(static_cast<size_t>(c.experts));
  std::iota(all.begin(), all.end(), 0);
  for (int64_t t = 0; t < c.b.size() * c.s.size(); ++t) {
    if (!c.one) std::shuffle(all.begin(), all.end(), random);
    for (int64_t j = 0; j < c.k; ++j) choices.set(t * c.k + j, random() % 6 == 0 ? -1 : all[j]);
  }
  return choices;
}

int64_t find(const Case& c, const Block& choices, int64_t e, int64_t b, int64_t s) {
  for (int64_t j = 0; j < c.k; ++j) {
    if (choices.at((b * c.s.size() + s) * c.k + j) == static_cast<double>(c.e.lo + e)) return j;
  }
  return -1;
}

// By asking for every pair.
Lists listed(const Case& c, const Block& choices) {
  Lists rows;
  for (int64_t e = 0; e < c.e.size(); ++e)
    for (int64_t b = 0; b < c.b.size(); ++b)
      for (int64_t s = 0; s < c.s.size(); ++s) {
        if (find(c, choices, e, b, s) < 0) continue;
        rows.e.push_back(static_cast<int32_t>(e));
        rows.b.push_back(static_cast<int32_t>(b));
        rows.s.push_back(static_cast<int32_t>(s));
      }
  return rows;
}

TEST(Rows, EnumerateABox) {
  for (const Case& c : kCases) {
    for (uint32_t seed = 0; seed < 4; ++seed) {
      const Block choices = choices_of(c, seed);
      const Lists want = listed(c, choices);
      Lists got{{1, 2}, {}, {3}};  // what was there before is lost
      enumerate_rows(choices.tensor, c.e, c.b, c.s, got.e, got.b, got.s);
      EXPECT_EQ(got.e, want.e);
      EXPECT_EQ(got.b, want.b);
      EXPECT_EQ(got.s, want.s);
      EXPECT_EQ(count_rows(choices.tensor, c.e, c.b, c.s), want.set().n);
    }
  }
}

TEST(Rows, BoxInsideTheChoices) {
  const Case whole{7, 2, {0, 7}, {3, 8}, {10, 30}, 1};
  const Block choices = choices_of(whole, 5);
  const Range e{2, 5}, b{4, 7}, s{13, 20};
  Lists rows;
  enumerate_rows(choices.tensor, e, b, s, rows.e, rows.b, rows.s);
  const Lists all = listed(whole, choices);
  int64_t n = 0;
  for (size_t i = 0; i < all.e.size(); ++i) {
    const int64_t ge = all.e[i], gb = all.b[i] + 3, gs = all.s[i] + 10;
    if (ge < e.lo || ge >= e.hi || gb < b.lo || gb >= b.hi || gs < s.lo || gs >= s.hi) continue;
    ASSERT_LT(n, rows.set().n);
    EXPECT_EQ(rows.e[n] + e.lo, ge);
    EXPECT_EQ(rows.b[n] + b.lo, gb);
    EXPECT_EQ(rows.s[n] + s.lo, gs);
    ++n;
  }
  EXPECT_EQ(n, rows.set().n);
}

Trial routed(Row row, const char* rule, const Case& c, const RowSet& rows, const Block& choices,
             DType real) {
  Trial t(row, rule, {"ebsdj", {c.e.size(), c.b.size(), c.s.size(), c.width, c.k}}, real, 3,
          {real, DType::i32}, 0, &rows);
  t.lo = {{'e', c.e.lo}, {'b', c.b.lo}, {'s', c.s.lo}};
  t.ins[1] = choices;
  return t;
}

// The node of an expert: the only part of the experts that contains it.
int64_t node_of(int64_t expert, int64_t nodes, int64_t experts) {
  int64_t p = 0;
  while (expert >= (p + 1) * experts / nodes) ++p;
  return p;
}

Block leads_of(const Case& c, const Block& choices, int64_t nodes) {
  Trial t(Row::leads, "bsj->bsj", {"bsj", {c.b.size(), c.s.size(), c.k}}, DType::f32, 1,
          {DType::i32});
  t.op.attrs.experts = c.experts;
  t.nodes = {.owners = nodes, .ranks_per_node = 1};
  t.out_types = {DType::i32};
  t.ins[0] = choices;
  Block leads = std::move(t.run_ref()[0]);
  leads.tensor.lo[0] = c.b.lo, leads.tensor.lo[1] = c.s.lo;
  return leads;
}

TEST(Rows, TheLowestExpertOfANodeLeads) {
  for (const Case& c : kCases) {
    for (int64_t nodes : {int64_t{1}, int64_t{2}, int64_t{3}, c.experts}) {
      const Block choices = choices_of(c, 3), leads = leads_of(c, choices, nodes);
      for (int64_t t = 0; t < c.b.size() * c.s.size(); ++t) {
        for (int64_t j = 0; j < c.k; ++j) {
          const auto e = static_cast<int64_t>(choices.at(t * c.k + j));
          bool lowest = e >= 0;
          for (int64_t i = 0; i < c.k; ++i) {
            const auto o = static_cast<int64_t>(choices.at(t * c.k + i));
            if (e >= 0 && o >= 0 && o < e)
              lowest &= node_of(o, nodes, c.experts) != node_of(e, nodes, c.experts);
          }
          ASSERT_EQ(leads.at(t * c.k + j), lowest ? static_cast<double>(e) : -1);
        }
      }
    }
  }
}

double dot(const Block& a, const Block& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.tensor.elements(); ++i) sum += a.at(i) * b.at(i);
  return sum;
}

// On boxes that hold whole nodes.
TEST(Rows, SpreadAndCollapse) {
  for (const auto& [c, nodes] : {std::pair(Case{8, 2, {0, 8}, {0, 3}, {0, 17}, 33}, 2),
                                 {Case{9, 3, {3, 6}, {2, 5}, {4, 15}, 5}, 3},
                                 {Case{7, 4, {2, 7}, {0, 2}, {1, 9}, 4}, 3},
                                 {Case{8, 3, {4, 8}, {0, 3}, {0, 11}, 8, true}, 2},
                                 {Case{8, 2, {0, 8}, {2, 2}, {0, 11}, 8}, 4}}) {
    const Block choices = choices_of(c, 2), leads = leads_of(c, choices, nodes);
    const Lists all = listed(c, choices), first = listed(c, leads);
    const RowSet all_set = all.set(), first_set = first.set();
    const auto trial = [&](Row row, const RowSet& of_input) {
      Trial t(row, "ebsd,bsj,bsj->ebsd",
              {"ebsdj", {c.e.size(), c.b.size(), c.s.size(), c.width, c.k}}, DType::f64, 5,
              {DType::f64, DType::i32, DType::i32}, 0, &of_input);
      t.rows = &all_set;
      t.leads = &first_set;
      t.op.attrs.experts = c.experts;
      t.nodes = {.owners = nodes, .ranks_per_node = 1};
      t.lo = {{'e', c.e.lo}, {'b', c.b.lo}, {'s', c.s.lo}};
      t.ins[1] = leads;
      t.ins[2] = choices;
      return t;
    };
    const Trial spread = trial(Row::spread, first_set), collapse = trial(Row::collapse, all_set);
    const auto y = spread.run_ref(), x = collapse.run_ref();
    for (size_t i = 0; i < all.e.size(); ++i) {
      size_t lead = 0;
      const auto node = [&](int32_t e) { return node_of(c.e.lo + e, nodes, c.experts); };
      while (first.b[lead] != all.b[i] || first.s[lead] != all.s[i] ||
             node(first.e[lead]) != node(all.e[i]))
        ++lead;
      const auto row = static_cast<int64_t>(i), from = static_cast<int64_t>(lead);
      for (int64_t d = 0; d < c.width; ++d)
        ASSERT_EQ(y[0].at(row * c.width + d), spread.ins[0].at(from * c.width + d));
    }
    const double forth = dot(y[0], collapse.ins[0]), back = dot(spread.ins[0], x[0]);
    EXPECT_NEAR(forth, back, 1e-12 * (1 + std::fabs(forth)));
  }
}

TEST(Rows, DispatchAndCombine) {
  for (const Case& c : kCases) {
    for (DType real : {DType::f32, DType::f64}) {
      const Block choices = choices_of(c, 1);
      const Lists lists = listed(c, choices);
      const RowSet rows = lists.set();
      const Trial d = routed(Row::dispatch, "bsd,bsj->ebsd", c, rows, choices, real);
      const Trial m = routed(Row::combine, "ebsd,bsj->bsd", c, rows, choices, real);
      Meter meter;
      const auto x = d.run(d.fast()), y = m.run(m.fast(), nullptr, &meter);
      EXPECT_EQ(meter.flops, static_cast<double>(rows.n * c.width));
      EXPECT_TRUE(same_bits(x, d.run_ref()));
      EXPECT_TRUE(same_bits(y, m.run_ref()));
      expect_steady(d, d.fast(), "dispatch");
      expect_steady(m, m.fast(), "combine");
      std::vector<double> sum(static_cast<size_t>(y[0].tensor.elements())), size(sum);
      for (int64_t i = 0; i < rows.n; ++i) {
        const int64_t token = rows.b[i] * c.s.size() + rows.s[i];
        for (int64_t k = 0; k < c.width; ++k) {
          ASSERT_EQ(x[0].at(i * c.width + k), d.ins[0].at(token * c.width + k));
          sum[token * c.width + k] += m.ins[0].at(i * c.width + k);
          size[token * c.width + k] += std::fabs(m.ins[0].at(i * c.width + k));
        }
      }
      for (size_t i = 0; i < sum.size(); ++i) {
        ASSERT_NEAR(y[0].at(static_cast<int64_t>(i)), sum[i],
                    static_cast<double>(c.k) * kEps * size[i]);
      }
      if (real == DType::f64) {
        EXPECT_NEAR(dot(x[0], m.ins[0]), dot(d.ins[0], y[0]), 1e-10);
      }
    }
  }
}

// The output may cover more than the rows' box: what lies outside is zero.
TEST(Rows, CombineIntoMoreTokens) {
  const Case c = {6, 2, {0, 6}, {2, 4}, {3, 10}, 5};
  const Block choices = choices_of(c, 4);
  const Lists lists = listed(c, choices);
  const RowSet rows = lists.set();
  for (DType real : {DType::f32, DType::bf16}) {
    const Trial m = routed(Row::combine, "ebsd,bsj->bsd", c, rows, choices, real);
    const Block exact = m.run_ref()[0];
    Block wide;
    wide.make(real, "bsd", {"bsd", {5, 12, 5}});
    wide.tensor.lo[0] = 1, wide.tensor.lo[1] = 1;
    const Tensor ins[] = {m.ins[0].tensor, choices.tensor}, outs[] = {wide.tensor};
    const KernelChoice& kernel = choose(m.op, m.op.size, DType::f32, KernelSet::fast);
    EXPECT_STREQ(kernel.name, "fast.combine");
    std::vector<std::byte> scratch(kernel.scratch(m.op, m.op.size, DType::f32));
    const KernelCall call{.op = &m.op,
                          .ins = ins,
                          .outs = outs,
                          .local = m.op.size,
                          .scratch = scratch.data(),
                          .scratch_bytes = scratch.size(),
                          .rows = &rows,
                          .e = c.e,
                          .b = c.b,
                          .s = c.s};
    EXPECT_EQ(kernel.run(call), KernelStatus::ok);
    for (int64_t b = 0; b < 5; ++b) {
      for (int64_t s = 0; s < 12; ++s) {
        const int64_t in_b = b + 1 - c.b.lo, in_s = s + 1 - c.s.lo;
        const bool inside = in_b >= 0 && in_b < 2 && in_s >= 0 && in_s < 7;
        for (int64_t d = 0; d < 5; ++d) {
          ASSERT_EQ(wide.at((b * 12 + s) * 5 + d),
                    inside ? exact.at((in_b * 7 + in_s) * 5 + d) : 0);
        }
      }
    }
    EXPECT_TRUE(wide.guarded());
  }
}

TEST(Rows, WeightsThereAndBack) {
  for (const Case& c : kCases) {
    for (DType real : {DType::f32, DType::f64}) {
      const Block choices = choices_of(c, 2);
      const Lists lists = listed(c, choices);
      const RowSet rows = lists.set();
      const Trial d = routed(Row::dispatch_w, "bsj,bsj->ebs", c, rows, choices, real);
      const Trial m = routed(Row::collect_w, "ebs,bsj->bsj", c, rows, choices, real);
      const auto x = d.run(d.fast()), y = m.run(m.fast());
      std::vector<double> want(static_cast<size_t>(y[0].tensor.elements()));
      for (int64_t i = 0; i < rows.n; ++i) {
        const int64_t at = (rows.b[i] * c.s.size() + rows.s[i]) * c.k +
                           find(c, choices, rows.e[i], rows.b[i], rows.s[i]);
        ASSERT_EQ(x[0].at(i), d.ins[0].at(at));
        want[at] = m.ins[0].at(i);
      }
      for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(y[0].at(static_cast<int64_t>(i)), want[i]);
      EXPECT_NEAR(dot(x[0], m.ins[0]), dot(d.ins[0], y[0]), 1e-10);
    }
  }
}

// Routed rows of a part of a larger dense tensor.
TEST(Rows, DenseTensorCoversMore) {
  const Case c{6, 2, {1, 5}, {2, 4}, {3, 9}, 4};
  const Block choices = choices_of(c, 3);
  const Lists lists = listed(c, choices);
  const RowSet rows = lists.set();
  for (KernelSet set : {KernelSet::ref, KernelSet::fast}) {
    const Trial d = routed(Row::dispatch, "bsd,bsj->ebsd", c, rows, choices, DType::f32);
    Block wide, narrow = d.run_ref()[0];
    wide.make(DType::f32, "bsd", {"bsd", {5, 12, 4}});
    for (int64_t i = 0; i < 5 * 12 * 4; ++i) wide.set(i, static_cast<double>(i));
    wide.tensor.lo[0] = 1;
    const Tensor ins[] = {wide.tensor, choices.tensor}, outs[] = {narrow.tensor};
    const KernelCall call{.op = &d.op,
                          .ins = ins,
                          .outs = outs,
                          .local = d.op.size,
                          .rows = &rows,
                          .e = c.e,
                          .b = c.b,
                          .s = c.s};
    EXPECT_EQ(choose(d.op, d.op.size, d.real, set).run(call), KernelStatus::ok);
    for (int64_t i = 0; i < rows.n; ++i) {
      const int64_t token = (rows.b[i] + 1) * 12 + rows.s[i] + 3;
      for (int64_t k = 0; k < 4; ++k)
        ASSERT_EQ(narrow.at(i * 4 + k), static_cast<double>(token * 4 + k));
    }
  }
}

// rows of each expert
using Loads = std::vector<int64_t>;

struct Group {
  Lists lists;
  RowSet rows;
  Trial trial;
  Op op;
  Group(const char* rule, const Loads& loads, int64_t d, int64_t f, DType real)
      : lists(list(loads)),
        rows(lists.set()),
        trial(Row::contract, rule, {"ebsdf", {static_cast<int64_t>(loads.size()), 2, 3, d, f}},
              real, 5, {}, 0, &rows),
        op(collapsed(trial.op)) {
    trial.op.attrs.scale = op.attrs.scale = -0.5;
  }
  static Lists list(const Loads& loads) {
    Lists l;
    for (size_t e = 0; e < loads.size(); ++e)
      l.e.insert(l.e.end(), loads[e], static_cast<int32_t>(e));
    return l;
  }
  Block run(KernelSet set, Pool* pool, Meter* meter = nullptr) const {
    Block out;
    out.make(trial.real, trial.op.out_labels[0], trial.op.size, 0, &rows);
    std::vector<Tensor> ins;
    for (const Block& b : trial.ins) ins.push_back(b.tensor);
    KernelCall call{.op = &op,
                    .ins = ins,
                    .outs = {&out.tensor, 1},
                    .local = collapsed_sizes(op, trial.op.size, rows.n),
                    .meter = meter,
                    .rows = &rows,
                    .e = {7, 7 + trial.op.size.at('e')},
                    .pool = pool};
    if (is_grouped(trial.op)) {
      EXPECT_EQ(run_grouped(call, trial.real, set), KernelStatus::ok);
    } else {
      call.rows = nullptr;
      EXPECT_EQ(choose(op, call.local, trial.real, set).run(call), KernelStatus::ok);
    }
    EXPECT_TRUE(out.guarded());
    return out;
  }
};

// Sums over all points of (row, d, f); `size` with absolute values.
void define(const Group& g, std::vector<double>& sum, std::vector<double>& size) {
  const Op& op = g.trial.op;
  const int64_t d = op.size.at('d'), f = op.size.at('f');
  const auto offset = [&](const std::string& labels, int64_t row, int64_t id, int64_t jf) {
    int64_t at = labels.starts_with("ebs") ? row : 0;
    for (char l : labels.starts_with("ebs") ? labels.substr(3) : labels) {
      if (l == 'e') at = at * op.size.at('e') + g.rows.e[row];
      if (l == 'd') at = at * d + id;
      if (l == 'f') at = at * f + jf;
    }
    return at;
  };
  const auto uses = [&](char l) {
    return std::any_of(op.in_labels.begin(), op.in_labels.end(),
                       [&](const std::string& s) { return s.find(l) != std::string::npos; });
  };
  for (int64_t row = 0; row < g.rows.n; ++row)
    for (int64_t id = 0; id < (uses('d') ? d : 1); ++id)
      for (int64_t jf = 0; jf < (uses('f') ? f : 1); ++jf) {
        double p = op.attrs.scale;
        for (size_t i = 0; i < op.ins.size(); ++i) {
          p *= g.trial.ins[i].at(offset(op.in_labels[i], row, id, jf));
        }
        const int64_t to = offset(op.out_labels[0], row, id, jf);
        sum[to] += p;
        size[to] += std::fabs(p);
      }
}

const char* const kGrouped[] = {"ebsd,efd->ebsf", "ebsf,efd->ebsd", "ebsf,ebsd->efd",
                                "ebsd,ebsf->efd", "ebsd,edf->ebsf", "ebsf,ebs,ebsd->efd",
                                "ebsd,ed->ebs",   "ebsd->ed"};
const char* const kPlain[] = {"ebsf,ebs->ebsf", "ebsf,ebsf->ebs", "ebsd,fd->ebsf", "ebsf,ebsd->fd",
                              "ebsf->f"};

void expect_defined(const char* rule, const Loads& loads, int64_t d, int64_t f) {
  Pool two(2), three(3);
  for (DType real : {DType::f32, DType::f64}) {
    const Group g(rule, loads, d, f, real);
    Meter meter;
    const Block y = g.run(KernelSet::fast, nullptr, &meter);
    std::vector<double> sum(static_cast<size_t>(y.tensor.elements())), size(sum);
    define(g, sum, size);
    const double eps = real == DType::f32 ? kEps : 0x1p-53;
    const double terms = static_cast<double>(std::max({d, f, g.rows.n})) + 5;
    const Block z = g.run(KernelSet::ref, nullptr);
    for (size_t i = 0; i < sum.size(); ++i) {
      ASSERT_LE(std::fabs(y.at(static_cast<int64_t>(i)) - sum[i]), terms * eps * size[i]) << rule;
      ASSERT_LE(std::fabs(z.at(static_cast<int64_t>(i)) - sum[i]), terms * eps * size[i]) << rule;
    }
    EXPECT_TRUE(same_bits({y}, {g.run(KernelSet::fast, &two)})) << rule;
    EXPECT_TRUE(same_bits({y}, {g.run(KernelSet::fast, &three)})) << rule;
    if (rule == std::string("ebsd,efd->ebsf")) {
      EXPECT_EQ(meter.flops, 2.0 * static_cast<double>(g.rows.n * d * f));
    }
  }
}

TEST(Grouped, EqualsDefinition) {
  for (const Loads& loads : {Loads{3, 0, 7, 1}, Loads{0, 0}, Loads{0, 40, 0}, Loads{}, Loads{17}}) {
    for (const char* rule : kGrouped) {
      expect_defined(rule, loads, 19, 33);
      expect_defined(rule, loads, 1, 4);
    }
    for (const char* rule : kPlain) expect_defined(rule, loads, 19, 33);
  }
}

// Some products are shared by the pool, others run side by side.
TEST(Grouped, LargeAndSmall) {
  Pool two(2), three(3);
  for (const char* rule : {"ebsd,efd->ebsf", "ebsf,ebsd->efd"}) {
    const Group g(rule, {900, 3, 0, 20}, 130, 160, DType::f32);
    Group magnitude = g;
    for (const Block& x : magnitude.trial.ins) {
      for (int64_t i = 0; i < x.tensor.elements(); ++i) x.set(i, std::fabs(x.at(i)));
    }
    const Block y = g.run(KernelSet::fast, nullptr), want = g.run(KernelSet::ref, nullptr),
                size = magnitude.run(KernelSet::ref, nullptr);
    expect_close(
        {y}, {want}, 0, [&](int64_t i) { return 905 * kEps * std::fabs(size.at(i)); }, rule);
    EXPECT_TRUE(same_bits({y}, {g.run(KernelSet::fast, &two)})) << rule;
    EXPECT_TRUE(same_bits({y}, {g.run(KernelSet::fast, &three)})) << rule;
  }
}

TEST(Grouped, Kinds) {
  for (const char* rule : kGrouped) {
    const Trial t(Row::contract, rule, {"ebsdf", {2, 2, 2, 2, 2}}, DType::f32);
    EXPECT_TRUE(works_on_rows(t.op) && is_grouped(t.op)) << rule;
  }
  for (const char* rule : kPlain) {
    const Trial t(Row::contract, rule, {"ebsdf", {2, 2, 2, 2, 2}}, DType::f32);
    EXPECT_TRUE(works_on_rows(t.op) && !is_grouped(t.op)) << rule;
  }
  const Trial dense(Row::contract, "bsd,fd->bsf", {"bsdf", {2, 2, 2, 2}}, DType::f32);
  EXPECT_FALSE(works_on_rows(dense.op));
  const Trial d(Row::dispatch, "bsd,bsj->ebsd", {"ebsdj", {2, 2, 2, 2, 1}}, DType::f32);
  EXPECT_FALSE(works_on_rows(d.op));
  const Trial s(Row::silu, "ebsf->ebsf", {"ebsf", {2, 3, 4, 5}}, DType::f32);
  EXPECT_EQ(collapsed(s.op).in_labels[0], "Zf");
  EXPECT_EQ(collapsed(s.op).size, (LabelSizes{"Zf", {24, 5}}));
  EXPECT_EQ(collapsed_sizes(collapsed(s.op), s.op.size, 7), (LabelSizes{"Zf", {7, 5}}));
}

}  // namespace
}  // namespace myriad
