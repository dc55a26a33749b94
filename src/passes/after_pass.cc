// What there is after a pass of passes/lower.cc: first graphs, then laid-out bodies, at last a
// program with actions. Each is held to the verifier of its level, and `myriad show passes` prints
// what differs from the pass before. Start with check_after_pass, which tells the levels apart.
#include "passes/after_pass.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "ir/print.h"
#include "passes/check.h"
#include "passes/check_body.h"
#include "passes/check_graph.h"

namespace myriad {

void check_after_pass(const Lowering& l) {
  if (!l.program.actions.empty()) {
    check_program(l.program);
    return;
  }
  for (const LoweredBody& body : l.program.bodies) check_body(body, l.program);
  for (const auto& [rows, v] : l.pieces.variants) {
    if (!v.graphs.empty()) continue;  // their bodies were checked above
    for (size_t i = 0; i < v.pieces.pieces.size(); ++i) {
      const Piece& piece = v.pieces.pieces[i];
      check_graph(piece);
      if (v.parts.empty()) continue;
      for (const BodyPart& part : v.parts[i]) check_graph(piece.graph, part.body);
    }
  }
}

namespace {

std::string text_of(const Body& body, const Graph& graph) {
  std::string out;
  for (const Op& op : body.ops) {
    out += "    " + show(op, graph);
    if (op.part > 0) out += fmt::format(" part={}", op.part);
    if (op.attrs.bound > 0) out += fmt::format(" bound={}", op.attrs.bound);
    out += "\n";
  }
  return out;
}

// By title, in the order of the model.
using Texts = std::vector<std::pair<std::string, std::string>>;

Texts graph_texts(const Lowering& l) {
  Texts out;
  for (const auto& [rows, v] : l.pieces.variants) {
    for (size_t i = 0; i < v.pieces.pieces.size(); ++i) {
      const Piece& p = v.pieces.pieces[i];
      const auto add = [&](const Body& body, const std::string& title) {
        if (!body.ops.empty())
          out.emplace_back(fmt::format("{} ({} rows)", title, rows), text_of(body, p.graph));
      };
      if (!v.parts.empty()) {
        for (const BodyPart& part : v.parts[i])
          add(part.body, fmt::format("body {}: {}{}", part.body.name, name_of(part.role),
                                     part.loop ? ", a loop" : ""));
        continue;
      }
      add(p.forward, "graph " + p.name + ": forward");
      add(p.backward, "graph " + p.name + ": backward");
      add(p.settle, "graph " + p.name + ": reduce");
      add(p.settle_other, "graph " + p.name + ": reduce, of the other use");
      add(p.sum, "graph " + p.name + ": reduce, sum of the uses");
      add(p.square, "graph " + p.name + ": square");
      add(p.update, "graph " + p.name + ": update");
    }
  }
  return out;
}

// The lines that `now` has and `before` has not, where before is the beginning of now.
std::string gained(const std::string& before, const std::string& now) {
  size_t same =
      std::mismatch(before.begin(), before.end(), now.begin(), now.end()).first - before.begin();
  same = same == 0 ? 0 : before.rfind('\n', same - 1) + 1;
  const auto lines = std::count(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(same), '\n');
  std::string out = lines > 0 ? fmt::format("... {} lines as before\n", lines) : "";
  return out + now.substr(same);
}

}  // namespace

std::string show_passes(const Emit& emit, const Plan& plan, const LowerOptions& options) {
  std::string out, program;
  std::map<std::string, std::string> graphs;
  Lowering l(plan, options);
  run_passes(l, emit, [&](const char* pass, const Lowering& now) {
    check_after_pass(now);
    out += fmt::format("== {}\n", pass);
    const size_t begin = out.size();
    if (now.program.bodies.empty()) {
      for (const auto& [title, text] : graph_texts(now)) {
        std::string& before = graphs[title];
        if (before != text) out += "  " + title + "\n" + text;
        before = text;
      }
    } else {
      const std::string text = print_program(now.program);
      out += gained(program, text);
      program = text;
    }
    if (out.size() == begin) out += "  changes nothing\n";
    out += "\n";
  });
  return out;
}

}  // namespace myriad
