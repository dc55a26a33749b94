// Every row with a gradient against central differences in double, and whole models.
#include "verify/differences.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "ir/builder.h"
#include "ir/rows.h"
#include "passes/differentiate.h"
#include "passes/relay.h"

namespace myriad {
namespace {

constexpr double
    kStep = 1e-5,
    kBound = 1e-8;  // a central difference errs by about step^2, and 1e-16 / step by rounding

// A body in the making whose operands are states, so that `differentiate` adds their gradients to
// states.
class Trial {
 public:
  Trial() : b(graph, body) {
    graph.real = DType::f64;
    body.name = "trial";
  }

  int param(const std::string& labels, Sizes sizes, double centre = 0) {
    const std::string name = fmt::format("x{}", params_.size());
    params_.push_back(name);
    std::vector<double>& x = states_[{StateKind::parameter, name}];
    for (int64_t i = 0; i < elements(sizes); ++i) {
      const double r = normal_(random_);
      x.push_back(centre > 0 ? centre + std::abs(r) : r);
    }
    return b.read("p:" + name, labels, std::move(sizes), DType::f64, name);
  }

  int integers(const std::string& name, const std::string& labels, Sizes sizes,
               std::vector<double> values) {
    CHECK(elements(sizes) == static_cast<int64_t>(values.size()), "{} has {} values", name,
          values.size());
    const int v = b.input(name, labels, std::move(sizes), DType::i32);
    inputs_[v] = std::move(values);
    return v;
  }

  int op(Row row, std::initializer_list<int> ins, const std::string& rule, Attrs attrs = {},
         LabelSizes sizes = {}, std::vector<DType> dtypes = {}) {
    return b.op1(row, ins, rule,
                 {.names = {},
                  .sizes = std::move(sizes),
                  .attrs = std::move(attrs),
                  .dtypes = std::move(dtypes)});
  }

  // The gradient of a random projection of `y`, by backward body and by differences, in all
  // parameters but `without`.
  void check(int y, const std::vector<std::string>& without = {}, double step = kStep,
             double bound = kBound) {
    step_ = step;
    bound_ = bound;
    make_seed(y);
    const Body backward = differentiate(graph, body, {{y, seed_}}, {});
    States after = states_;
    Evaluator e(graph);
    for (const auto& [v, x] : inputs_) e.set(v, x);
    e.set(seed_, projection_);
    e.run(body, after);
    e.run(backward, after);
    for (const std::string& name : params_) {
      if (std::find(without.begin(), without.end(), name) != without.end()) {
        EXPECT_FALSE(after.count({StateKind::gradient_sum, name})) << name << " has a gradient";
      } else {
        compare(name, y, after);
      }
    }
  }

  Graph graph;
  Body body;
  Builder b;

 private:
  static int64_t elements(const Sizes& sizes) {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    return n;
  }

  void make_seed(int y) {
    const Value v = graph[y];
    seed_ = graph.add({.name = "seed", .labels = v.labels, .sizes = v.sizes, .dtype = DType::f64});
    for (int64_t i = 0; i < elements(v.sizes); ++i) projection_.push_back(normal_(random_));
  }

  double projected(int y) {
    Evaluator e(graph);
    for (const auto& [v, x] : inputs_) e.set(v, x);
    States states = states_;
    e.run(body, states);
    const std::vector<double> out = e.get(y);
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += projection_[i] * out[i];
    return sum;
  }

  void compare(const std::string& name, int y, const States& after) {
    ASSERT_TRUE(after.count({StateKind::gradient_sum, name})) << name << " has no gradient";
    const std::vector<double>& g = after.at({StateKind::gradient_sum, name});
    std::vector<double>& x = states_.at({StateKind::parameter, name});
    ASSERT_EQ(g.size(), x.size());
    double largest = 1;
    for (double d : g) largest = std::max(largest, std::abs(d));
    for (size_t i = 0; i < x.size(); ++i) {
      const double d = central_difference([&] { return projected(y); }, x[i], step_);
      ASSERT_NEAR(g[i], d, bound_ * largest) << name << " element " << i;
    }
  }

  std::mt19937 random_{7};
  std::normal_distribution<double> normal_;
  std::vector<std::string> params_;
  std::map<int, std::vector<double>> inputs_;
  States states_;
  int seed_ = -1;
  double step_ = kStep, bound_ = kBound;
  std::vector<double> projection_;
};

std::vector<double> counting(int64_t rows, int64_t n) {
  std::vector<double> x;
  for (int64_t i = 0; i < rows * n; ++i) x.push_back(static_cast<double>(i % n));
  return x;
}

Sizes sizes_of(const std::string& labels, const LabelSizes& all) {
  Sizes s;
  for (char l : labels) s.push_back(all.at(l));
  return s;
}

// contract of parameters, one for each operand of the rule.
void check_contract(const std::string& rule, const LabelSizes& sizes, double scale = 1) {
  SCOPED_TRACE(rule);
  Trial t;
  std::vector<int> ins;
  const std::string left = rule.substr(0, rule.find("->")) + ",";
  for (size_t from = 0, comma; (comma = left.find(',', from)) != std::string::npos;
       from = comma + 1) {
    const std::string labels = left.substr(from, comma - from);
    ins.push_back(t.param(labels, sizes_of(labels, sizes)));
  }
  t.check(t.b.contract(rule, ins, "", scale));
}

const LabelSizes kOdd{"bsdfgrh", {2, 3, 5, 7, 2, 1, 3}};

TEST(Differences, ContractInManyForms) {
  for (const char* rule :
       {"bsd,fd->bsf", "bsd,grhd->bsgrh", "bsgrh,dgrh->bsd", "bsd,bsd->bs", "bsd,bs,d->bsd",
        "bsd,bsd,bsd->bsd", "bsd->bsd", "bs,bs->", "d,->d", "bs,bs,bs,bs->bs", "sd,bs->bd"}) {
    check_contract(rule, kOdd);
  }
  check_contract("bsd,fd->bsf", kOdd, -0.75);
}

TEST(Differences, ContractWhereLabelsVanish) {
  for (const char* rule : {"bsd->bs", "bsd->", "bsd->d", "bs,d->b", "bsd,f->bs", "bs,f,d->s"})
    check_contract(rule, kOdd, 2);
}

TEST(Differences, ContractOfEmptyAndSingleSizes) {
  for (char empty : {'b', 's', 'd', 'f'}) {
    LabelSizes sizes = kOdd;
    sizes.sizes[static_cast<size_t>(sizes.find(empty))] = 0;
    check_contract("bsd,fd->bsf", sizes);
    check_contract("bsd->b", sizes);
  }
  check_contract("bsd,fd->bsf", {"bsdf", {1, 1, 1, 1}});
}

TEST(Differences, ContractOfOneOperandTwice) {
  Trial square, product;
  const int x = square.param("bsd", {2, 3, 5});
  square.check(square.b.contract("bsd,bsd->bs", {x, x}, "", 0.5));
  const int m = product.param("dd", {4, 4});  // as ij and as jk
  product.check(product.b.contract("ij,jk->ik", {m, m}));
}

TEST(Differences, ContractStopsWhereItIsTold) {
  Trial t;
  const int x = t.param("bs", {2, 3}), y = t.param("bs", {2, 3});
  t.check(t.b.contract("bs,bs->b", {x, y}, "", 3, 1u << 1), {"x1"});
}

TEST(Differences, Broadcast) {
  for (const auto& [from, to] : {std::pair("bs", "bsd"), {"d", "bsd"}, {"", "bs"}, {"s", "bsd"}}) {
    Trial t;
    const int x = t.param(from, sizes_of(from, kOdd));
    t.check(t.op(Row::broadcast, {x}, fmt::format("{}->{}", from, to), {}, kOdd));
  }
}

// To f32 and back around a linear op: a large step, and a bound of f32's rounding.
TEST(Differences, Cast) {
  Trial t;
  const int x = t.b.contract("bs->bs", {t.param("bs", {2, 3})}, "", 2);
  const int narrow = t.b.contract("bs->bs", {t.b.cast(x, DType::f32)}, "", 3);
  const int y = t.b.cast(narrow, DType::f64, "y");
  EXPECT_EQ(t.graph[narrow].dtype, DType::f32);
  t.check(y, {}, 64, 1e-6);
}

TEST(Differences, AddAlsoOfOneOperandTwice) {
  Trial t;
  const int x = t.param("bs", {2, 3}), y = t.param("bs", {2, 3}), z = t.param("bs", {2, 3});
  t.check(t.b.add({x, y, z, y}));
}

TEST(Differences, ElementwiseRows) {
  Trial rsqrt, recip, log, silu, gelu;
  rsqrt.check(rsqrt.b.elementwise(Row::rsqrt, {rsqrt.param("bs", {3, 5}, 0.5)}, "",
                                  {.a = 1.0 / 7, .b = 1e-5}));
  recip.check(recip.b.elementwise(Row::recip, {recip.param("bs", {3, 5}, 0.5)}));
  log.check(log.b.elementwise(Row::log, {log.param("bs", {3, 5}, 0.5)}));
  silu.check(silu.b.elementwise(Row::silu, {silu.param("bsf", {2, 3, 5})}));
  gelu.check(gelu.b.elementwise(Row::gelu, {gelu.param("bsf", {2, 3, 5})}));
  Trial empty;
  empty.check(empty.b.elementwise(Row::silu, {empty.param("bs", {0, 5})}));
}

// As the head of a model emits it.
void check_cross_entropy(int64_t rows, int64_t vocabulary, std::vector<double> targets,
                         double shift) {
  Trial t;
  const int64_t s = rows == 0 ? 3 : static_cast<int64_t>(targets.size()) / rows;
  int z = t.param("bsv", {rows, s, vocabulary});
  if (shift != 0) {
    const int one = t.param("v", {vocabulary}, shift);
    z = t.b.add({z, t.op(Row::broadcast, {one}, "v->bsv", {}, {"bs", {rows, s}})});
  }
  const int y = t.integers("targets", "bs", {rows, s}, std::move(targets));
  const int m = t.op(Row::max_stop, {z}, "bsv->bs");
  const int lse =
      t.b.add({t.b.elementwise(Row::log, {t.op(Row::sum_exp, {z, m}, "bsv,bs->bs")}), m});
  const int nll =
      t.b.add({lse, t.b.contract("bs->bs", {t.op(Row::pick, {z, y}, "bsv,bs->bs")}, "", -1)});
  const int ok = t.b.elementwise(Row::valid, {y});
  t.check(t.op(Row::sum_exact, {nll, ok}, "bs,bs->", {.stop = 2}, {}, {DType::exact}));
}

TEST(Differences, CrossEntropyWithMaskedTargets) {
  check_cross_entropy(2, 7, {3, -1, 6, 0, -100, 3}, 0);
  check_cross_entropy(1, 5, {-1, -1}, 0);  // nothing is valid
  check_cross_entropy(2, 1, {0, 0, -1, 0}, 0);
  check_cross_entropy(0, 5, {}, 0);
  check_cross_entropy(2, 7, {3, -1, 6, 0, -100, 3}, 900);  // exp would overflow without the maximum
}

TEST(Differences, SumExact) {
  Trial one, two, twice;
  one.check(one.op(Row::sum_exact, {one.param("bs", {2, 3})}, "bs->", {}, {}, {DType::exact}));
  two.check(two.op(Row::sum_exact, {two.param("bsd", {2, 3, 1}), two.param("bsd", {2, 3, 1})},
                   "bsd,bsd->", {}, {}, {DType::exact}));
  const int x = twice.param("d", {5});
  twice.check(twice.op(Row::sum_exact, {x, x}, "d,d->", {}, {}, {DType::exact}));
}

TEST(Differences, GatherRows) {
  Trial t, empty;
  const int w = t.param("vd", {7, 3});
  t.check(t.op(Row::gather_rows, {w, t.integers("ids", "bs", {2, 3}, {6, 0, 2, 2, 2, 5})},
               "vd,bs->bsd"));
  const int none = empty.param("vd", {7, 3});
  empty.check(
      empty.op(Row::gather_rows, {none, empty.integers("ids", "bs", {0, 3}, {})}, "vd,bs->bsd"));
}

TEST(Differences, RopeInBothStyles) {
  for (RopeStyle style : {RopeStyle::half, RopeStyle::interleaved}) {
    for (const std::string labels : {"bsgrh", "bsgh"}) {
      Trial t;
      const int x = t.param(labels, sizes_of(labels, {"bsgrh", {2, 3, 1, 2, 6}}));
      const int pos = t.integers("pos", "bs", {2, 3}, {0, 1, 9, 4000, 0, 1});
      const Attrs attrs{
          .frequencies = std::make_shared<const std::vector<double>>(std::vector{1.0, 0.3, 0.02}),
          .mscale = 1.3,
          .style = style};
      t.check(t.op(Row::rope, {x, pos}, labels + ",bs->" + labels, attrs));
    }
  }
}

TEST(Differences, SliceOfFrontMiddleAndAll) {
  for (const auto& [lo, n] : {std::pair<int64_t, int64_t>(0, 2), {2, 3}, {0, 5}, {4, 1}, {2, 0}}) {
    Trial t;
    const int x = t.param("bsih", {1, 2, 5, 3});
    t.check(t.op(Row::slice, {x}, "bsih->bsyh", {.label = 'i', .to = 'y', .lo = lo}, {"y", {n}}));
  }
}

struct Keys {
  int64_t rows, queries, keys;
  std::vector<double> pos_q, pos_k, doc_q, doc_k;
};

void check_attention(const Keys& k, LabelSizes sizes = {"grhu", {2, 3, 3, 2}}) {
  Trial t;
  sizes.set('b', k.rows);
  sizes.set('s', k.queries);
  sizes.set('t', k.keys);
  const int ins[] = {t.param("bsgrh", sizes_of("bsgrh", sizes)),
                     t.param("btgh", sizes_of("btgh", sizes)),
                     t.param("btgu", sizes_of("btgu", sizes)),
                     t.integers("pos_q", "bs", {k.rows, k.queries}, k.pos_q),
                     t.integers("pos_k", "bt", {k.rows, k.keys}, k.pos_k),
                     t.integers("doc_q", "bs", {k.rows, k.queries}, k.doc_q),
                     t.integers("doc_k", "bt", {k.rows, k.keys}, k.doc_k)};
  t.check(t.b.op(Row::attention, ins, "bsgrh,btgh,btgu,bs,bt,bs,bt->bsgru;bsgr",
                 {.names = {}, .sizes = {}, .attrs = {.scale = 0.6}, .dtypes = {}})[0]);
}

std::vector<double> zeros(int64_t n) { return std::vector<double>(static_cast<size_t>(n), 0.0); }

TEST(Differences, AttentionCausal) {
  check_attention({2, 4, 4, counting(2, 4), counting(2, 4), zeros(8), zeros(8)});
  check_attention({1, 1, 1, {0}, {0}, {0}, {0}}, {"grhu", {1, 1, 1, 1}});
}

TEST(Differences, AttentionOfAPartOfTheQueries) {
  check_attention({1, 2, 5, {3, 4}, counting(1, 5), zeros(2), zeros(5)});
}

TEST(Differences, AttentionOfPackedDocuments) {
  const std::vector<double> pos = {0, 1, 0, 1, 2, 0, 0, 1, 2, 3, 0, 1},
                            doc = {0, 0, 1, 1, 1, 2, 4, 4, 4, 4, 9, 9};
  check_attention({2, 6, 6, pos, pos, doc, doc});
}

TEST(Differences, AttentionOfQueriesThatSeeNoKey) {
  check_attention({1, 4, 3, {0, 1, 2, 0}, {1, 2, 3}, {0, 5, 0, 0}, {0, 0, 0}});
}

TEST(Differences, AttentionOfEmptySizes) {
  check_attention({0, 3, 3, {}, {}, {}, {}});
  check_attention({1, 0, 3, {}, {0, 1, 2}, {}, {0, 0, 0}});
  check_attention({1, 3, 0, {0, 1, 2}, {}, {0, 0, 0}, {}});
  check_attention({1, 2, 2, {0, 1}, {0, 1}, {0, 0}, {0, 0}}, {"grhu", {0, 3, 2, 2}});
  check_attention({1, 2, 2, {0, 1}, {0, 1}, {0, 0}, {0, 0}}, {"grhu", {2, 0, 2, 2}});
}

// Rows of expert layers. Which experts the tokens chose is an input: a choice has no gradient.

TEST(Differences, SoftmaxAndSigmoid) {
  Trial softmax, one, sigmoid;
  softmax.check(softmax.b.elementwise(Row::softmax, {softmax.param("bsx", {2, 3, 5})}));
  one.check(one.b.elementwise(Row::softmax, {one.param("bsx", {2, 3, 1})}));
  sigmoid.check(sigmoid.b.elementwise(Row::sigmoid, {sigmoid.param("bsx", {2, 3, 5})}));
}

// Four tokens of five experts; a dropped choice, an expert that nobody chose, one that all chose.
std::vector<double> chosen() { return {4, 1, 1, 0, -1, 1, 1, 4}; }

TEST(Differences, PickByChoices) {
  Trial t, all;
  t.check(t.op(Row::pick,
               {t.param("bsx", {2, 2, 5}), t.integers("idx", "bsj", {2, 2, 2}, chosen())},
               "bsx,bsj->bsj"));
  const int p = all.param("bsx", {1, 2, 3});  // as the weights of a router that uses all
  all.check(all.op(Row::pick, {p, all.integers("idx", "bsj", {1, 2, 3}, {0, 1, 2, 2, 0, 1})},
                   "bsx,bsj->bsj"));
}

// A round over all rows: dispatch, its weights, a product an expert, combine.
struct Routed {
  explicit Routed(Trial& t, std::vector<double> choices, int64_t experts = 5) : experts(experts) {
    const auto k = static_cast<int64_t>(choices.size()) / 4;
    idx = t.integers("idx", "bsj", {2, 2, k}, std::move(choices));
    now = t.op(Row::window, {idx}, "bsj->bsj", {.experts = experts}, {}, {DType::i32});
    w = t.param("bsj", {2, 2, k});
  }
  int64_t experts;
  int idx, now, w;
};

TEST(Differences, DispatchAndCombine) {
  Trial t;
  const Routed r(t, chosen());
  const int x = t.param("bsd", {2, 2, 3});
  const int rows = t.op(Row::dispatch, {x, r.now}, "bsd,bsj->ebsd", {}, {"e", {r.experts}});
  t.check(
      t.op(Row::combine, {t.b.contract("ebsd,ebsd->ebsd", {rows, rows}), r.now}, "ebsd,bsj->bsd"),
      {"x0"});
}

TEST(Differences, DispatchedWeights) {
  Trial t;
  const Routed r(t, chosen());
  const int x = t.param("bsd", {2, 2, 3});
  const int w = t.op(Row::dispatch_w, {r.w, r.now}, "bsj,bsj->ebs", {}, {"e", {r.experts}});
  const int rows = t.op(Row::dispatch, {x, r.now}, "bsd,bsj->ebsd", {}, {"e", {r.experts}});
  t.check(t.op(Row::combine, {t.b.contract("ebsd,ebs->ebsd", {rows, w}), r.now}, "ebsd,bsj->bsd"));
}

// Two nodes of experts {0, 1} and {2, 3, 4}: tokens with choices on one, on both and on none.
TEST(Differences, SpreadAndCollapse) {
  for (const std::vector<double>& choices :
       {chosen(), std::vector<double>{1, 0, 4, 2, 3, 0, -1, 3}, std::vector<double>(8, -1)}) {
    Trial t;
    const Routed r(t, choices);
    const Attrs nodes{.experts = r.experts, .parts = 2, .ranks_per_node = 1};
    const int x = t.param("bsd", {2, 2, 3});
    const int leads = t.op(Row::leads, {r.now}, "bsj->bsj", nodes, {}, {DType::i32});
    const int first = t.op(Row::dispatch, {x, leads}, "bsd,bsj->ebsd", {}, {"e", {r.experts}});
    const int all = t.op(Row::spread, {first, leads, r.now}, "ebsd,bsj,bsj->ebsd", nodes);
    const int back =
        t.op(Row::collapse, {t.b.contract("ebsd,ebsd->ebsd", {all, all}), leads, r.now},
             "ebsd,bsj,bsj->ebsd", nodes);
    t.check(t.op(Row::combine, {back, leads}, "ebsd,bsj->bsd"), {"x0"});
  }
}

TEST(Differences, AnExpertIsAProductOfItsRows) {
  for (const std::vector<double>& choices :
       {chosen(), std::vector<double>(8, -1), std::vector<double>{2, 2, 2, 2}}) {
    Trial t;
    const Routed r(t, choices);
    const int x = t.param("bsd", {2, 2, 3}), gate = t.param("efd", {5, 4, 3}),
              down = t.param("edf", {5, 3, 4});
    const int w = t.op(Row::dispatch_w, {r.w, r.now}, "bsj,bsj->ebs", {}, {"e", {r.experts}});
    const int rows = t.op(Row::dispatch, {x, r.now}, "bsd,bsj->ebsd", {}, {"e", {r.experts}});
    const int a = t.b.elementwise(Row::silu, {t.b.contract("ebsd,efd->ebsf", {rows, gate})});
    const int y = t.b.contract("ebsf,edf->ebsd", {t.b.contract("ebsf,ebs->ebsf", {a, w}), down});
    t.check(t.op(Row::combine, {y, r.now}, "ebsd,bsj->bsd"));
  }
}

// A row that gets a gradient later must be tried above.
TEST(Differences, NoOtherRowHasAGradient) {
  const Row tried[] = {Row::contract,  Row::broadcast, Row::add,         Row::rsqrt,
                       Row::recip,     Row::log,       Row::silu,        Row::gelu,
                       Row::sum_exp,   Row::pick,      Row::gather_rows, Row::rope,
                       Row::attention, Row::slice,     Row::sum_exact,   Row::sigmoid,
                       Row::softmax,   Row::dispatch,  Row::combine,     Row::dispatch_w,
                       Row::spread,    Row::collapse,  Row::cast};
  for (int i = 0; i < kRows; ++i) {
    const Row row = static_cast<Row>(i);
    const bool is = std::find(std::begin(tried), std::end(tried), row) != std::end(tried);
    EXPECT_EQ(is, info(row).gradient != nullptr) << info(row).name;
  }
}

// Whole models.

Batch packed_batch() {
  Batch b{.rows = 2, .sequence = 7};
  for (int i = 0; i < 14; ++i) {
    b.ids.push_back((i * 5 + 3) % 11);
    b.targets.push_back(i % 4 == 2 ? -1 : (i * 7 + 1) % 11);
    const int at = i % 7, start = i < 7 ? (at < 3 ? 0 : 3) : (at < 6 ? 0 : 6);
    b.positions.push_back(at - start);
    b.documents.push_back(start);
  }
  return b;
}

ModelConfig tiny(Family family, bool tied) {
  ModelConfig c{.family = family,
                .hidden = 6,
                .layers = 2,
                .heads = 6,
                .kv_heads = 3,
                .head_dim = 4,
                .ffn = 7,
                .vocabulary = 11,
                .norm_eps = 1e-5,
                .tied = tied};
  if (family == Family::telechat || family == Family::telechat_moe)
    c.rope = {.kind = RopeKind::telechat, .base_seqlen = 4, .training_seqlen = 5};
  if (family == Family::qwen3)
    c.rope = {.kind = RopeKind::yarn, .factor = 4, .original_positions = 4};
  if (family == Family::gpt2) {
    c.heads = c.kv_heads;
    c.head_dim = 2;
    c.positions = 8;
  }
  return c;
}

// With ep above 1 rows reach experts by way of one a token and node.
void check_model(const ModelConfig& config, const Plan& plan = {}) {
  const RoutingConfig& routing = config.moe.routing;
  Pieces pieces = emit_model(config, 2, 7, DType::f64, {});
  for (Piece& piece : pieces.pieces) {
    if (plan.ep > 1 && piece.loop_part >= 0) relay(piece, plan);
  }
  PlainModel model(std::move(pieces), routing.load_balance, routing.z);
  model.initialise(3, 0.4);
  const Batch batch = packed_batch();
  model.forward_and_backward(batch);
  model.hold_routing();
  std::mt19937 random(11);
  for (const PlainModel::Use& use : model.uses()) {
    const std::vector<double> g = model.gradient(use.unit, use.param);
    std::vector<double>& x = model.parameter(use.unit, use.param);
    ASSERT_EQ(g.size(), x.size());
    double largest = 1e-3;
    for (double d : g) largest = std::max(largest, std::abs(d));
    for (int trial = 0; trial < (config.moe.experts > 0 ? 6 : 3); ++trial) {
      const size_t i = random() % x.size();
      const double d = central_difference([&] { return model.loss(batch); }, x[i], 1e-5);
      EXPECT_NEAR(g[i], d, 1e-6 * largest)
          << use.param << " of unit " << use.unit << ", element " << i;
    }
  }
}

TEST(Differences, WholeLlama) { check_model(tiny(Family::llama, false)); }
TEST(Differences, WholeLlamaTied) { check_model(tiny(Family::llama, true)); }
TEST(Differences, WholeQwen3) { check_model(tiny(Family::qwen3, false)); }
TEST(Differences, WholeGpt2) { check_model(tiny(Family::gpt2, true)); }
TEST(Differences, WholeTelechat) { check_model(tiny(Family::telechat, false)); }

ModelConfig with_experts(Family family, const MoeConfig& moe) {
  ModelConfig c = tiny(family, false);
  c.moe = moe;
  return c;
}

TEST(Differences, WholeMixtral) {
  for (const BalanceScope scope : {BalanceScope::micro_batch, BalanceScope::sequence}) {
    check_model(with_experts(Family::mixtral,
                             {.experts = 5,
                              .top_k = 2,
                              .expert_ffn = 4,
                              .routing = {.load_balance = 0.3, .z = 0.2, .scope = scope}}));
  }
}

TEST(Differences, WholeMixtralByWayOfNodes) {
  for (const Plan& plan :
       {Plan{.dp = 2, .ep = 2, .ranks_per_node = 1}, Plan{.dp = 5, .ep = 5, .ranks_per_node = 1},
        Plan{.dp = 5, .ep = 5, .ranks_per_node = 3}})  // of 3 and 2 owners
    check_model(with_experts(Family::mixtral, {.experts = 5, .top_k = 3, .expert_ffn = 4}), plan);
}

TEST(Differences, WholeMixtralThatDrops) {
  check_model(
      with_experts(Family::mixtral, {.experts = 5,
                                     .top_k = 2,
                                     .expert_ffn = 4,
                                     .routing = {.capacity_factor = 0.7, .load_balance = 0.3}}));
}

TEST(Differences, WholeQwen3Moe) {
  check_model(with_experts(Family::qwen3_moe,
                           {.experts = 6, .top_k = 3, .expert_ffn = 4, .renormalise = false}));
}

TEST(Differences, WholeGroupsOfSigmoidExperts) {
  for (const BalanceScope scope : {BalanceScope::micro_batch, BalanceScope::sequence}) {
    check_model(with_experts(
        Family::telechat_moe,
        {.experts = 8,
         .top_k = 3,
         .expert_ffn = 4,
         .shared_experts = 2,
         .dense_layers = {0},
         .scores = Scores::sigmoid,
         .scaling = 2.5,
         .correction_bias = true,
         .groups = 4,
         .kept_groups = 2,
         .routing = {.load_balance = 0.3, .z = 0.2, .scope = scope, .bias_update_rate = 0.01}}));
  }
}

// Differences find what no comparison of layouts can: a gradient that is wrong in all of them.
TEST(Differences, FindAGradientThatIsNotThere) {
  Pieces pieces = emit_model(tiny(Family::llama, false), 2, 7, DType::f64, {});
  for (Op& op : pieces.pieces[1].forward.ops) {
    if (op.row == Row::contract && op.in_labels.size() == 3)
      op.attrs.stop = 1u << 1;  // the norm's 1 / root mean square
  }
  PlainModel model(std::move(pieces));
  model.initialise(3, 0.4);
  const Batch batch = packed_batch();
  model.forward_and_backward(batch);
  double worst = 0;
  const std::vector<double> g = model.gradient(0, "emb.w");
  std::vector<double>& x = model.parameter(0, "emb.w");
  for (size_t i = 0; i < x.size(); ++i) {
    worst = std::max(
        worst, std::abs(g[i] - central_difference([&] { return model.loss(batch); }, x[i], 1e-5)));
  }
  EXPECT_GT(worst, 1e-3);
}

}  // namespace
}  // namespace myriad
