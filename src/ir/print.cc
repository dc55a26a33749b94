// Programs as text. A name that several items share is followed by "#index"; a version is printed
// with its value and layout where it is named first, an op before the first step that runs it, so
// a body reads from top to bottom. Fields that have no place of their own come from the table in
// ir/fields.h and are printed where they differ from those of a fresh struct; so the text is short
// and yet complete. Read ir/print.h first; ir/parse.cc is the inverse.
#include "ir/print.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <span>

#include "base/error.h"
#include "ir/fields.h"
#include "ir/flight.h"
#include "ir/rows.h"

namespace myriad {

namespace {

using Texts = std::vector<std::string>;

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

std::string printed_name(std::string_view text) {
  const bool bare = !text.empty() && !text.starts_with("->") &&
                    std::all_of(text.begin(), text.end(), [](unsigned char c) {
                      return c > ' ' && c < 127 &&
                             std::string_view("()[],=\"#\\").find(c) == std::string_view::npos;
                    });
  return bare ? std::string(text) : quoted(text);
}

namespace {

// How items are called from elsewhere: by name, with the index where the name does not tell them
// apart.
template <class Items>
Texts names_of(const Items& items) {
  const auto name = [](const auto& item) { return fmt::format("{}", item.name); };
  std::map<std::string, int> uses;
  for (const auto& item : items) ++uses[name(item)];
  Texts out;
  for (const auto& item : items) {
    out.push_back(printed_name(name(item)));
    if (uses[name(item)] > 1) out.back() += fmt::format(" #{}", out.size() - 1);
  }
  return out;
}

template <class F>
std::string listed(std::span<const int> ids, F text) {
  std::string out;
  for (int i : ids) out += (out.empty() ? "" : ", ") + text(i);
  return out;
}

// "3-22,40"
std::string ranges(const std::vector<int>& n) {
  std::string out;
  for (size_t i = 0, j; i < n.size(); i = j) {
    for (j = i + 1; j < n.size() && n[j] == n[j - 1] + 1;) ++j;
    if (j - i < 3) j = i + 1;
    out += fmt::format("{}{}", out.empty() ? "" : ",", n[i]);
    if (j - i >= 3) out += fmt::format("-{}", n[j - 1]);
  }
  return out;
}

std::string text_of(bool) { return ""; }  // its name alone says it
std::string text_of(std::integral auto x) { return fmt::format("{}", x); }
std::string text_of(double x) { return fmt::format("{}", x); }
std::string text_of(char x) { return printed_name({&x, 1}); }
std::string text_of(const std::string& x) { return printed_name(x); }
std::string text_of(const StateName& x) { return printed_name(show(x)); }
std::string text_of(const std::shared_ptr<const std::vector<double>>& x) {
  return fmt::format("[{}]", fmt::join(*x, " "));
}
template <class E>
requires std::is_enum_v<E> std::string text_of(E x) { return name_of(x); }

template <class T>
bool equal(const T& a, const T& b) {
  return a == b;
}
bool equal(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// The keyed fields that differ from those of a fresh struct: " NAME", `between`, and what they are.
template <class S>
std::string print_keyed(const S& s, const char* between, const Graph* graph = nullptr) {
  static const S fresh{};
  std::string out;
  for_each_field<S>([&](auto field) {
    if constexpr (field.text == Text::keyed || field.text == Text::link) {
      const auto& x = s.*field.at;
      if (equal(x, fresh.*field.at)) return;
      std::string text;
      if constexpr (field.text == Text::link) {
        text = printed_name((*graph)[x].name);
      } else {
        text = text_of(x);
      }
      out += fmt::format(" {}{}{}", field.name, text.empty() ? "" : between, text);
    }
  });
  return out;
}

std::string print_graph(const Graph& graph, int number) {
  std::string out =
      fmt::format("graph {} {}{}\n", number, name_of(graph.real), print_keyed(graph, " "));
  for (const Value& v : graph.values) {
    out += fmt::format("  value {} {}", printed_name(v.name), quoted(v.labels));
    if (!v.sizes.empty()) out += fmt::format(" {}", fmt::join(v.sizes, ","));
    out += fmt::format(" {}{}\n", name_of(v.dtype), print_keyed(v, " ", &graph));
  }
  return out;
}

class BodyPrinter {
 public:
  BodyPrinter(const LoweredBody& body, const Mesh& mesh)
      : body_(body), mesh_(mesh), states_(names_of(body.states)), defined_(body.versions.size()) {}

  std::string print(int graph) {
    out_ = fmt::format("body {} piece {} graph {}{}\n", printed_name(body_.name), body_.piece,
                       graph, print_keyed(body_, " "));
    out_ += fmt::format("  inputs{}\n", after_space(versions(body_.inputs)));
    if (body_.loop)
      out_ += fmt::format("  loop rounds {} parts {} bound {}\n", body_.rounds, body_.parts,
                          body_.bound);
    for (const StateUse& s : body_.states) {
      out_ += fmt::format("  state {} of {} {}\n", printed_name(show(s.name)), value(s.value),
                          layout(s.layout, s.value));
    }
    print_unmade();
    for (const Step& step : body_.steps) print_step(step);
    print_ops(static_cast<int>(body_.ops.size()));
    return out_ + fmt::format("  outputs{}\n", after_space(versions(body_.outputs)));
  }

 private:
  static std::string after_space(const std::string& text) { return text.empty() ? "" : " " + text; }

  std::string value(int id) const { return printed_name((*body_.graph)[id].name); }

  std::string layout(const Layout& l, int of) const {
    return "[" + show(l, (*body_.graph)[of].labels, mesh_) + "]";
  }

  // "v3", or "v3 q [b:dp]" where it is named first.
  std::string version(int id) {
    if (defined_[id]) return fmt::format("v{}", id);
    defined_[id] = true;
    const Version& v = body_.versions[id];
    return fmt::format("v{} {} {}{}", id, value(v.value), layout(v.layout, v.value),
                       v.in_flight ? " in_flight" : "");
  }

  std::string versions(std::span<const int> ids) {
    return listed(ids, [&](int id) { return version(id); });
  }

  void print_unmade() {
    std::set<int> made;
    for (const Step& s : body_.steps) made.insert(s.outs.begin(), s.outs.end());
    for (int id = 0; id < static_cast<int>(defined_.size()); ++id) {
      if (!defined_[id] && !made.contains(id)) out_ += fmt::format("  version {}\n", version(id));
    }
  }

  // Ops are numbered in order; each stands before the first step that runs it.
  void print_ops(int end) {
    for (; ops_ < end; ++ops_) {
      const Op& op = body_.ops[ops_];
      const auto names = [&](int id) { return value(id); };
      out_ += fmt::format("  op {} ", ops_);
      if (!op.outs.empty()) out_ += listed(op.outs, names) + " = ";
      out_ += fmt::format("{} \"{}->{}\" ({}) [", info(op.row).name, fmt::join(op.in_labels, ","),
                          fmt::join(op.out_labels, ";"), listed(op.ins, names));
      for (size_t i = 0; i < op.size.labels.size(); ++i) {
        out_ += fmt::format("{}{}={}", i ? " " : "", op.size.labels[i], op.size.sizes[i]);
      }
      out_ += "]" + print_keyed(op, "=") + print_keyed(op.attrs, "=") + "\n";
    }
  }

  void print_step(const Step& step) {
    if (step.kind == StepKind::run) print_ops(step.op + 1);
    const std::string ins = versions(step.ins);
    out_ += "  ";
    if (!step.outs.empty()) out_ += versions(step.outs) + " = ";
    out_ += name_of(step.kind);
    if (step.kind == StepKind::run) out_ += fmt::format(" {}", step.op);
    if (is_move(step.kind))
      out_ += fmt::format(" {} [{}]{}", name_of(step.what), mesh_.show(step.atoms),
                          step.once ? " once" : "");
    if (step.kind == StepKind::emit) {
      out_ += fmt::format(" {}", step.state);
    } else if (step.state >= 0) {
      out_ += " " + states_[step.state];
    }
    if (!step.ins.empty()) out_ += " (" + ins + ")";
    if (step.kind == StepKind::run) out_ += print_cuts(step);
    out_ += "\n";
  }

  std::string print_cuts(const Step& step) const {
    const std::string& labels = body_.ops[step.op].size.labels;
    CHECK(step.cuts.size() == labels.size(), "{}: {} cuts for labels {}", body_.name,
          step.cuts.size(), labels);
    std::string out;
    for (size_t i = 0; i < labels.size(); ++i) {
      if (step.cuts[i].empty()) continue;
      out += fmt::format("{}{}:{}", out.empty() ? "" : " ", labels[i], mesh_.show(step.cuts[i]));
    }
    return out.empty() ? "" : " cut [" + out + "]";
  }

  const LoweredBody& body_;
  const Mesh& mesh_;
  Texts states_;
  std::vector<bool> defined_;
  int ops_ = 0;
  std::string out_;
};

std::string print_action(const Action& a, const Texts& bodies, const Texts& buffers) {
  const auto buffer = [&](int id) { return buffers[id]; };
  std::string out = name_of(a.act);
  if (a.body >= 0) out += (a.act == Act::run ? " " : " body ") + bodies[a.body];
  if (a.unit != -1) out += fmt::format(" unit {}", a.unit);
  if (a.micro_batch >= 0) out += fmt::format(" mb {}", a.micro_batch);
  if (a.first) out += " first";
  if (!a.ins.empty()) out += " (" + listed(a.ins, buffer) + ")";
  if (!a.outs.empty()) out += " -> (" + listed(a.outs, buffer) + ")";
  if (!a.states.empty()) out += " states " + ranges(a.states);
  if (a.peer >= 0) out += fmt::format(" {} stage {}", a.act == Act::recv ? "from" : "to", a.peer);
  if (a.channel >= 0) out += fmt::format(" channel {}", a.channel);
  return out;
}

std::string print_mesh(const Mesh& mesh) {
  std::string out;
  for (const Mesh::Axis& axis : mesh.declared()) {
    out += fmt::format("{} {} {}", out.empty() ? "" : ",", printed_name(axis.name), axis.size);
    if (axis.price != 1) out += fmt::format(" price {}", axis.price);
  }
  if (const OwnerNodes& n = mesh.nodes(); n.ranks_per_node > 0)
    out += fmt::format(" owners {} of {} on nodes of {}", n.owners, n.inner, n.ranks_per_node);
  return "mesh" + out + "\n";
}

}  // namespace

const char* name_of(StepKind kind) {
  switch (kind) {
    case StepKind::run:
      return "run";
    case StepKind::move:
      return "move";
    case StepKind::start:
      return "start";
    case StepKind::finish:
      return "finish";
    case StepKind::read:
      return "read";
    case StepKind::write:
      return "write";
    case StepKind::accum:
      return "accum";
    case StepKind::emit:
      return "emit";
  }
  return "?";
}

const char* name_of(Act act) {
  switch (act) {
    case Act::feed:
      return "feed";
    case Act::run:
      return "run";
    case Act::send:
      return "send";
    case Act::wait:
      return "wait";
    case Act::recv:
      return "recv";
    case Act::zero:
      return "zero";
  }
  return "?";
}

std::string print_body(const LoweredBody& body, const Mesh& mesh) {
  return print_graph(*body.graph, 0) + BodyPrinter(body, mesh).print(0);
}

std::string print_program(const Program& program) {
  std::string out = fmt::format("program stages {}", program.stages);
  if (program.ranks_per_node > 0) out += fmt::format(" ranks_per_node {}", program.ranks_per_node);
  out += "\n" + print_mesh(program.mesh);
  std::map<const Graph*, int> graphs;
  for (const LoweredBody& body : program.bodies) {
    const auto [at, is_new] = graphs.try_emplace(body.graph.get(), static_cast<int>(graphs.size()));
    out += "\n";
    if (is_new) out += print_graph(*body.graph, at->second);
    out += BodyPrinter(body, program.mesh).print(at->second);
  }
  const Texts bodies = names_of(program.bodies), buffers = names_of(program.buffers);
  out += "\n";
  for (const Buffer& b : program.buffers) {
    out += fmt::format("buffer {} of {} v{}\n", printed_name(b.name), bodies[b.body], b.version);
  }
  for (size_t i = 0; i < program.states.size(); ++i) {
    const State& s = program.states[i];
    out += fmt::format("state {} {}", i, printed_name(show(s.name)));
    if (s.unit >= 0) out += fmt::format(" unit {}", s.unit);
    out += fmt::format(" of {} use {} stages", bodies[s.body], s.use);
    out += (s.stages.empty() ? "" : " " + ranges(s.stages)) + "\n";
  }
  for (size_t s = 0; s < program.actions.size(); ++s) {
    out += fmt::format("\nstage {}\n", s);
    for (const Action& a : program.actions[s])
      out += "  " + print_action(a, bodies, buffers) + "\n";
  }
  return out;
}

std::string show(const Action& action, const Program& program) {
  return print_action(action, names_of(program.bodies), names_of(program.buffers));
}

}  // namespace myriad
