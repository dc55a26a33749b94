#include "ir/print.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <typeinfo>

#include "base/error.h"
#include "ir/difference.h"

namespace myriad {
namespace {

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
  op 1 write "bsd->" (x) [b=4 s=24 d=48] state="p:odd \"name\""
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
  EXPECT_EQ(difference(parse_program(print_program(program)), program), "");
  EXPECT_EQ(program.bodies[0].graph, program.bodies[1].graph);
  EXPECT_EQ(program.mesh.declared().size(), 5u);
  EXPECT_EQ(program.mesh.axis(2).price, 0.5);
  const Op& rope = program.bodies[0].ops[1];
  EXPECT_EQ(*rope.attrs.frequencies, (std::vector<double>{1, 0.1, 0.01, 0.001}));
  EXPECT_EQ(rope.attrs.style, RopeStyle::interleaved);
  EXPECT_EQ(program.bodies[1].ops[1].attrs.state, "p:odd \"name\"");
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
    EXPECT_EQ(difference(back, body), "");
    EXPECT_EQ(print_body(back, program.mesh), text);
    EXPECT_NE(back.graph, body.graph);
    EXPECT_EQ(back.graph->fresh(), "%2");
  }
}

TEST(Print, CommentsAndSpaces) {
  const Program a = parse_program(kText);
  std::string text = "# a comment\n\n";
  for (char c : std::string(kText)) text += c == '\n' ? "  \r\n   # so\n" : std::string(1, c);
  EXPECT_EQ(difference(parse_program(text), a), "");
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

// Fields of the table, at random: those the text carries by name, and so whatever is added to it.
class AnyFields {
 public:
  explicit AnyFields(std::mt19937_64& random) : random_(random) {}

  // Links go to values below `values`.
  template <class S>
  void fill(S& s, int values = 0) {
    for_each_field<S>([&](auto field) {
      if (random_() % 2) return;
      if constexpr (field.text == Text::link) {
        s.*field.at = pick(values + 1) - 1;
      } else if constexpr (field.text == Text::keyed) {
        make(s.*field.at);
      }
    });
  }
  int pick(size_t n) { return static_cast<int>(random_() % n); }
  std::vector<int> list(size_t below) {
    std::vector<int> out;
    for (int n = below ? pick(4) : 0; n > 0; --n) out.push_back(pick(below));
    return out;
  }
  std::string name() { return any_name(random_); }
  StateName state() {
    StateName s;
    make(s);
    return s;
  }
  void make(bool& x) { x = true; }
  void make(double& x) { x = any_double(random_); }
  void make(int& x) { x = static_cast<int>(random_()); }
  void make(int64_t& x) { x = static_cast<int64_t>(random_()); }
  void make(uint32_t& x) { x = static_cast<uint32_t>(random_()); }
  void make(char& x) { x = "bs=\"] #"[pick(7)]; }
  void make(std::string& x) { x = name(); }
  void make(StateName& x) { x = {static_cast<StateKind>(pick(kStateKinds)), name()}; }
  void make(BodyRole& x) { x = static_cast<BodyRole>(pick(7)); }
  void make(DType& x) { x = static_cast<DType>(pick(5)); }
  void make(RopeStyle& x) { x = RopeStyle::interleaved; }
  void make(std::shared_ptr<const std::vector<double>>& x) {
    std::vector<double> f(random_() % 5);
    for (double& y : f) make(y);
    x = std::make_shared<const std::vector<double>>(f);
  }

 private:
  std::mt19937_64& random_;
};

std::shared_ptr<Graph> any_graph(AnyFields& any) {
  auto graph = std::make_shared<Graph>();
  any.make(graph->real);
  any.fill(*graph);
  for (int n = 0; n < 4; ++n) {
    Value v{.name = n == 3                  ? graph->fresh()
                    : n == 2 && any.pick(2) ? "x"  // a port
                                            : any.name(),
            .labels = n % 2 ? "bsd" : "",
            .sizes = {},
            .dtype = static_cast<DType>(any.pick(5))};
    if (n % 2) v.sizes = {4, 0, 1LL << 40};
    if (graph->find(v.name) >= 0) v.name += std::to_string(n);
    any.fill(v, 4);
    graph->add(v);
  }
  return graph;
}

Layout any_layout(AnyFields& any, const Mesh& mesh, size_t dims) {
  Layout layout(static_cast<int>(dims));
  for (Atom a = 0; a < mesh.atoms(); ++a) {
    const int d = any.pick(8);
    if (d < layout.dims) {
      layout.cuts[d].push(a);
    } else if (d == 7) {
      layout.pending = static_cast<AtomSet>(layout.pending | 1u << a);
    }
  }
  layout.max = layout.pending && any.pick(2);
  return layout;
}

Op any_op(AnyFields& any, const Graph& graph) {
  Op op{.row = static_cast<Row>(any.pick(kRows))};
  op.size = {"bs", {any.pick(5), 7}};
  any.fill(op);
  any.fill(op.attrs);
  op.ins = any.list(graph.values.size());
  op.outs = any.list(graph.values.size());
  for (int i : op.ins) {
    op.in_labels.push_back(any.pick(2) ? "bs" : "");
    op.in_types.push_back(graph[i].dtype);
  }
  for (int o : op.outs) {
    op.out_labels.push_back(any.pick(2) ? "s" : "");
    op.out_types.push_back(graph[o].dtype);
  }
  return op;
}

Step any_step(AnyFields& any, const LoweredBody& body) {
  Step step{.kind = static_cast<StepKind>(any.pick(8))};
  step.ins = any.list(body.versions.size());
  step.outs = any.list(body.versions.size());
  if (step.kind == StepKind::run) {
    step.op = any.pick(body.ops.size());
    step.cuts.resize(2);
    if (any.pick(2)) step.cuts[any.pick(2)] = AtomList{1, 0};
  } else if (step.kind == StepKind::move || step.kind == StepKind::start ||
             step.kind == StepKind::finish) {
    step.what = static_cast<MoveKind>(any.pick(kMoveKinds));
    if (any.pick(4)) step.atoms = AtomList{0, 2};
    step.once = any.pick(2);
  } else {
    step.state = any.pick(step.kind == StepKind::emit ? 9 : body.states.size());
  }
  return step;
}

// A body that means nothing, with any names, attributes and layouts.
LoweredBody any_body(AnyFields& any, const Mesh& mesh, std::shared_ptr<Graph> graph) {
  LoweredBody body{.name = any.name(), .piece = any.pick(5) - 1, .graph = graph};
  any.fill(body);
  for (int i = 0; i < 6; ++i) {
    const int value = any.pick(graph->values.size());
    const Layout layout = any_layout(any, mesh, (*graph)[value].labels.size());
    body.versions.push_back({value, layout, any.pick(4) == 0});
    if (i == 0 || any.pick(2)) body.states.push_back({any.state(), value, layout});
  }
  for (int i = 0; i < 4; ++i) body.ops.push_back(any_op(any, *graph));
  for (int i = 0; i < 8; ++i) body.steps.push_back(any_step(any, body));
  body.inputs = any.list(body.versions.size());
  body.outputs = any.list(body.versions.size());
  body.loop = any.pick(2);
  if (body.loop) {
    body.rounds = any.pick(3) - 1;
    any.make(body.parts);
    any.make(body.bound);
  }
  return body;
}

Action any_action(AnyFields& any, const Program& program) {
  const auto maybe = [&](int& x, size_t n) {
    if (any.pick(2)) x = any.pick(n);
  };
  Action a{.act = static_cast<Act>(any.pick(6))};
  maybe(a.body, program.bodies.size());
  if (a.act == Act::run) a.body = any.pick(program.bodies.size());
  a.unit = any.pick(1000) - 5;
  maybe(a.micro_batch, 100);
  maybe(a.peer, static_cast<size_t>(program.stages));
  maybe(a.channel, 50);
  a.ins = any.list(program.buffers.size());
  a.outs = any.list(program.buffers.size());
  a.states = any.list(program.states.size());
  a.first = any.pick(2);
  return a;
}

Program any_program(AnyFields& any) {
  Program program;
  program.stages = 1 + any.pick(3);
  program.ranks_per_node = any.pick(3);
  const OwnerNodes nodes{.owners = 3, .inner = 2, .ranks_per_node = 4};
  program.mesh = Mesh({{"dp", 2, 1.0 / 3}, {"one", 1}, {"tg", 3}, {"tr", 2}},
                      any.pick(2) ? nodes : OwnerNodes());
  const std::vector<std::shared_ptr<Graph>> graphs = {any_graph(any), any_graph(any)};
  for (int b = 0; b < 3; ++b) program.bodies.push_back(any_body(any, program.mesh, graphs[b == 1]));
  for (int i = 0; i < 3; ++i) {
    const int body = any.pick(program.bodies.size());
    program.buffers.push_back({any.name(), body, any.pick(program.bodies[body].versions.size())});
    program.states.push_back({.unit = any.pick(4) - 1,
                              .name = any.state(),
                              .body = body,
                              .use = any.pick(program.bodies[body].states.size()),
                              .stages = any.list(static_cast<size_t>(program.stages))});
  }
  program.actions.resize(static_cast<size_t>(program.stages));
  for (auto& stage : program.actions) {
    for (int i = any.pick(5); i > 0; --i) stage.push_back(any_action(any, program));
  }
  return program;
}

// Which fields of the table were ever other than those of a fresh struct.
class Seen {
 public:
  template <class T>
  void see(const T& x) {
    if constexpr (HasFields<T>) {
      static const T fresh = T();
      for_each_field<T>([&](auto field) {
        fields_[key<T>(field.name)] |= !difference(x.*field.at, fresh.*field.at).empty();
        see(x.*field.at);
      });
    }
  }
  template <class T>
  void see(const std::vector<T>& items) {
    for (const T& item : items) see(item);
  }
  void see(const std::shared_ptr<Graph>& graph) { see(*graph); }
  std::string unseen() const {
    std::string out;
    for (const auto& [name, seen] : fields_) out += seen ? "" : name + "\n";
    return out;
  }
  size_t fields() const { return fields_.size(); }

 private:
  template <class S>
  static std::string key(const char* name) {
    return std::string(typeid(S).name()) + "." + name;
  }
  std::map<std::string, bool> fields_;
};

TEST(Print, RandomProgramsReadBack) {
  std::mt19937_64 random(7);
  AnyFields any(random);
  Seen seen;
  for (int i = 0; i < 400; ++i) {
    const Program program = any_program(any);
    const std::string text = print_program(program);
    SCOPED_TRACE(text);
    const Program back = parse_program(text);
    EXPECT_EQ(difference(back, program), "");
    EXPECT_EQ(print_program(back), text);
    if (HasFailure()) return;
    seen.see(program);
  }
  EXPECT_EQ(seen.unseen(), "");
  EXPECT_GT(seen.fields(), 100u);
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
       "line 17: expected a step: run move start finish read write accum emit, found \"fetch "
       "p:q.w\""},
      {"all_gather [tg,tr]", "gather [tg,tr]",
       "line 18: expected a move: slice first reduce_scatter all_to_all all_reduce all_gather, "
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
      {"state p:q.w of", "state q:q.w of", "line 15: expected a state, as in p:q.w, found"},
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
      EXPECT_EQ(difference(parse_program(print_program(program)), program), "");
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find("line "), 0u);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace myriad
