// The sharder by cases that stand as text: a mesh, rules and bodies go in; the steps come out.
//
// A case has these lines:
//   mesh NAME=SIZE ...               the axes, slowest first
//   rule PATTERN [LABELS]: ...       a line of passes/rules.h
//   body NAME                        begins a body; all bodies of a case share one sharder
//   X = input LABELS SIZES [type]    SIZES with commas
//   X = read STATE LABELS SIZES [type]
//   X, Y = OP RULE OPERANDS [type]   RULE without blanks, as in "bsd,fd->bsf"; [n=SIZE] gives
//   labels
//                                    of the result alone; X may be "_" for a value without a name
//   write X STATE, accum X STATE
//   gradient X of W                  says that X is the gradient of W
//   toward X W                       says that X will be added to the gradient of W
//   again X                          the op that made X once more, as recomputing clones it
//   out X                            what the body hands over
// A printed step is the op with its results as they are made, or the move with its axes, and the
// layout after it. "sum:t" is a partial sum over t, "max:t" a partial maximum.
#include "passes/sharder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/rows.h"

namespace myriad {
namespace {

std::vector<std::string> words_of(std::string line) {
  std::replace(line.begin(), line.end(), '\t', ' ');
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string w; in >> w;) words.push_back(w);
  return words;
}

DType type_named(const std::string& word) {
  return word == "bf16"    ? DType::bf16
         : word == "i32"   ? DType::i32
         : word == "exact" ? DType::exact
                           : DType::f32;
}

Sizes sizes_in(const std::string& word) {
  Sizes sizes;
  std::istringstream in(word);
  for (std::string n; std::getline(in, n, ',');) sizes.push_back(std::stoll(n));
  return sizes;
}

struct Case {
  std::vector<Mesh::Axis> axes;
  std::string rules;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  std::vector<Body> bodies;

  explicit Case(const std::string& text) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      const std::vector<std::string> words = words_of(line);
      if (!words.empty()) read(line, words);
    }
  }

  int value(const std::string& name) const { return graph->at(name); }

  void read(const std::string& line, const std::vector<std::string>& w) {
    if (w[0] == "mesh") {
      for (size_t i = 1; i < w.size(); ++i) {
        const size_t eq = w[i].find('=');
        axes.push_back({w[i].substr(0, eq), std::stoi(w[i].substr(eq + 1))});
      }
    } else if (w[0] == "rule") {
      rules += line.substr(line.find("rule") + 5) + "\n";
    } else if (w[0] == "body") {
      bodies.push_back({.name = w[1], .ops = {}, .outputs = {}});
    } else if (w[0] == "write" || w[0] == "accum") {
      Builder(*graph, bodies.back()).write(row_named(w[0]), value(w[1]), w[2]);
    } else if (w[0] == "gradient") {
      (*graph)[value(w[1])].gradient_of = value(w[3]);
    } else if (w[0] == "toward") {
      (*graph)[value(w[1])].heading = value(w[2]);
    } else if (w[0] == "again") {
      repeat(value(w[1]));
    } else if (w[0] == "out") {
      bodies.back().outputs.push_back(value(w[1]));
    } else {
      define(w);
    }
  }

  void repeat(int value) {
    for (const Body& body : bodies) {
      for (const Op& op : body.ops) {
        if (op.outs == std::vector{value}) {
          const Op clone = op;
          bodies.back().ops.push_back(clone);
          return;
        }
      }
    }
    ADD_FAILURE() << "nothing makes " << (*graph)[value].name;
  }

  void define(const std::vector<std::string>& w) {
    Builder b(*graph, bodies.back());
    std::vector<std::string> names;
    size_t i = 0;
    for (; w[i] != "="; ++i) names.push_back(w[i].substr(0, w[i].find(',')));
    const std::string& op = w[++i];
    if (op == "input" || op == "read") {
      const bool state = op == "read";
      const size_t at = i + 1 + state;
      const std::string labels = w[at] == "-" ? "" : w[at];
      const Sizes sizes = labels.empty() ? Sizes{} : sizes_in(w[at + 1]);
      const DType type = type_named(w.size() > at + 2 ? w[at + 2] : "");
      if (state) {
        b.read(w[i + 1], labels, sizes, type, names[0]);
      } else {
        b.input(names[0], labels, sizes, type);
      }
      return;
    }
    std::vector<int> ins;
    Builder::Options options{.names = names, .sizes = {}, .attrs = {}, .dtypes = {}};
    for (size_t j = i + 2; j < w.size(); ++j) {
      if (w[j].size() > 1 && w[j][1] == '=') {
        options.sizes.set(w[j][0], std::stoll(w[j].substr(2)));
      } else if (graph->find(w[j]) >= 0) {
        ins.push_back(value(w[j]));
      } else {
        options.dtypes.assign(names.size(), type_named(w[j]));
      }
    }
    b.op(row_named(op), ins, w[i + 1], std::move(options));
  }
};

std::string joined(const LoweredBody& body, const std::vector<int>& versions) {
  std::string out;
  for (int v : versions)
    out += (out.empty() ? "" : ", ") + (*body.graph)[body.versions[v].value].name;
  return out;
}

std::string layout_of(const LoweredBody& body, int version, const Mesh& mesh) {
  const Version& v = body.versions[version];
  return show(v.layout, (*body.graph)[v.value].labels, mesh);
}

std::string printed(const LoweredBody& body, const Step& s, const Mesh& mesh) {
  switch (s.kind) {
    case StepKind::move:
      return fmt::format("  {} {} over {} -> {}", name_of(s.what), joined(body, s.outs),
                         mesh.show(s.atoms), layout_of(body, s.outs[0], mesh));
    case StepKind::read:
      return fmt::format("read {} -> {}", body.states[s.state].name,
                         layout_of(body, s.outs[0], mesh));
    case StepKind::write:
    case StepKind::accum:
      return fmt::format("{} {} {}", s.kind == StepKind::write ? "write" : "accum",
                         body.states[s.state].name, layout_of(body, s.ins[0], mesh));
    default:
      break;
  }
  std::string out = fmt::format("{} {} ->", info(body.ops[s.op].row).name, joined(body, s.ins));
  for (int v : s.outs) {
    out +=
        fmt::format(" {} {}", (*body.graph)[body.versions[v].value].name, layout_of(body, v, mesh));
  }
  return out;
}

// All bodies of a case, lowered by one sharder.
struct Lowered {
  std::vector<LoweredBody> bodies;
  std::string text;  // one step a line
  size_t searched = 0;
};

Lowered lowered(const std::string& text) {
  const Case c(text);
  const Mesh mesh(c.axes);
  const Rules rules(c.rules, mesh);
  const Wanted wanted = [&](const Value& v) { return rules(v); };
  LayoutMemory memory;
  std::map<StateName, Layout> states;
  Sharder sharder(mesh, wanted, memory, c.graph, 0, states, 0);
  Lowered out;
  for (const Body& body : c.bodies) {
    std::vector<Output> outputs;
    for (int v : body.outputs) outputs.push_back({v, std::nullopt});
    out.bodies.push_back(sharder.lower(body, {}, outputs));
    if (c.bodies.size() > 1) out.text += "body " + body.name + "\n";
    for (const Step& s : out.bodies.back().steps)
      out.text += printed(out.bodies.back(), s, mesh) + "\n";
  }
  out.searched = memory.decisions.size();
  return out;
}

// Raw strings begin with a line break, for the reader's sake.
void expect_steps(const std::string& text, const std::string& steps) {
  EXPECT_EQ("\n" + lowered(text).text, steps) << "of the case" << text;
}

TEST(Sharder, ColumnThenRowParallelProduct) {
  // Tensor parallelism: the hidden layer is sharded, and one all_reduce ends the block.
  expect_steps(R"(
    mesh dp=2 t=2
    rule *: b=dp f=t
    rule *.w: fixed
    rule * [bsd]: !
    body layer
    x = input bsd 4,8,16
    up.w = read p:up.w fd 32,16
    u = contract bsd,fd->bsf x up.w
    down.w = read p:down.w df 16,32
    y = contract bsf,df->bsd u down.w
    out y
)",
               R"(
read p:up.w -> f:t
contract x, up.w -> u b:dp f:t
read p:down.w -> f:t
contract u, down.w -> y b:dp sum:t
  all_reduce y over t -> b:dp
)");
}

TEST(Sharder, SequenceParallelProductGathersAndScatters) {
  expect_steps(R"(
    mesh dp=2 t=2
    rule *: b=dp f=t
    rule *.w: fixed
    rule * [bsd]: s=t !
    body layer
    x = input bsd 4,8,16
    up.w = read p:up.w fd 32,16
    u = contract bsd,fd->bsf x up.w
    down.w = read p:down.w df 16,32
    y = contract bsf,df->bsd u down.w
    out y
)",
               R"(
read p:up.w -> f:t
  all_gather x over t -> b:dp
contract x, up.w -> u b:dp f:t
read p:down.w -> f:t
contract u, down.w -> y b:dp sum:t
  reduce_scatter y over t -> b:dp s:t
)");
}

TEST(Sharder, ZeroOneUpdatesAShardAndGathersTheWeight) {
  expect_steps(R"(
    mesh dp=2
    rule [mv]:*: +zero=dp
    rule */g*: +zero=dp !
    body update
    w = read p:w fd 8,6
    w/g = read g:w fd 8,6
    w/m = read m:w fd 8,6
    next = add fd,fd,fd->fd w w/g w/m
    write next p:w
    write w/m m:w
)",
               R"(
read p:w -> whole
read g:w -> whole
  slice w/g over dp -> f:dp
read m:w -> f:dp
  slice w over dp -> f:dp
add w, w/g, w/m -> next f:dp
  all_gather next over dp -> whole
write p:w whole
write m:w f:dp
)");
}

TEST(Sharder, ZeroThreeGathersTheWeightWhenItIsRead) {
  expect_steps(R"(
    mesh dp=2
    rule *: b=dp
    rule *.w: fixed
    rule p:*: +zero=dp
    body forward
    x = input bd 4,6
    up.w = read p:up.w fd 8,6
    u = contract bd,fd->bf x up.w
    out u
)",
               R"(
read p:up.w -> f:dp
  all_gather up.w over dp -> whole
contract x, up.w -> u b:dp
)");
}

TEST(Sharder, ContextParallelismGathersKeysAndValues) {
  // Queries stay where they are; every rank needs all positions t of keys and values.
  expect_steps(R"(
    mesh cp=2
    rule *: s=cp
    rule [kv]t: t= !
    body attention
    q = input bsgrh 2,8,1,4,4
    k = input bsgh 2,8,1,4
    v = input bsgu 2,8,1,4
    kt = broadcast bsgh->bsgh k
    scores = contract bsgrh,btgh->bsgrt q kt
    out scores
)",
               R"(
broadcast k -> kt s:cp
  all_gather kt over cp -> whole
contract q, kt -> scores s:cp
)");
}

TEST(Sharder, ShardedVocabularyLeavesAPartialMaximum) {
  // The maximum is finalized before numbers depend on it; the sum of exponentials may wait.
  expect_steps(R"(
    mesh t=2
    rule *: v=t
    body loss
    z = input bsv 2,4,10
    m = max_stop bsv->bs z
    sum = sum_exp bsv,bs->bs z m
    l = log bs->bs sum
    out l
)",
               R"(
max_stop z -> m max:t
  all_reduce m over t -> whole
sum_exp z, m -> sum sum:t
  all_reduce sum over t -> whole
log sum -> l whole
)");
}

TEST(Sharder, GradientOfAFixedValueIsMadeWhereTheValueLies) {
  expect_steps(R"(
    mesh dp=2 t=2
    rule *: b=dp f=t
    rule *.w: fixed
    body backward
    up.w = read p:up.w fd 32,16
    x = input bd 4,16
    du = input bf 4,32
    d.up.w = contract bf,bd->fd du x
    gradient d.up.w of up.w
    accum d.up.w g:up.w
)",
               R"(
read p:up.w -> f:t
contract du, x -> d.up.w f:t sum:dp
accum g:up.w f:t sum:dp
)");
}

TEST(Sharder, PartialSumsAreAddedBeforeTheyAreReduced) {
  // Two partial sums and a replicated value: one all_reduce for both sums.
  expect_steps(R"(
    mesh t=2
    rule *: f=t
    rule y: !
    body block
    x = input bd 4,6
    h = input bf 4,8
    w = input df 6,8
    a = contract bf,df->bd h w
    b = contract bf,df->bd h w
    y = add bd,bd,bd->bd x a b
    out y
)",
               R"(
contract h, w -> a sum:t
contract h, w -> b sum:t
add a, b -> %1 sum:t
  all_reduce %1 over t -> whole
add x, %1 -> y whole
)");
}

TEST(Sharder, AReplicatedValueIsMadePartialToJoinAPartialSum) {
  expect_steps(R"(
    mesh t=2
    rule h: f=t
    rule w: f=t
    rule x: d=
    body block
    x = input bd 4,6
    h = input bf 4,8
    w = input df 6,8
    a = contract bf,df->bd h w
    y = add bd,bd->bd x a
    out y
)",
               R"(
contract h, w -> a sum:t
  first x over t -> sum:t
add x, a -> y sum:t
)");
}

TEST(Sharder, UnevenSizesAreShardedAlike) {
  // 5 rows over 2 ranks and 7 features over 3: sizes do not change what is sharded.
  expect_steps(R"(
    mesh dp=2 t=3
    rule *: b=dp f=t
    rule *.w: fixed
    rule y: !
    body layer
    x = input bd 5,3
    up.w = read p:up.w fd 7,3
    u = contract bd,fd->bf x up.w
    down.w = read p:down.w df 3,7
    y = contract bf,df->bd u down.w
    out y
)",
               R"(
read p:up.w -> f:t
contract x, up.w -> u b:dp f:t
read p:down.w -> f:t
contract u, down.w -> y b:dp sum:t
  all_reduce y over t -> b:dp
)");
}

TEST(Sharder, TokensCrossToTheirExpertsByAllToAll) {
  // Rows are made where the tokens are and computed where the experts are.
  expect_steps(R"(
    mesh dp=2
    rule *: b=dp
    rule * [e*]: e=dp b=
    rule *.w: fixed
    rule @dispatch: b=dp
    rule @combine: b=dp
    body experts
    x = input bsd 4,8,16
    id = input bsj 4,8,2 i32
    xe = dispatch bsd,bsj->ebsd x id e=4
    up.w = read p:up.w efd 4,32,16
    u = contract ebsd,efd->ebsf xe up.w
    down.w = read p:down.w edf 4,16,32
    ye = contract ebsf,edf->ebsd u down.w
    y = combine ebsd,bsj->bsd ye id
    out y
)",
               R"(
dispatch x, id -> xe b:dp
  all_to_all xe over dp -> e:dp
read p:up.w -> e:dp
contract xe, up.w -> u e:dp
read p:down.w -> e:dp
contract u, down.w -> ye e:dp
  all_to_all ye over dp -> b:dp
combine ye, id -> y b:dp
)");
}

TEST(Sharder, AnExclamationMarkReducesAnExactSum) {
  const std::string body = R"(
    body loss
    z = input bv 400,1000
    loss = sum_exact bv,bv-> z z exact
    out loss
)";
  expect_steps("\nmesh dp=2\nrule *: b=dp" + body, R"(
sum_exact z, z -> loss sum:dp
)");
  expect_steps("\nmesh dp=2\nrule *: b=dp\nrule loss: !" + body, R"(
sum_exact z, z -> loss sum:dp
  all_reduce loss over dp -> whole
)");
}

TEST(Sharder, ARecomputedOpIsLaidOutLikeItsOriginal) {
  // In the backward body h has been gathered for the softmax. A new op, c, uses the gathered
  // version; a, which is recomputed, is made as a partial sum again and so has the same bits.
  expect_steps(R"(
    mesh t=2
    rule h: f=t
    rule [ac]: !
    body forward
    h = input bf 4,8
    w = input df 2,8
    a = contract bf,df->bd h w
    out a
    body backward
    p = softmax bf->bf h
    again a
    c = contract bf,df->bd h w
    out p
    out a
    out c
)",
               R"(
body forward
  slice w over t -> f:t
contract h, w -> a sum:t
  all_reduce a over t -> whole
body backward
  all_gather h over t -> whole
softmax h -> p whole
  slice w over t -> f:t
contract h, w -> a sum:t
  all_reduce a over t -> whole
contract h, w -> c whole
)");
}

TEST(Sharder, ARecomputedSumGroupsItsOperandsLikeItsOriginal) {
  expect_steps(R"(
    mesh t=2
    rule h: f=t
    rule w: f=t
    rule q: d=
    body forward
    h = input bf 4,8
    w = input df 6,8
    a = contract bf,df->bd h w
    b = contract bf,df->bd h w
    q = input bd 4,6
    y = add bd,bd,bd->bd a b q
    out y
    body backward
    again a
    again b
    again y
    s = silu bd->bd y
    out s
)",
               R"(
body forward
contract h, w -> a sum:t
contract h, w -> b sum:t
add a, b -> %1 sum:t
  first q over t -> sum:t
add %1, q -> y sum:t
body backward
contract h, w -> a sum:t
contract h, w -> b sum:t
add a, b -> %2 sum:t
  first q over t -> sum:t
add %2, q -> y sum:t
  all_reduce y over t -> whole
silu y -> s whole
)");
}

TEST(Sharder, OneGatheredVersionServesQueryKeyAndValue) {
  expect_steps(R"(
    mesh t=2
    rule *: g=t
    rule *.w: fixed
    rule x: s=t !
    body attention
    x = input bsd 2,8,16
    q.w = read p:q.w gd 4,16
    k.w = read p:k.w gd 2,16
    v.w = read p:v.w gd 2,16
    q = contract bsd,gd->bsg x q.w
    k = contract bsd,gd->bsg x k.w
    v = contract bsd,gd->bsg x v.w
    out q
    out k
    out v
)",
               R"(
read p:q.w -> g:t
read p:k.w -> g:t
read p:v.w -> g:t
  all_gather x over t -> whole
contract x, q.w -> q g:t
contract x, k.w -> k g:t
contract x, v.w -> v g:t
)");
}

TEST(Sharder, EqualQuestionsAreAskedOnceAndHaveOneAnswer) {
  const Lowered l = lowered(R"(
    mesh dp=2
    rule *: b=dp
    body layer
    x = input bd 4,6
    a = silu bd->bd x
    b = silu bd->bd x
    c = silu bd->bd x
    out c
)");
  EXPECT_EQ(l.searched, 1u);
  EXPECT_EQ(l.text, "silu x -> a b:dp\nsilu x -> b b:dp\nsilu x -> c b:dp\n");
}

// A decision that is remembered is the decision of a fresh search, and each field of the question
// keeps questions apart.
TEST(Sharder, TheMemoryAnswersAsTheSearchDoes) {
  const Mesh mesh({{"dp", 2}, {"t", 2}});
  LayoutMemory memory;
  const Shape rows{.sizes = {4, 6}}, columns{.sizes = {6, 8}}, product{.sizes = {4, 8}};
  Layout whole(2), by_rows(2);
  by_rows.cuts[0] = AtomList{0};
  SearchInput base{
      .labels = "bdf", .sizes = {4, 6, 8}, .ins = {}, .outs = {}, .imposed = {}, .linear = {1, 2}};
  base.ins = {{.labels = "bd", .shape = memory.costs.intern(rows), .held = {by_rows}},
              {.labels = "df", .shape = memory.costs.intern(columns), .held = {whole}}};
  base.outs = {{.labels = "bf",
                .shape = memory.costs.intern(product),
                .want = {},
                .heading = {},
                .stays = {}}};
  base.imposed.resize(3);
  std::vector<SearchInput> questions(8, base);
  questions[1].ins[0].held = {whole, by_rows};
  questions[2].ins[0].fixed = true;
  questions[3].outs[0].want.asked = true;
  questions[4].outs[0].heading = Cuts{};
  questions[5].imposed[0] = AtomList{};
  questions[6].linear = {};
  questions[7].outs[0].stays = Cuts{AtomList{1}};
  for (int pass = 0; pass < 2; ++pass) {
    for (const SearchInput& q : questions) {
      const auto fresh = search(mesh, memory.costs, q);
      const Decision* known = decide(mesh, memory, q);
      ASSERT_EQ(fresh.has_value(), known != nullptr);
      if (fresh) {
        EXPECT_EQ(*known, *fresh);
      }
    }
    EXPECT_EQ(memory.decisions.size(), questions.size());
  }
  EXPECT_EQ(decide(mesh, memory, base)->naturals[0].cuts[0], AtomList{0}) << "rows stay";
  EXPECT_EQ(decide(mesh, memory, questions[5])->cuts[0], AtomList{}) << "gathered, as imposed";
}

TEST(Sharder, ASumIsReducedBeforeItIsMadeNarrow) {
  expect_steps(R"(
    mesh t=2
    rule x: d=t
    body body
    x = input bd 6,8
    s = contract bd->b x
    y = cast b->b s bf16
    out y
)",
               R"(
contract x -> s sum:t
  all_reduce s over t -> whole
cast s -> y whole
)");
}

TEST(Sharder, APartialSumMayBeMadeWide) {
  expect_steps(R"(
    mesh t=2
    rule x: d=t
    body body
    x = input bd 6,8 bf16
    s = contract bd->b x
    y = cast b->b s f32
    out y
)",
               R"(
contract x -> s sum:t
cast s -> y sum:t
)");
}

}  // namespace
}  // namespace myriad
