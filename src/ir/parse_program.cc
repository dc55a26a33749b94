// Reads a whole program as ir/print.cc writes it: mesh, graphs and bodies (ir/parse.cc), then
// buffers, states and the actions of each stage, which name what stands above them. Read ir/print.h
// for the form of the text.
#include "ir/parse_line.h"
#include "ir/parse_parts.h"
#include "ir/print.h"

namespace myriad {

namespace {

class ProgramParser {
 public:
  explicit ProgramParser(Cursor& at) : at_(at) {}

  Program parse() {
    Line& head = at_.take("program");
    head.need("stages");
    program_.stages = head.number<int>("the number of stages");
    if (head.take("ranks_per_node")) program_.ranks_per_node = head.number<int>("ranks of a node");
    head.finish();
    parse_mesh(at_.take("mesh"));
    std::vector<std::shared_ptr<Graph>> graphs;
    while (at_.at("graph") || at_.at("body")) {
      if (at_.at("graph")) {
        graphs.push_back(parse_graph(at_, static_cast<int>(graphs.size())));
        continue;
      }
      program_.bodies.push_back(parse_body(at_, program_.mesh, graphs));
      bodies_.add(program_.bodies.back().name);
    }
    while (at_.at("buffer")) parse_buffer(at_.take("buffer"));
    while (at_.at("state")) parse_state(at_.take("state"));
    while (at_.at("stage")) parse_stage(at_.take("stage"));
    at_.line().finish();
    return std::move(program_);
  }

 private:
  void parse_mesh(Line& line) {
    const Line before = line;
    std::vector<Mesh::Axis> axes;
    if (!line.done()) {
      line.list([&] {
        Mesh::Axis axis{.name = line.word("an atom"), .size = line.number<int>("its size")};
        if (line.take("price")) axis.price = line.number<double>("its price");
        axes.push_back(std::move(axis));
      });
    }
    OwnerNodes nodes;
    if (line.take("owners")) {
      nodes.owners = line.number<int>("owners of experts");
      line.need("of");
      nodes.inner = line.number<int>("ranks of an owner");
      line.need("on");
      line.need("nodes");
      line.need("of");
      nodes.ranks_per_node = line.number<int>("ranks of a node");
    }
    line.finish();
    program_.mesh = before.at([&] { return Mesh(axes, nodes); });
  }

  void parse_buffer(Line& line) {
    Buffer b{.name = line.word("a name")};
    line.need("of");
    b.body = bodies_.parse(line, "body");
    const Line before = line;
    const std::string version = line.word("a version");
    Line number = line.part(version.starts_with('v') ? std::string_view(version).substr(1) : "");
    if (number.done()) before.fail("a version, as in v3");
    b.version = number.index(program_.bodies[b.body].versions.size(), "a version of the body");
    line.finish();
    buffers_.add(b.name);
    program_.buffers.push_back(std::move(b));
  }

  void parse_state(Line& line) {
    const Line before = line;
    const size_t next = program_.states.size();
    if (line.number<size_t>("the state's number") != next)
      before.fail(fmt::format("state {}", next));
    State s{.unit = -1, .name = parse_state_name(line), .body = -1, .use = -1, .stages = {}};
    if (line.take("unit")) s.unit = line.natural("a unit");
    line.need("of");
    s.body = bodies_.parse(line, "body");
    line.need("use");
    s.use = line.index(program_.bodies[s.body].states.size(), "a state of the body");
    line.need("stages");
    if (!line.done()) s.stages = ranges(line, static_cast<size_t>(program_.stages), "a stage");
    line.finish();
    program_.states.push_back(std::move(s));
  }

  void parse_stage(Line& head) {
    const Line before = head;
    const size_t next = program_.actions.size();
    if (head.number<size_t>("the stage's number") != next)
      before.fail(fmt::format("stage {}", next));
    head.finish();
    program_.actions.emplace_back();
    while (!at_.line().done() && !at_.at("stage")) {
      program_.actions.back().push_back(parse_action(at_.line()));
      ++at_.next;
    }
  }

  Action parse_action(Line& line) const {
    using enum Act;
    Action a{.act = named(line, {feed, run, send, wait, recv, zero}, "an action")};
    const auto buffer = [&] { return buffers_.parse(line, "buffer"); };
    if (a.act == run || line.take("body")) a.body = bodies_.parse(line, "body");
    if (line.take("unit")) a.unit = line.number<int>("a unit");
    if (line.take("mb")) a.micro_batch = line.natural("a micro-batch");
    a.first = line.take("first");
    if (line.peek() == "(") line.parenthesised([&] { a.ins.push_back(buffer()); });
    if (line.take("->")) line.parenthesised([&] { a.outs.push_back(buffer()); });
    if (line.take("states")) a.states = ranges(line, program_.states.size(), "a state");
    if (line.take("to") || line.take("from")) {
      line.need("stage");
      a.peer = line.index(static_cast<size_t>(program_.stages), "a stage");
    }
    if (line.take("channel")) a.channel = line.natural("a channel");
    line.finish();
    return a;
  }

  // "3-22,40"
  static std::vector<int> ranges(Line& line, size_t below, std::string_view what) {
    std::vector<int> out;
    line.list([&] {
      const std::string text = line.peek().empty() ? "" : std::string(line.peek());
      const size_t dash = text.find('-');
      const Line before = line;
      line.word(what);
      Line low = before.part(std::string_view(text).substr(0, dash));
      const int from = low.index(below, what);
      if (dash == text.npos) return out.push_back(from);
      Line high = before.part(std::string_view(text).substr(dash + 1));
      const int to = high.index(below, what);
      if (to < from) before.fail("a range, as in 3-22");
      for (int i = from; i <= to; ++i) out.push_back(i);
    });
    return out;
  }

  Cursor& at_;
  Program program_;
  Names bodies_, buffers_;
};

}  // namespace

Program parse_program(std::string_view text) {
  Cursor at{lines_of(text)};
  return ProgramParser(at).parse();
}

}  // namespace myriad
