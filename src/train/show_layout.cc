// The layouts of a program as a table that reads back: `list_layouts` collects an entry for each
// state and for each value of each body, `show` prints them, `parse_layouts` reads what was
// printed.
#include "train/show_layout.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "ir/parse_line.h"
#include "ir/print.h"
#include "passes/lower.h"

namespace myriad {

namespace {

std::string sizes_text(const Sizes& sizes) {
  return sizes.empty() ? "1" : fmt::format("{}", fmt::join(sizes, "x"));
}

// "600x30"; "1" where there are no labels.
Sizes parse_sizes(Line& line, size_t dims) {
  const Line before = line;
  std::string text = line.word("sizes");
  std::replace(text.begin(), text.end(), 'x', ' ');
  std::istringstream in(text);
  Sizes sizes;
  for (int64_t size; in >> size;) sizes.push_back(size);
  if (dims == 0 && sizes == Sizes{1}) return {};
  if (!in.eof() || sizes.size() != dims)
    before.fail(fmt::format("{} sizes, for instance 4x16", dims));
  return sizes;
}

LayoutListing::Entry entry(const std::string& name, const Value& v, const Layout& layout,
                           const Mesh& mesh, int rank) {
  Sizes local;
  for (int d = 0; d < layout.dims; ++d)
    local.push_back(local_range(mesh, layout, v.sizes, d, rank).size());
  return {.name = name,
          .labels = v.labels,
          .sizes = v.sizes,
          .dtype = v.dtype,
          .layout = layout,
          .rank = rank,
          .local = local};
}

std::string entry_text(const LayoutListing::Entry& e, const Mesh& mesh) {
  return fmt::format("  {:<46} {:<6} {:>16} {:<5} [{}] rank {}: {}\n", printed_name(e.name),
                     e.labels.empty() ? "-" : e.labels, sizes_text(e.sizes), name_of(e.dtype),
                     show(e.layout, e.labels, mesh), e.rank, sizes_text(e.local));
}

LayoutListing::Entry parse_entry(Line& line, const Mesh& mesh) {
  LayoutListing::Entry e;
  e.name = line.word("a name");
  e.labels = line.word("labels or -");
  if (e.labels == "-") e.labels.clear();
  e.sizes = parse_sizes(line, e.labels.size());
  e.dtype = parse_dtype(line);
  const Line before = line;
  const std::string_view layout = line.brackets("a layout in brackets");
  e.layout = before.at([&] { return parse_layout(layout, e.labels, mesh); });
  line.need("rank");
  const Line at_rank = line;
  std::string rank = line.word("a rank");
  if (!rank.ends_with(':')) at_rank.fail("a rank with a colon");
  rank.pop_back();
  e.rank = line.part(rank).index(static_cast<size_t>(mesh.ranks()), "a rank");
  e.local = parse_sizes(line, e.labels.size());
  line.finish();
  return e;
}

// As published, for the layer that the unit is.
std::string state_name(const State& s, const Pieces& pieces) {
  if (s.unit < 0) return show(s.name);
  const Piece& piece = pieces.pieces[pieces.units[s.unit]];
  const int i = piece.find(s.name.of);
  if (i < 0) return fmt::format("{} of unit {}", s.name, s.unit);
  std::string text = piece.params[i].published;
  if (const size_t at = text.find("{}"); at != std::string::npos)
    text.replace(at, 2, std::to_string(s.unit - 1));
  return show(StateName{s.name.kind, text});
}

}  // namespace

LayoutListing list_layouts(const Program& program, const Pieces& pieces, const Plan& plan) {
  LayoutListing out{.mesh = program.mesh};
  std::istringstream rules(rules_of(plan));
  for (std::string line; std::getline(rules, line);) out.rules.push_back(line);
  const int per_stage = program.mesh.ranks() / program.stages;
  LayoutListing::Section states{.name = "states"};
  for (const State& s : program.states) {
    const LoweredBody& body = program.bodies[s.body];
    const StateUse& use = body.states[s.use];
    states.entries.push_back(entry(state_name(s, pieces), (*body.graph)[use.value], use.layout,
                                   program.mesh, s.stages.empty() ? 0 : s.stages[0] * per_stage));
  }
  out.sections.push_back(std::move(states));
  for (const LoweredBody& body : program.bodies) {
    LayoutListing::Section section{.name = "body " + body.name};
    for (const Version& v : body.versions) {
      const Value& value = (*body.graph)[v.value];
      if (!value.temporary())
        section.entries.push_back(entry(value.name, value, v.layout, program.mesh, 0));
    }
    out.sections.push_back(std::move(section));
  }
  return out;
}

std::string show(const LayoutListing& listing) {
  std::string out = "mesh";
  for (const Mesh::Axis& a : listing.mesh.declared()) out += fmt::format(" {}={}", a.name, a.size);
  out += fmt::format("   # {} ranks; the last varies fastest\nrules\n", listing.mesh.ranks());
  for (const std::string& rule : listing.rules) out += "  " + rule + "\n";
  for (const LayoutListing::Section& section : listing.sections) {
    out += section.name;
    if (section.name == "states") out += "   # p: parameter, m, v: moments, g: gradient sum";
    out += "\n";
    for (const LayoutListing::Entry& e : section.entries) out += entry_text(e, listing.mesh);
  }
  return out;
}

LayoutListing parse_layouts(std::string_view text) {
  LayoutListing out;
  Cursor at{.lines = lines_of(text)};
  Line& mesh = at.take("mesh");
  std::vector<Mesh::Axis> axes;
  while (!mesh.done() && mesh.peek() != "#") {
    Mesh::Axis axis{.name = mesh.word("an axis"), .size = 1};
    mesh.need("=");
    axis.size = mesh.number<int>("a size");
    axes.push_back(axis);
  }
  out.mesh = mesh.at([&] { return Mesh(axes); });
  at.take("rules");
  for (; !at.line().done() && !at.at("states"); ++at.next) out.rules.emplace_back(at.line().rest());
  for (; !at.line().done(); ++at.next) {
    Line& line = at.line();
    if (line.peek() == "states" || line.peek() == "body") {
      std::string name = line.word("a section");
      if (name == "body") name += " " + line.word("a body");
      if (line.peek() != "#") line.finish();
      out.sections.push_back({.name = std::move(name)});
      continue;
    }
    if (out.sections.empty()) line.fail("\"states\"");
    out.sections.back().entries.push_back(parse_entry(line, out.mesh));
  }
  return out;
}

}  // namespace myriad
