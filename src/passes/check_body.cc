// Checks one laid-out body, step by step: each version is made once and before its use, an op works
// on operands and makes results that are cut as its labels are, and a move leads from the layout of
// its source to that of its destination (`leads`: one rule for each kind of move).
#include "passes/check_body.h"

#include <algorithm>

#include "base/error.h"
#include "ir/print.h"
#include "ir/rows.h"
#include "passes/check_flight.h"

namespace myriad {

namespace {

bool is_joined(const AtomList& all, const AtomList& a, const AtomList& b) {
  return all.n == a.n + b.n && all.starts_with(a) && all.suffix(a.n) == b;
}

// Whether a move of this kind over these atoms turns one layout into the other.
bool leads(const Step& move, const Layout& from, const Layout& to) {
  std::vector<int> changed;
  for (int d = 0; d < from.dims; ++d) {
    if (from.cuts[d] != to.cuts[d]) changed.push_back(d);
  }
  const AtomSet atoms = move.atoms.set();
  const size_t n = changed.size();
  const auto grows = [&](int d) { return is_joined(to.cuts[d], from.cuts[d], move.atoms); };
  const auto shrinks = [&](int d) { return is_joined(from.cuts[d], to.cuts[d], move.atoms); };
  const bool keeps = to.pending == from.pending;
  const bool settles = (atoms & ~from.pending) == 0 && to.pending == (from.pending & ~atoms);
  if (from.dims != to.dims || atoms == 0) return false;
  if (to.max != (from.max && to.pending)) return false;
  switch (move.what) {
    case MoveKind::slice: {
      AtomSet taken = 0;
      for (int d : changed) {
        if (!to.cuts[d].starts_with(from.cuts[d])) return false;
        taken = static_cast<AtomSet>(taken | to.cuts[d].suffix(from.cuts[d].n).set());
      }
      return keeps && taken == atoms;
    }
    case MoveKind::first:
      return n == 0 && !to.max && !(atoms & from.pending) && to.pending == (from.pending | atoms);
    case MoveKind::reduce_scatter:
      return n == 1 && grows(changed[0]) && settles;
    case MoveKind::all_to_all: {
      AtomSet left = 0, joined = 0;  // what changed dims lose and gain at their ends
      for (int d : changed) {
        const AtomList &a = from.cuts[d], &b = to.cuts[d];
        int kept = 0;
        while (kept < a.n && kept < b.n && a[kept] == b[kept]) ++kept;
        left = static_cast<AtomSet>(left | a.suffix(kept).set());
        joined = static_cast<AtomSet>(joined | b.suffix(kept).set());
      }
      if (const AtomSet both = left | joined; both & kOfNodes) {
        AtomSet by_node = 0;  // what stands for kNode on the other side
        for (int d : changed) {
          const AtomSet here = from.cuts[d].set() | to.cuts[d].set();
          if (here >> kNode & 1) by_node = here & ~kOfNodes;
        }
        const AtomSet others = both & ~kOfNodes;
        return n > 1 && keeps && (both & kOfNodes) == kOfNodes && !(left & joined & kOfNodes) &&
               (left & kOfNodes) * (joined & kOfNodes) == 0 &&
               atoms == (others == by_node ? 1u << kNear : others);
      }
      return n > 1 && keeps && left == atoms && joined == atoms;
    }
    case MoveKind::all_reduce:
      return n == 0 && settles;
    case MoveKind::all_gather:
      return n == 1 && shrinks(changed[0]) && keeps;
  }
  return false;
}

// Checks one body by itself.
class BodyCheck {
 public:
  BodyCheck(const LoweredBody& body, const Program& program)
      : body_(body), graph_(*body.graph), mesh_(program.mesh), made_(body.versions.size()) {
    const int pp = program.stages > 1 ? mesh_.find("pp") : -1;
    const int index = static_cast<int>(&body - program.bodies.data());
    const bool everywhere =
        std::all_of(program.actions.begin(), program.actions.end(), [&](const auto& actions) {
          return std::any_of(actions.begin(), actions.end(),
                             [&](const Action& a) { return a.act == Act::run && a.body == index; });
        });  // a body that all stages run may reduce over them
    usable_ = static_cast<AtomSet>(pp < 0 || everywhere ? mesh_.all() : mesh_.all() & ~(1u << pp));
    if (mesh_.nodes().ranks_per_node > 0) usable_ = static_cast<AtomSet>(usable_ | kOfNodes);
  }

  void check() {
    for (const Version& v : body_.versions) check_layout(v.value, v.layout);
    for (const StateUse& s : body_.states) check_layout(s.value, s.layout);
    for (int v : body_.inputs) make(v);
    for (const Step& step : body_.steps) {
      at_ = fmt::format(", step {} ({})", &step - body_.steps.data(), name_of(step.kind));
      for (int v : step.ins) use(v);
      switch (step.kind) {
        case StepKind::run:
          check_run(step);
          break;
        case StepKind::move:
        case StepKind::start:
          check_move(step);
          break;
        case StepKind::finish:  // check_flight
          break;
        case StepKind::emit:
          if (!body_.loop || !within(step.state, body_.outputs.size()) ||
              step.ins != std::vector{body_.outputs[step.state]}) {
            refuse("only a loop body hands on its outputs by steps");
          }
          break;
        default:
          check_state(step);
      }
      for (int v : step.outs) make(v);
    }
    at_ = ", outputs";
    for (int v : body_.outputs) use(v);
    if (body_.loop && !within(body_.rounds, body_.inputs.size()))
      refuse("a loop body has an input that says how many rounds it takes");
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(what, fmt::format("body {}{}", body_.name, at_));
  }

  const std::string& name(int version) const { return graph_[body_.versions[version].value].name; }

  std::string text(int version) const {
    const Version& v = body_.versions[version];
    return fmt::format("v{} {} [{}]", version, name(version),
                       show(v.layout, graph_[v.value].labels, mesh_));
  }

  void check_layout(int value, const Layout& layout) const {
    if (!within(value, graph_.values.size())) refuse(fmt::format("there is no value {}", value));
    const Value& v = graph_[value];
    if (layout.dims != v.sizes.size()) {
      refuse(fmt::format("{} has {} dims, its layout {}", v.name, v.sizes.size(), layout.dims));
    }
    AtomSet seen = layout.pending;
    const bool near = layout.cut_atoms() >> kNear & 1;
    for (const AtomList& cut : layout.cuts) {
      if (cut.set() >> kNode & 1 && (cut.n > 1 || !near))
        refuse(fmt::format("{}: a cut by node stands alone, beside one by near", v.name));
    }
    if (layout.pending & kOfNodes) refuse(fmt::format("{} is pending over nodes", v.name));
    for (int d = 0; d < layout.dims; ++d) {
      for (Atom a : layout.cuts[d]) {
        if (seen >> a & 1)
          refuse(fmt::format("{}: atom {} of its layout is used twice", v.name, a));
        seen = static_cast<AtomSet>(seen | 1u << a);
      }
    }
    if (seen & ~usable_)
      refuse(fmt::format("{}: its layout uses atoms that the ranks of a stage have not", v.name));
  }

  void use(int version) const {
    if (!within(version, made_.size())) refuse(fmt::format("there is no v{}", version));
    if (!made_[version]) refuse(fmt::format("{} is read before it is made", text(version)));
  }

  void make(int version) {
    if (!within(version, made_.size())) refuse(fmt::format("there is no v{}", version));
    if (made_[version]) refuse(fmt::format("{} is made twice", text(version)));
    made_[version] = true;
  }

  void check_run(const Step& step) const {
    if (!within(step.op, body_.ops.size())) refuse(fmt::format("there is no op {}", step.op));
    const Op& op = body_.ops[step.op];
    if (step.cuts.size() != op.size.labels.size()) {
      refuse(fmt::format("{} cuts for labels \"{}\"", step.cuts.size(), op.size.labels));
    }
    check_sides(step, op, "operand", step.ins, op.ins, op.in_labels);
    check_sides(step, op, "result", step.outs, op.outs, op.out_labels);
    for (size_t i = 0; i < step.outs.size(); ++i) check_pending(step, op, i);
  }

  // A result is pending over the atoms that cut what was summed, and over what was pending before.
  void check_pending(const Step& step, const Op& op, size_t i) const {
    AtomSet summed = 0, before = 0;
    for (size_t l = 0; l < op.size.labels.size(); ++l) {
      if (op.out_labels[i].find(op.size.labels[l]) != std::string::npos) continue;
      summed = static_cast<AtomSet>(summed | step.cuts[l].set());
    }
    for (int v : step.ins) before = static_cast<AtomSet>(before | body_.versions[v].layout.pending);
    const Layout& is = body_.versions[step.outs[i]].layout;
    if ((summed & ~is.pending) == 0 && (is.pending & ~(summed | before)) == 0 &&
        is.max == (is.pending && info(op.row).reduces_max)) {
      return;
    }
    refuse(fmt::format("result {} of {}, {}, should be a pending {} over {}", i, info(op.row).name,
                       text(step.outs[i]), info(op.row).reduces_max ? "maximum" : "sum",
                       mesh_.show(static_cast<AtomSet>(summed | (is.pending & before)))));
  }

  void check_sides(const Step& step, const Op& op, const char* side,
                   const std::vector<int>& versions, const std::vector<int>& values,
                   const std::vector<std::string>& labels) const {
    const char* row = info(op.row).name;
    if (versions.size() != values.size() || versions.size() != labels.size()) {
      refuse(fmt::format("{} has {} {}s, the step {}", row, values.size(), side, versions.size()));
    }
    for (size_t i = 0; i < versions.size(); ++i) {
      if (!within(versions[i], made_.size())) refuse(fmt::format("there is no v{}", versions[i]));
      const Version& v = body_.versions[versions[i]];
      if (v.value != values[i]) {
        refuse(fmt::format("{} {} of {} is {}, the step has {}", side, i, row,
                           graph_[values[i]].name, name(versions[i])));
      }
      if (labels[i].size() != v.layout.dims) {
        refuse(fmt::format("{} {} of {}, {}, has no labels \"{}\"", side, i, row, text(versions[i]),
                           labels[i]));
      }
      for (size_t d = 0; d < labels[i].size(); ++d) {
        const int l = op.size.find(labels[i][d]);
        if (l >= 0 && v.layout.cuts[d] == step.cuts[l]) continue;
        refuse(fmt::format("{} {} of {}, {}, is not cut along {} as the step says", side, i, row,
                           text(versions[i]), labels[i][d]));
      }
    }
  }

  void check_move(const Step& step) const {
    if (step.ins.size() != 1 || step.outs.size() != 1 || !within(step.outs[0], made_.size())) {
      refuse("a move has one source and one destination");
    }
    const Version &from = body_.versions[step.ins[0]], &to = body_.versions[step.outs[0]];
    if (step.once && !body_.loop) refuse("only a loop body has moves of its first round");
    if (from.value == to.value && leads(step, from.layout, to.layout)) return;
    refuse(fmt::format("{} over {} does not lead from {} to {}", name_of(step.what),
                       mesh_.show(step.atoms), text(step.ins[0]), text(step.outs[0])));
  }

  void check_state(const Step& step) const {
    if (!within(step.state, body_.states.size()))
      refuse(fmt::format("there is no state {}", step.state));
    const bool reads = step.kind == StepKind::read;
    const std::vector<int>&versions = reads ? step.outs : step.ins,
          &others = reads ? step.ins : step.outs;
    if (versions.size() != 1 || !others.empty() || !within(versions[0], made_.size())) {
      refuse("a step on a state has one value");
    }
    const Version& v = body_.versions[versions[0]];
    const StateUse& s = body_.states[step.state];
    if (alike(graph_[v.value], v.layout, graph_[s.value], s.layout)) return;
    refuse(fmt::format("{} is {}, state {} is {}", name(versions[0]),
                       type_of(graph_[v.value], v.layout, mesh_), s.name,
                       type_of(graph_[s.value], s.layout, mesh_)));
  }

  const LoweredBody& body_;
  const Graph& graph_;
  const Mesh& mesh_;
  std::vector<bool> made_;
  AtomSet usable_;
  std::string at_;
};

}  // namespace

std::string type_of(const Value& v, const Layout& layout, const Mesh& mesh) {
  return fmt::format("({}) {} [{}]", fmt::join(v.sizes, ","), name_of(v.dtype),
                     show(layout, v.labels, mesh));
}

bool alike(const Value& a, const Layout& la, const Value& b, const Layout& lb) {
  return a.sizes == b.sizes && a.dtype == b.dtype && la == lb;
}

void check_body(const LoweredBody& body, const Program& program) {
  BodyCheck(body, program).check();
  check_flight(body);
}

}  // namespace myriad
