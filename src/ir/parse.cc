// Reads graphs and bodies as ir/print.cc writes them. Each struct is read by one function or class,
// line by line and from left to right; fields that have no place of their own are found by name in
// the table of ir/fields.h. A graph's values may name values further down, so links between them
// are resolved at its end; so are versions, which a body may name before the step that makes them.
// Read ir/print.h for the form of the text and ir/parse_line.h for tokens; ir/parse_program.cc
// reads the rest of a program.
#include <charconv>
#include <map>
#include <optional>

#include "ir/fields.h"
#include "ir/flight.h"
#include "ir/parse_line.h"
#include "ir/parse_parts.h"
#include "ir/print.h"
#include "ir/rows.h"

namespace myriad {

namespace {

MoveKind parse_move(Line& line) {
  using enum MoveKind;
  return named(line, {slice, first, reduce_scatter, all_to_all, all_reduce, all_gather}, "a move");
}

AtomList parse_atoms(Line& line, const Mesh& mesh) {
  AtomList out;
  line.list([&] {
    const Line before = line;
    const int a = mesh.find(line.word("an atom"));
    if (a < 0) before.fail("an atom of the mesh");
    if (out.n == AtomList::kMost) before.fail(fmt::format("at most {} atoms", AtomList::kMost));
    out.push(static_cast<Atom>(a));
  });
  return out;
}

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == by) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace

StateName parse_state_name(Line& line) {
  const Line before = line;
  const auto name = state_named(line.word("a state"));
  if (!name) before.fail("a state, as in p:q.w");
  return *name;
}

namespace {

// What stands behind the name of a keyed field.
void read_field(Line&, bool& x) { x = true; }
void read_field(Line& line, double& x) { x = line.number<double>("a number"); }
void read_field(Line& line, int& x) { x = line.number<int>("a number"); }
void read_field(Line& line, int64_t& x) { x = line.number<int64_t>("an integer"); }
void read_field(Line& line, uint32_t& x) { x = line.number<uint32_t>("a mask of operands"); }
void read_field(Line& line, std::string& x) { x = line.word("a name"); }
void read_field(Line& line, StateName& x) { x = parse_state_name(line); }
void read_field(Line& line, BodyRole& x) {
  using enum BodyRole;
  x = named(line, {forward, recompute, backward, reduce, square, update, finish}, "a role");
}
void read_field(Line& line, DType& x) { x = parse_dtype(line); }
void read_field(Line& line, RopeStyle& x) {
  x = named(line, {RopeStyle::half, RopeStyle::interleaved}, "a style");
}
void read_field(Line& line, char& x) {
  const Line before = line;
  const std::string text = line.word("a label");
  if (text.size() != 1) before.fail("a label of one letter");
  x = text[0];
}
void read_field(Line& line, std::shared_ptr<const std::vector<double>>& x) {
  Line inside = line.inside("[frequencies]");
  std::vector<double> f;
  while (!inside.done()) f.push_back(inside.number<double>("a frequency"));
  x = std::make_shared<const std::vector<double>>(std::move(f));
}

// A field that names a value, which may stand further down.
struct Link {
  Line line;
  int Value::*field;
  int of;
  std::string to;
};

// The field of s called `key`, if there is one; of a link only where it stands.
template <class S>
bool parse_keyed(Line& line, const std::string& key, S& s, int id = -1,
                 std::vector<Link>* links = nullptr) {
  bool found = false;
  for_each_field<S>([&](auto field) {
    if constexpr (field.text == Text::keyed || field.text == Text::link) {
      if (found || key != field.name) return;
      found = true;
      if constexpr (field.text == Text::keyed) {
        read_field(line, s.*field.at);
      } else {
        links->push_back({line, field.at, id, line.word("a value")});
      }
    }
  });
  return found;
}

// Temporaries are numbered: the graph goes on where it stopped.
void count_temporaries(Graph& graph, Line& line) {
  constexpr int kMost = 1 << 20;
  int most = 0;
  for (const Value& v : graph.values) {
    int n = 0;
    if (!v.name.starts_with('%')) continue;
    std::from_chars(v.name.data() + 1, v.name.data() + v.name.size(), n);
    if (n > kMost) line.fail(fmt::format("temporaries up to %{} (found {})", kMost, v.name));
    most = std::max(most, n);
  }
  for (int i = 0; i < most; ++i) graph.fresh();
}

std::shared_ptr<Graph> read_graph(Cursor& at, int number) {
  auto graph = std::make_shared<Graph>();
  Line& head = at.take("graph");
  const Line before = head;
  if (head.natural("the graph's number") != number) before.fail(fmt::format("graph {}", number));
  graph->real = parse_dtype(head);
  while (!head.done()) {
    const Line key = head;
    if (!parse_keyed(head, head.word("a field"), *graph)) key.fail("a field of graphs");
  }
  std::vector<Link> links;
  while (at.at("value")) {
    Line& line = at.take("value");
    Line start = line;
    Value v{.name = line.word("a name"), .labels = line.word("labels")};
    if (graph->find(v.name) >= 0) start.fail("a new name");
    if (!v.labels.empty()) line.list([&] { v.sizes.push_back(line.number<int64_t>("a size")); });
    if (v.sizes.size() != v.labels.size()) start.fail("a size for each label");
    v.dtype = parse_dtype(line);
    const int id = static_cast<int>(graph->values.size());
    while (!line.done()) {
      const Line key = line;
      if (!parse_keyed(line, line.word("a field"), v, id, &links)) key.fail("a field of values");
    }
    graph->add(std::move(v));
  }
  for (const Link& link : links) {
    const int to = graph->find(link.to);
    if (to < 0) link.line.fail("a value of the graph");
    (*graph)[link.of].*link.field = to;
  }
  count_temporaries(*graph, head);
  return graph;
}

void parse_rule(Line& line, Op& op) {
  const Line before = line;
  const std::string rule = line.word("an index rule");
  const size_t arrow = rule.find("->");
  if (arrow == rule.npos) before.fail("an index rule with \"->\"");
  const std::string left = rule.substr(0, arrow), right = rule.substr(arrow + 2);
  if (!op.outs.empty() || !right.empty()) op.out_labels = split(right, ';');
  if (op.out_labels.size() != op.outs.size())
    before.fail(fmt::format("a rule with {} results", op.outs.size()));
  op.in_labels = split(left, ',');
}

Op parse_op(Line& line, const Graph& graph) {
  Op op{.row = Row::count_};
  const auto value = [&] {
    const Line before = line;
    const int id = graph.find(line.word("a value"));
    if (id < 0) before.fail("a value of the graph");
    return id;
  };
  Line ahead = line;
  ahead.word("an op");
  if (!ahead.quoted()) {
    line.list([&] { op.outs.push_back(value()); });
    line.need("=");
  }
  const Line before = line;
  const std::string row = line.word("an op row");
  op.row = before.at([&] { return row_named(row); });
  const Line at_rule = line;
  parse_rule(line, op);
  line.parenthesised([&] { op.ins.push_back(value()); });
  for (int i : op.ins) op.in_types.push_back(graph[i].dtype);
  for (int o : op.outs) op.out_types.push_back(graph[o].dtype);
  if (op.ins.empty() && op.in_labels == std::vector<std::string>{""}) op.in_labels.clear();
  if (op.in_labels.size() != op.ins.size())
    at_rule.fail(fmt::format("a rule with {} operands", op.ins.size()));
  Line sizes = line.inside("[label=size ...]");
  while (!sizes.done()) {
    const Line label = sizes;
    const std::string text = sizes.word("a label");
    if (text.size() != 1 || op.size.find(text[0]) >= 0) label.fail("a new label of one letter");
    sizes.need("=");
    op.size.set(text[0], sizes.number<int64_t>("a size"));
  }
  while (!line.done()) {
    const Line attr = line;
    const std::string key = line.word("an attribute");
    line.need("=");
    if (!parse_keyed(line, key, op) && !parse_keyed(line, key, op.attrs))
      attr.fail("an attribute of ops");
  }
  return op;
}

class BodyParser {
 public:
  BodyParser(Cursor& at, const Mesh& mesh, const std::vector<std::shared_ptr<Graph>>& graphs)
      : at_(at), mesh_(mesh), graphs_(graphs) {}

  LoweredBody parse() {
    Line head = at_.take("body");
    const Line start = head;
    body_.name = head.word("a name");
    head.need("piece");
    body_.piece = head.number<int>("the piece's number");
    head.need("graph");
    body_.graph = graphs_[head.index(graphs_.size(), "a graph")];
    while (!head.done()) {
      const Line key = head;
      if (!parse_keyed(head, head.word("a field"), body_)) key.fail("a field of bodies");
    }
    Line& inputs = at_.take("inputs");
    body_.inputs = versions(inputs);
    inputs.finish();
    while (!at_.at("outputs")) parse_line();
    Line& outputs = at_.take("outputs");
    body_.outputs = versions(outputs);
    outputs.finish();
    int next = 0;
    for (auto& [id, version] : versions_) {
      if (id != next++ || !version)
        start.fail(fmt::format("a body that makes v{}", version ? next - 1 : id));
      body_.versions.push_back(std::move(*version));
    }
    return std::move(body_);
  }

 private:
  void parse_line() {
    Line& line = at_.line();
    ++at_.next;
    if (line.take("state")) {
      StateUse s{.name = parse_state_name(line), .value = -1, .layout = Layout()};
      line.need("of");
      s.value = value(line);
      s.layout = layout(line, s.value);
      states_.add(show(s.name));
      body_.states.push_back(std::move(s));
    } else if (line.take("loop")) {
      body_.loop = true;
      line.need("rounds");
      body_.rounds = line.number<int>("an input");
      line.need("parts");
      body_.parts = line.number<int64_t>("a number of owners");
      line.need("bound");
      body_.bound = line.number<int64_t>("a number of rows");
    } else if (line.take("version")) {
      version(line);
    } else if (line.take("op")) {
      const Line before = line;
      if (line.number<size_t>("the op's number") != body_.ops.size())
        before.fail(fmt::format("op {}", body_.ops.size()));
      body_.ops.push_back(parse_op(line, *body_.graph));
    } else {
      parse_step(line);
    }
    line.finish();
  }

  int value(Line& line) const {
    const Line before = line;
    const int id = body_.graph->find(line.word("a value"));
    if (id < 0) before.fail("a value of the graph");
    return id;
  }

  Layout layout(Line& line, int of) const {
    const Line before = line;
    const std::string_view text = line.brackets("a layout in brackets");
    const Layout l =
        before.at([&] { return parse_layout(text, (*body_.graph)[of].labels, mesh_); });
    if (l.max && !l.pending) before.fail("the atoms of the maximum");
    return l;
  }

  static bool is_version(std::string_view text) {
    return text.size() > 1 && text[0] == 'v' && text[1] >= '0' && text[1] <= '9';
  }

  // "v3", or "v3 q [b:dp]" where it is named first.
  int version(Line& line) {
    const Line before = line;
    const std::string text = line.word("a version");
    if (!is_version(text)) before.fail("a version, as in v3");
    int id = -1;
    const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), id);
    if (error != std::errc() || *end) before.fail("a version, as in v3");
    std::optional<Version>& known = versions_[id];
    if (line.punctuation()) return id;
    if (known) before.fail(fmt::format("v{} to be named once", id));
    const int of = value(line);
    known = Version{of, layout(line, of), false};
    known->in_flight = line.take("in_flight");
    return id;
  }

  std::vector<int> versions(Line& line) {
    std::vector<int> out;
    if (!line.done()) line.list([&] { out.push_back(version(line)); });
    return out;
  }

  void parse_step(Line& line) {
    Step step{.kind = StepKind::run};
    const std::string first = Line(line).word("a step");
    if (is_version(first)) {
      step.outs = versions(line);
      line.need("=");
    }
    using enum StepKind;
    step.kind = named(line, {run, move, start, finish, read, write, accum, emit}, "a step");
    if (step.kind == run) {
      step.op = line.index(body_.ops.size(), "an op");
    } else if (is_move(step.kind)) {
      step.what = parse_move(line);
      Line atoms = line.inside("atoms in brackets");
      if (!atoms.done()) step.atoms = parse_atoms(atoms, mesh_);
      atoms.finish();
      step.once = line.take("once");
    } else if (step.kind == emit) {
      step.state = line.number<int>("an output");
    } else {
      step.state = states_.parse(line, "state of the body");
    }
    if (line.peek() == "(") line.parenthesised([&] { step.ins.push_back(version(line)); });
    if (step.kind == run) parse_cuts(line, step);
    body_.steps.push_back(std::move(step));
  }

  void parse_cuts(Line& line, Step& step) const {
    const std::string& labels = body_.ops[step.op].size.labels;
    step.cuts.resize(labels.size());
    if (!line.take("cut")) return;
    const Line before = line;
    std::string_view text = line.brackets("cuts in brackets");
    while (!text.empty()) {
      const size_t end = std::min(text.find(' '), text.size());
      const size_t label = labels.find(text[0]);
      if (end < 3 || text[1] != ':' || label == labels.npos) before.fail("cuts as in [b:dp g:tg]");
      Line atoms = line.part(text.substr(2, end - 2));
      step.cuts[label] = parse_atoms(atoms, mesh_);
      atoms.finish();
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

  Cursor& at_;
  const Mesh& mesh_;
  const std::vector<std::shared_ptr<Graph>>& graphs_;
  LoweredBody body_;
  Names states_;
  std::map<int, std::optional<Version>> versions_;
};

}  // namespace

std::shared_ptr<Graph> parse_graph(Cursor& at, int number) { return read_graph(at, number); }

LoweredBody parse_body(Cursor& at, const Mesh& mesh,
                       const std::vector<std::shared_ptr<Graph>>& graphs) {
  return BodyParser(at, mesh, graphs).parse();
}

LoweredBody parse_body(std::string_view text, const Mesh& mesh) {
  Cursor at{lines_of(text)};
  LoweredBody body = parse_body(at, mesh, {parse_graph(at, 0)});
  at.line().finish();
  return body;
}

}  // namespace myriad
