#include "ir/print.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>

#include "base/error.h"

namespace myriad {
namespace {

// Field by field, in whatever the text must carry.
void expect_same(const Graph& a, const Graph& b) {
  EXPECT_EQ(a.real, b.real);
  ASSERT_EQ(a.values.size(), b.values.size());
  for (size_t i = 0; i < a.values.size(); ++i) {
    const Value &v = a.values[i], &w = b.values[i];
    EXPECT_EQ(v.name, w.name);
    EXPECT_EQ(v.labels, w.labels);
    EXPECT_EQ(v.sizes, w.sizes);
    EXPECT_EQ(v.dtype, w.dtype);
    EXPECT_EQ(v.gradient_of, w.gradient_of);
    EXPECT_EQ(v.heading, w.heading);
    EXPECT_EQ(b.find(v.name), static_cast<int>(i));
  }
}

void expect_same(Attrs a, Attrs b) {
  for (auto real : {&Attrs::scale, &Attrs::a, &Attrs::b, &Attrs::mscale, &Attrs::max, &Attrs::beta1,
                    &Attrs::beta2, &Attrs::eps, &Attrs::decay}) {
    EXPECT_EQ(std::bit_cast<uint64_t>(a.*real), std::bit_cast<uint64_t>(b.*real));
  }
  ASSERT_EQ(a.frequencies != nullptr, b.frequencies != nullptr);
  if (a.frequencies) {
    EXPECT_EQ(*a.frequencies, *b.frequencies);
  }
  a.frequencies = b.frequencies = nullptr;
  EXPECT_EQ(a, b);
}

void expect_same(const Op& a, const Op& b) {
  EXPECT_EQ(a.row, b.row);
  EXPECT_EQ(a.ins, b.ins);
  EXPECT_EQ(a.outs, b.outs);
  EXPECT_EQ(a.in_labels, b.in_labels);
  EXPECT_EQ(a.out_labels, b.out_labels);
  EXPECT_EQ(a.size, b.size);
  expect_same(a.attrs, b.attrs);
}

void expect_same(const Step& a, const Step& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.op, b.op);
  EXPECT_EQ(a.ins, b.ins);
  EXPECT_EQ(a.outs, b.outs);
  EXPECT_EQ(a.cuts, b.cuts);
  EXPECT_EQ(a.what, b.what);
  EXPECT_EQ(a.atoms, b.atoms);
  EXPECT_EQ(a.state, b.state);
}

void expect_same(const LoweredBody& a, const LoweredBody& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.piece, b.piece);
  expect_same(*a.graph, *b.graph);
  ASSERT_EQ(a.ops.size(), b.ops.size());
  for (size_t i = 0; i < a.ops.size(); ++i) expect_same(a.ops[i], b.ops[i]);
  ASSERT_EQ(a.versions.size(), b.versions.size());
  for (size_t i = 0; i < a.versions.size(); ++i) {
    EXPECT_EQ(a.versions[i].value, b.versions[i].value);
    EXPECT_EQ(a.versions[i].layout, b.versions[i].layout);
  }
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) expect_same(a.steps[i], b.steps[i]);
  ASSERT_EQ(a.states.size(), b.states.size());
  for (size_t i = 0; i < a.states.size(); ++i) {
    EXPECT_EQ(a.states[i].name, b.states[i].name);
    EXPECT_EQ(a.states[i].value, b.states[i].value);
    EXPECT_EQ(a.states[i].layout, b.states[i].layout);
  }
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.outputs, b.outputs);
}

void expect_same(const Action& a, const Action& b) {
  EXPECT_EQ(a.act, b.act);
  EXPECT_EQ(a.body, b.body);
  EXPECT_EQ(a.unit, b.unit);
  EXPECT_EQ(a.micro_batch, b.micro_batch);
  EXPECT_EQ(a.ins, b.ins);
  EXPECT_EQ(a.outs, b.outs);
  EXPECT_EQ(a.states, b.states);
  EXPECT_EQ(a.peer, b.peer);
  EXPECT_EQ(a.channel, b.channel);
  EXPECT_EQ(a.first, b.first);
}

void expect_same(const Program& a, const Program& b) {
  EXPECT_EQ(a.stages, b.stages);
  ASSERT_EQ(a.mesh.declared().size(), b.mesh.declared().size());
  for (size_t i = 0; i < a.mesh.declared().size(); ++i) {
    EXPECT_EQ(a.mesh.declared()[i].name, b.mesh.declared()[i].name);
    EXPECT_EQ(a.mesh.declared()[i].size, b.mesh.declared()[i].size);
    EXPECT_EQ(a.mesh.declared()[i].price, b.mesh.declared()[i].price);
  }
  ASSERT_EQ(a.bodies.size(), b.bodies.size());
  for (size_t i = 0; i < a.bodies.size(); ++i) {
    expect_same(a.bodies[i], b.bodies[i]);
    for (size_t j = 0; j < i; ++j) {
      EXPECT_EQ(a.bodies[i].graph == a.bodies[j].graph, b.bodies[i].graph == b.bodies[j].graph);
    }
  }
  ASSERT_EQ(a.buffers.size(), b.buffers.size());
  for (size_t i = 0; i < a.buffers.size(); ++i) {
    EXPECT_EQ(a.buffers[i].name, b.buffers[i].name);
    EXPECT_EQ(a.buffers[i].body, b.buffers[i].body);
    EXPECT_EQ(a.buffers[i].version, b.buffers[i].version);
  }
  ASSERT_EQ(a.states.size(), b.states.size());
  for (size_t i = 0; i < a.states.size(); ++i) {
    EXPECT_EQ(a.states[i].unit, b.states[i].unit);
    EXPECT_EQ(a.states[i].name, b.states[i].name);
    EXPECT_EQ(a.states[i].body, b.states[i].body);
    EXPECT_EQ(a.states[i].use, b.states[i].use);
    EXPECT_EQ(a.states[i].stages, b.states[i].stages);
  }
  ASSERT_EQ(a.actions.size(), b.actions.size());
  for (size_t s = 0; s < a.actions.size(); ++s) {
    ASSERT_EQ(a.actions[s].size(), b.actions[s].size());
    for (size_t i = 0; i < a.actions[s].size(); ++i) expect_same(a.actions[s][i], b.actions[s][i]);
  }
}

// As print_program writes it.
constexpr const char* kText = R"(program stages 2
mesh pp 2, dp 2, cp 1, tg 2 price 0.5, tr 3 price 8

graph 0 f32
  value x "bsd" 4,24,48 f32
  value q.w "grhd" 2,3,8,48 f32
  value q "bsgrh" 4,24,2,3,8 f32
  value pos "bs" 4,24 i32
  value q.r "bsgrh" 4,24,2,3,8 f32
  value d.x "bsd" 4,24,48 f32 gradient_of x
  value %1 "bsd" 4,24,48 f32 heading x
  value loss "" exact
body "layer.forward/4 rows" piece 1 graph 0
  inputs v0 x [b:dp s:tg,tr], v1 pos [b:dp]
  state p:q.w of q.w [g:tg r:tr]
  version v7 loss [whole]
  v2 q.w [g:tg r:tr] = read p:q.w
  v3 x [b:dp] = move all_gather [tg,tr] (v0)
  op 0 q = contract "bsd,grhd->bsgrh" (x, q.w) [b=4 s=24 d=48 g=2 r=3 h=8] scale=0.1 stop=2
  v4 q [b:dp g:tg r:tr] = run 0 (v3, v2) cut [b:dp g:tg r:tr]
  op 1 q.r = rope "bsgrh,bs->bsgrh" (q, pos) [b=4 s=24 g=2 r=3 h=8] frequencies=[1 0.1 0.01 0.001] style=interleaved sign=-1
  v5 q.r [b:dp g:tg r:tr] = run 1 (v4, v1) cut [b:dp g:tg r:tr]
  op 2 loss = sum_exact "bsgrh->" (q.r) [b=4 s=24 g=2 r=3 h=8]
  v6 loss [sum:dp,tg,tr] = run 2 (v5) cut [b:dp g:tg r:tr]
  outputs v4, v5, v6

body layer.backward piece 1 graph 0
  inputs
  state g:q.w of q.w [sum:dp]
  state g:q.w of d.x [max:dp]
  op 0 "%1" = clip "->" () []
  op 1 write "bsd->" (x) [b=4 s=24 d=48] state="odd \"name\""
  outputs

buffer y/L0.mb0 of "layer.forward/4 rows" v4
buffer y/L1.mb0 of "layer.forward/4 rows" v4
buffer y/L1.mb0 of "layer.forward/4 rows" v5
state 0 p:q.w unit 3 of "layer.forward/4 rows" use 0 stages 0,1
state 1 s:norm of layer.backward use 1 stages
state 2 m:q.w unit 3 of layer.backward use 0 stages 1

stage 0
  feed mb 0 -> (y/L0.mb0)
  run "layer.forward/4 rows" unit 3 mb 0 (y/L0.mb0) -> (y/L1.mb0 #1, y/L1.mb0 #2) states 0-2,1
  run layer.backward unit 3 mb 0 first states 0,1
  send mb 0 (y/L1.mb0 #2) to stage 1 channel 4
  wait mb 0 (y/L1.mb0 #2) to stage 1 channel 4

stage 1
  recv mb 0 -> (y/L1.mb0 #1) from stage 0 channel 4
  zero states 2
)";

std::string text_of_program() {
  std::string text = kText;
  text.replace(text.find("\"%1\" ="), 4,
               "%1");  // the raw text shows that a name may stand in quotes
  return text;
}

TEST(Print, ProgramReadsBack) {
  const Program program = parse_program(kText);
  EXPECT_EQ(print_program(program), text_of_program());
  expect_same(parse_program(print_program(program)), program);
  EXPECT_EQ(program.bodies[0].graph, program.bodies[1].graph);
  EXPECT_EQ(program.mesh.declared().size(), 5u);
  EXPECT_EQ(program.mesh.axis(2).price, 0.5);
  const Op& rope = program.bodies[0].ops[1];
  EXPECT_EQ(*rope.attrs.frequencies, (std::vector<double>{1, 0.1, 0.01, 0.001}));
  EXPECT_EQ(rope.attrs.style, RopeStyle::interleaved);
  EXPECT_EQ(program.bodies[1].ops[1].attrs.state, "odd \"name\"");
  EXPECT_EQ(program.actions[0][1].states, (std::vector<int>{0, 1, 2, 1}));
  EXPECT_EQ(program.actions[0][1].outs, (std::vector<int>{1, 2}));
  EXPECT_EQ(program.states[1].unit, -1);
  EXPECT_EQ(show(program.actions[1][0], program),
            "recv mb 0 -> (y/L1.mb0 #1) from stage 0 channel 4");
}

TEST(Print, BodyReadsBack) {
  const Program program = parse_program(kText);
  for (const LoweredBody& body : program.bodies) {
    const std::string text = print_body(body, program.mesh);
    const LoweredBody back = parse_body(text, program.mesh);
    expect_same(back, body);
    EXPECT_EQ(print_body(back, program.mesh), text);
    EXPECT_NE(back.graph, body.graph);
    EXPECT_EQ(back.graph->fresh(), "%2");
  }
}

TEST(Print, CommentsAndSpaces) {
  const Program a = parse_program(kText);
  std::string text = "# a comment\n\n";
  for (char c : std::string(kText)) text += c == '\n' ? "  \r\n   # so\n" : std::string(1, c);
  expect_same(parse_program(text), a);
}

double any_double(std::mt19937_64& random) {
  switch (random() % 6) {
    case 0:
      return 0.0;
    case 1:
      return -0.0;
    case 2:
      return std::numeric_limits<double>::infinity();
    case 3:
      return std::numeric_limits<double>::denorm_min();
    case 4:
      return std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 800) - 400);
    default:
      return static_cast<double>(random() % 1000) / 10;
  }
}

std::string any_name(std::mt19937_64& random) {
  static constexpr std::string_view kChars = "abz09 ._:/%#\"\\()[],=->\n\tv";
  std::string out;
  for (size_t n = random() % 6; n > 0; --n) out += kChars[random() % kChars.size()];
  return out;
}

Attrs any_attrs(std::mt19937_64& random) {
  Attrs a;
  const auto maybe = [&](auto& field, auto x) {
    if (random() % 2) field = x;
  };
  for (auto real : {&Attrs::scale, &Attrs::a, &Attrs::b, &Attrs::mscale, &Attrs::max, &Attrs::beta1,
                    &Attrs::beta2, &Attrs::eps, &Attrs::decay}) {
    maybe(a.*real, any_double(random));
  }
  maybe(a.stop, static_cast<uint32_t>(random()));
  maybe(a.label, "bs=\"]"[random() % 5]);
  maybe(a.to, "yi #"[random() % 4]);
  maybe(a.lo, static_cast<int64_t>(random()));
  maybe(a.style, RopeStyle::interleaved);
  maybe(a.sign, -1);
  maybe(a.state, any_name(random));
  if (random() % 2) {
    std::vector<double> f;
    for (size_t n = random() % 5; n > 0; --n) f.push_back(any_double(random));
    a.frequencies = std::make_shared<const std::vector<double>>(f);
  }
  return a;
}

// Bodies that mean nothing, with any names, attributes and layouts.
LoweredBody any_body(std::mt19937_64& random, const Mesh& mesh, std::shared_ptr<Graph> graph) {
  const auto pick = [&](size_t n) { return static_cast<int>(random() % n); };
  LoweredBody body{.name = any_name(random), .piece = pick(5) - 1, .graph = graph};
  for (int i = 0; i < 6; ++i) {
    const int value = pick(graph->values.size());
    Layout layout(static_cast<int>((*graph)[value].labels.size()));
    for (Atom a = 0; a < mesh.atoms(); ++a) {
      const int d = pick(8);
      if (d < layout.dims) {
        layout.cuts[d].push(a);
      } else if (d == 7) {
        layout.pending = static_cast<AtomSet>(layout.pending | 1u << a);
      }
    }
    layout.max = layout.pending && pick(2);
    body.versions.push_back({value, layout});
    if (pick(2)) body.states.push_back({any_name(random), value, layout});
  }
  const auto versions = [&] {
    std::vector<int> out;
    for (int n = pick(4); n > 0; --n) out.push_back(pick(body.versions.size()));
    return out;
  };
  for (int i = 0; i < 4; ++i) {
    Op op{.row = static_cast<Row>(pick(kRows)),
          .size = {"bs", {pick(5), 7}},
          .attrs = any_attrs(random)};
    for (int n = pick(4); n > 0; --n) {
      op.ins.push_back(pick(graph->values.size()));
      op.in_labels.push_back(pick(2) ? "bs" : "");
    }
    for (int n = pick(3); n > 0; --n) {
      op.outs.push_back(pick(graph->values.size()));
      op.out_labels.push_back(pick(2) ? "s" : "");
    }
    body.ops.push_back(op);
  }
  for (int i = 0; i < 8; ++i) {
    Step step{.kind = static_cast<StepKind>(pick(5)), .ins = versions(), .outs = versions()};
    if (step.kind == StepKind::run) {
      step.op = pick(4);
      step.cuts.resize(2);
      if (pick(2)) step.cuts[pick(2)] = AtomList{1, 0};
    } else if (step.kind == StepKind::move) {
      step.what = static_cast<MoveKind>(pick(7));
      if (pick(4)) step.atoms = AtomList{0, 2};
    } else if (body.states.empty()) {
      continue;
    } else {
      step.state = pick(body.states.size());
    }
    body.steps.push_back(step);
  }
  body.inputs = versions();
  body.outputs = versions();
  return body;
}

TEST(Print, RandomBodiesReadBack) {
  std::mt19937_64 random(7);
  const Mesh mesh({{"dp", 2, 1.0 / 3}, {"one", 1}, {"tg", 3}, {"tr", 2}});
  for (int i = 0; i < 400; ++i) {
    Program program{.mesh = mesh};
    std::vector<std::shared_ptr<Graph>> graphs;
    for (int g = 0; g < 2; ++g) {
      auto graph = std::make_shared<Graph>();
      graph->real = random() % 2 ? DType::f64 : DType::f32;
      for (int n = 0; n < 4; ++n) {
        Value v{.name = n == 3 ? graph->fresh() : any_name(random),
                .labels = n % 2 ? "bsd" : "",
                .sizes = {},
                .dtype = static_cast<DType>(random() % 4),
                .gradient_of = static_cast<int>(random() % 5) - 1};
        if (n % 2) v.sizes = {4, 0, 1LL << 40};
        v.heading = static_cast<int>(random() % 5) - 1;
        if (graph->find(v.name) >= 0) v.name += std::to_string(n);
        graph->add(v);
      }
      graphs.push_back(graph);
    }
    for (int b = 0; b < 3; ++b) program.bodies.push_back(any_body(random, mesh, graphs[b == 1]));
    program.actions.resize(1);
    const std::string text = print_program(program);
    SCOPED_TRACE(text);
    const Program back = parse_program(text);
    expect_same(back, program);
    EXPECT_EQ(print_program(back), text);
    if (HasFailure()) return;
  }
}

std::string refusal(const std::string& from, const std::string& to) {
  std::string text = kText;
  const size_t at = text.find(from);
  if (at == text.npos) return "no \"" + from + "\"";
  text.replace(at, from.size(), to);
  try {
    parse_program(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Parse, Refusals) {
  const struct {
    const char *from, *to, *message;
  } kCases[] = {
      {"program", "plan", "line 1: expected \"program\", found \"plan stages 2\""},
      {"stages 2", "stages two", "line 1: expected the number of stages, found \"two\""},
      {"dp 2,", "dp 2",
       "line 2: expected the end of the line, found \"cp 1, tg 2 price 0.5, tr 3 price 8\""},
      {"graph 0 f32", "graph 1 f32", "line 4: expected graph 0, found \"1 f32\""},
      {"graph 0 f32", "graph 0 f16",
       "line 4: expected a type: f32 f64 bf16 i32 exact, found \"f16\""},
      {"4,24,48 f32", "4,24 f32",
       "line 5: expected a size for each label, found \"x \"bsd\" 4,24 f32\""},
      {"value q.w", "value x", "line 6: expected a new name, found \"x \"grhd\" 2,3,8,48 f32\""},
      {"gradient_of x", "gradient_of z", "line 10: expected a value of the graph, found \"z\""},
      {"piece 1 graph 0", "piece 1 graph 1", "line 13: expected a graph below 1, found \"1\""},
      {"v1 pos [b:dp]", "v1 pos [b:dq]",
       "line 14: layout \"b:dq\": no atom \"dq\"\n  hint: atoms are pp,dp,tg,tr"},
      {"v1 pos [b:dp]", "v1 pos [b:dp", "line 14: expected a layout in brackets, found \"[b:dp\""},
      {"v1 pos [b:dp]", "v1 pox [b:dp]",
       "line 14: expected a value of the graph, found \"pox [b:dp]\""},
      {"v1 pos [b:dp]", "v1",
       "line 13: expected a body that makes v1, found \"\"layer.forward/4 rows\" piece 1 graph "
       "0\""},
      {"version v7", "version v1",
       "line 16: expected v1 to be named once, found \"v1 loss [whole]\""},
      {"version v7 loss", "version w7 loss",
       "line 16: expected a version, as in v3, found \"w7 loss [whole]\""},
      {"read p:q.w", "read p:k.w", "line 17: expected a known state of the body, found \"p:k.w\""},
      {"read p:q.w", "fetch p:q.w",
       "line 17: expected a step: run move read write accum emit, found \"fetch p:q.w\""},
      {"all_gather [tg,tr]", "gather [tg,tr]",
       "line 18: expected a move: slice first reduce_scatter all_to_all all_reduce all_gather "
       "exchange, "
       "found \"gather [tg,tr] (v0)\""},
      {"all_gather [tg,tr]", "all_gather [tg,cp]",
       "line 18: expected an atom of the mesh, found \"cp\""},
      {"op 0 q =", "op 1 q =",
       "line 19: expected op 0, found \"1 q = contract \"bsd,grhd->bsgrh\" (x, q.w) "
       "[b=4 s=24 d=48 g=2 r=3 h=8] scale=0.1 stop=2\""},
      {"scale=0.1 ", "size=0.1 ",
       "line 19: expected an attribute of ops, found \"size=0.1 stop=2\""},
      {"scale=0.1 ", "scale=0,1 ", "line 19: expected an attribute, found \",1 stop=2\""},
      {"run 0 (v3", "run 1 (v3",
       "line 20: expected an op below 1, found \"1 (v3, v2) cut [b:dp g:tg r:tr]\""},
      {"r:tr]\n  op 1", "x:tr]\n  op 1",
       "line 20: expected cuts as in [b:dp g:tg], found \"[b:dp g:tg x:tr]\""},
      {"\"bsgrh,bs->bsgrh\"", "\"bsgrh->bsgrh\"",
       "line 21: expected a rule with 2 operands, found"},
      {"\"bsgrh,bs->bsgrh\"", "\"bsgrh,bs->bsgrh;b\"",
       "line 21: expected a rule with 1 results, found"},
      {"= rope", "= roap", "line 21: unknown op row \"roap\""},
      {"[1 0.1 ", "[1 0.1x ", "line 21: expected a frequency, found \"0.1x 0.01 0.001\""},
      {"\\\"name\\\"\"", "", "line 32: expected a state with a closing quote, found"},
      {"mb0 of \"layer.forward/4 rows\"", "mb0 of layer.forward",
       "line 35: expected a known body, found \"layer.forward v4\""},
      {"rows\" v4", "rows\" v40", "line 35: expected a version of the body below 8, found \"40\""},
      {"state 1 s", "state 2 s",
       "line 39: expected state 1, found \"2 s:norm of layer.backward use 1 stages\""},
      {"stages 0,1", "stages 0-2", "line 38: expected a stage below 2, found \"2\""},
      {"feed mb 0 -> (y/L0.mb0)", "feed mb 0 -> (y/L0.mb0",
       "line 43: expected \")\", found the end"},
      {"states 0-2,1", "states 2-0", "line 44: expected a range, as in 3-22, found \"2-0\""},
      {"y/L1.mb0 #2)", "y/L0.mb0 #2)",
       "line 44: expected #2 to be y/L1.mb0, found \"y/L0.mb0 #2) states 0-2,1\""},
      {"  send mb 0", "  push mb 0",
       "line 46: expected an action: feed run send wait recv zero, found"},
      {"channel 4\n  wait", "channel\n  wait", "line 46: expected a channel, found the end"},
      {"stage 1\n  recv", "stage 2\n  recv", "line 49: expected stage 1, found \"2\""},
  };
  for (const auto& c : kCases) {
    const std::string said = refusal(c.from, c.to);
    EXPECT_TRUE(said.starts_with(c.message)) << c.from << " -> " << c.to << "\n" << said;
  }
}

// Whatever the text, the answer is a program or an Error.
TEST(Parse, DamagedTextIsRefusedOrRead) {
  std::mt19937_64 random(3);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = kText;
    for (size_t n = random() % 3; n < 3; ++n) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.erase(at, random() % 9);
          break;
        case 1:
          text.insert(at, 1, " ()[],=#\"v0-9a"[random() % 14]);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 9));
      }
    }
    try {
      const Program program = parse_program(text);
      expect_same(parse_program(print_program(program)), program);
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find("line "), 0u);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace myriad
