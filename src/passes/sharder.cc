// Walks a body in order and lowers op by op: reads and stores of states, sums of many operands,
// and all other ops by the search for their layout.
//
// The idea is a greedy walk. When an op is reached the layouts of its operands are known, so its
// own layout is chosen to minimize what its operands must move now and what its outputs will move
// at once to satisfy their constraints. Then its moves are appended, the op itself, and the moves
// of its outputs. Nothing chosen earlier is revised. Constraints on few named values (the residual
// stream, weights, gradients) therefore steer everything between them.
//
// Three things make a step have the same bits whatever is recomputed or shared:
// - an op that is cloned for recomputing has its original's first output, by which it finds the
//   original's decision and grouping instead of a new one;
// - a decision depends on its SearchInput alone (passes/search.h), so remembering it changes
// nothing;
// - operands of one sum are grouped by layout in the order in which they stand.
//
// Read passes/rules.h for the constraints, passes/versions.h for the bookkeeping of layouts and
// passes/search.cc for the search; the cases in sharder_test.cc show what comes out.
#include "passes/sharder.h"

#include <algorithm>

#include "base/error.h"
#include "ir/rows.h"

namespace myriad {

namespace {

bool of_scalar(const StateName& state) { return state.kind == StateKind::scalar; }

int state_index(LoweredBody& body, const StateName& name, int value, const Layout& layout) {
  for (size_t i = 0; i < body.states.size(); ++i) {
    if (body.states[i].name == name) return static_cast<int>(i);
  }
  body.states.push_back({name, value, layout});
  return static_cast<int>(body.states.size()) - 1;
}

// The operands of a sum by the layout of their primary versions; empty where nothing is gained by
// summing those of equal layout first. It is where some operands are partial: their sum, instead of
// each of them, is moved to the layout of the rest.
std::vector<std::pair<Layout, std::vector<int>>> groups_of(const Op& op, const Versions& versions) {
  std::vector<std::pair<Layout, std::vector<int>>> groups;
  bool any_partial = false;
  for (int i : op.ins) {
    const Layout& l = versions.of(i)[0].layout;
    any_partial |= l.pending != 0;
    auto g =
        std::find_if(groups.begin(), groups.end(), [&](const auto& x) { return x.first == l; });
    if (g == groups.end()) g = groups.insert(groups.end(), {l, {}});
    g->second.push_back(i);
  }
  if (groups.size() == 1 || groups.size() == op.ins.size() || !any_partial) return {};
  return groups;
}

}  // namespace

Sharder::Sharder(const Mesh& mesh, const Wanted& wanted, LayoutMemory& memory,
                 std::shared_ptr<Graph> graph, int piece, std::map<StateName, Layout>& states,
                 AtomSet pending_scalars)
    : mesh_(mesh),
      wanted_(wanted),
      memory_(memory),
      graph_(std::move(graph)),
      piece_(piece),
      states_(states),
      pending_scalars_(pending_scalars),
      versions_(mesh, memory.costs, graph_) {}

const Want& Sharder::want(int value) {
  if (wants_.size() < graph_->values.size()) wants_.resize(graph_->values.size());
  auto& w = wants_[value];
  if (!w) w = wanted_((*graph_)[value]);
  return *w;
}

// The cuts of the gradient d.X to which an unnamed value without a constraint will be added.
std::optional<Cuts> Sharder::heading(int value) {
  const Value& v = (*graph_)[value];
  if (v.heading < 0 || want(value).asked) return std::nullopt;
  Value d = (*graph_)[v.heading];
  d.name = "d." + d.name;
  const Want w = wanted_(d);
  if (!w.asked) return std::nullopt;
  return w.cuts;
}

// By label, the sharding that the search may not choose: that of a rule for ops of this kind
// ("@dispatch: ..."), none for labels along which the op must see everything, and that of the first
// operand's constraint for ops whose result depends on how they are sharded.
std::vector<std::optional<AtomList>> Sharder::imposed(const Op& op) {
  const std::string& labels = op.size.labels;
  std::vector<std::optional<AtomList>> out(labels.size());
  const RowInfo& kind = info(op.row);
  Want placed;
  if (labels.size() <= kMaxLayoutDims)
    placed =
        wanted_({.name = fmt::format("@{}", kind.name), .labels = labels, .sizes = op.size.sizes});
  const std::string whole = kind.whole(op);
  for (size_t l = 0; l < labels.size(); ++l) {
    if (placed.asked) {
      out[l] = placed.cuts[l];
    } else if (whole.find(labels[l]) != std::string::npos) {
      out[l] = AtomList{};
    } else if (kind.as_wanted) {
      const Want& w = want(op.ins[0]);
      const size_t d = op.in_labels[0].find(labels[l]);
      out[l] = w.asked && d != std::string::npos ? w.cuts[d] : AtomList{};
    }
  }
  return out;
}

SearchInput Sharder::search_input(const Op& op) {
  SearchInput input{.labels = op.size.labels,
                    .sizes = op.size.sizes,
                    .ins = {},
                    .outs = {},
                    .imposed = imposed(op),
                    .linear = info(op.row).linear(op),
                    .reduces_max = info(op.row).reduces_max};
  for (size_t i = 0; i < op.ins.size(); ++i) {
    input.ins.push_back({.labels = op.in_labels[i],
                         .shape = versions_.shape(op.ins[i]),
                         .held = {},
                         .fixed = want(op.ins[i]).fixed});
    for (const Held& h : versions_.of(op.ins[i])) input.ins.back().held.push_back(h.layout);
  }
  for (size_t o = 0; o < op.outs.size(); ++o) {
    const int value = op.outs[o], original = (*graph_)[value].gradient_of;
    const bool of_fixed = original >= 0 && want(original).fixed && want(value).asked;
    input.outs.push_back({.labels = op.out_labels[o],
                          .shape = versions_.shape(value),
                          .want = want(value),
                          .heading = heading(value),
                          .stays = of_fixed ? std::optional(want(value).cuts) : std::nullopt});
  }
  return input;
}

const Decision& Sharder::decision_of(const Op& op) {
  auto at = decided_.find(op.outs[0]);
  if (at == decided_.end()) {
    const Decision* found = decide(mesh_, memory_, search_input(op));
    CHECK(found, "no layout for {}", myriad::show(op, *graph_));
    at = decided_.emplace(op.outs[0], *found).first;
  }
  return at->second;
}

void Sharder::input(int value, const Layout& layout) {
  versions_.body().inputs.push_back(versions_.make(value, layout));
}

void Sharder::prefer_wanted(int value) {
  const Layout natural = versions_.of(value)[0].layout;
  const Layout t = target(want(value), natural);
  if (t != natural) versions_.prefer(value, t);
}

// Appends the moves of an op's operands, and the op.
void Sharder::run(Op op, const Decision& decision) {
  LoweredBody& body = versions_.body();
  Step step{.kind = StepKind::run, .op = static_cast<int>(body.ops.size()), .cuts = decision.cuts};
  for (size_t i = 0; i < op.ins.size(); ++i)
    step.ins.push_back(versions_.get(op.ins[i], decision.needs[i]));
  for (size_t o = 0; o < op.outs.size(); ++o)
    step.outs.push_back(versions_.make(op.outs[o], decision.naturals[o]));
  body.steps.push_back(std::move(step));
  body.ops.push_back(std::move(op));
}

void Sharder::lower_op(Op op) {
  const std::vector<int> outs = op.outs;
  const Decision& decision = decision_of(op);
  run(std::move(op), decision);
  for (int o : outs) prefer_wanted(o);
}

// Replaces operands of an n-ary add that lie alike by their sum. A recomputed add groups them as
// its original did.
Op Sharder::sum_alike_first(const Op& op) {
  auto at = groups_.find(op.outs[0]);
  if (at == groups_.end()) at = groups_.emplace(op.outs[0], groups_of(op, versions_)).first;
  const Groups& groups = at->second;
  if (groups.empty()) return op;
  Op rest = op;
  rest.ins.clear();
  for (const auto& [layout, members] : groups) {
    if (members.size() == 1) {
      rest.ins.push_back(members[0]);
      continue;
    }
    Value v = (*graph_)[members[0]];
    v.name = graph_->fresh();
    v.labels = op.out_labels[0];
    v.gradient_of = v.heading = -1;
    const int sum = graph_->add(std::move(v));
    Op part = op;
    part.ins = members;
    part.outs = {sum};
    part.in_labels.resize(members.size());
    part.in_types.resize(members.size());
    Decision alike{.cuts = {}, .needs = {members.size(), layout}, .naturals = {layout}};
    for (char l : part.size.labels) alike.cuts.push_back(layout.cuts[op.out_labels[0].find(l)]);
    run(std::move(part), alike);
    rest.ins.push_back(sum);
  }
  rest.in_labels.resize(rest.ins.size());
  rest.in_types.resize(rest.ins.size());
  return rest;
}

Value Sharder::as_state(const StateName& name, int value) const {
  Value v = (*graph_)[value];
  v.name = show(name);
  v.gradient_of = -1;
  return v;
}

// The layout in which a state lies between bodies. The first body that names the state settles it.
Layout Sharder::state_at_rest(const StateName& name, int value) {
  const auto known = states_.find(name);
  if (known != states_.end()) return known->second;
  Layout layout(static_cast<int>((*graph_)[value].sizes.size()));
  if (of_scalar(name)) {
    layout.pending = pending_scalars_;
  } else {
    layout.cuts = wanted_(as_state(name, value)).cuts;
  }
  return states_.emplace(name, layout).first->second;
}

void Sharder::lower_read(const Op& op) {
  const int value = op.outs[0];
  const Layout layout = state_at_rest(op.attrs.state, value);
  const int version = versions_.make(value, layout);
  LoweredBody& body = versions_.body();
  body.steps.push_back({.kind = StepKind::read,
                        .outs = {version},
                        .state = state_index(body, op.attrs.state, value, layout)});
  prefer_wanted(value);
}

void Sharder::lower_store(const Op& op) {
  const int value = op.ins[0];
  const StateName& name = op.attrs.state;
  // Sums of gradients over micro-batches may stay partial: one all_reduce ends them all.
  if (op.row == Row::accum && !of_scalar(name) && !states_.count(name))
    states_.emplace(name, target(wanted_(as_state(name, value)), versions_.of(value)[0].layout));
  const Layout layout = state_at_rest(name, value);
  const int version = versions_.get(value, layout);
  LoweredBody& body = versions_.body();
  body.steps.push_back({.kind = op.row == Row::accum ? StepKind::accum : StepKind::write,
                        .ins = {version},
                        .state = state_index(body, name, value, layout)});
}

LoweredBody Sharder::lower(const Body& body, const std::map<int, Layout>& given,
                           const std::vector<Output>& outputs) {
  versions_.start({.name = body.name, .piece = piece_, .graph = graph_});
  for (const auto& [value, layout] : given) input(value, layout);
  for (const Op& op : body.ops) {
    if (op.row == Row::read) {
      lower_read(op);
      continue;
    }
    for (int i : op.ins) {
      if (versions_.exists(i)) continue;
      Layout layout(static_cast<int>((*graph_)[i].sizes.size()));
      layout.cuts = want(i).cuts;
      input(i, layout);
    }
    if (op.row == Row::write || op.row == Row::accum) {
      lower_store(op);
    } else {
      lower_op(op.row == Row::add && op.ins.size() > 2 ? sum_alike_first(op) : op);
    }
  }
  for (const Output& o : outputs)
    versions_.body().outputs.push_back(o.layout ? versions_.get(o.value, *o.layout)
                                                : versions_.carried(o.value));
  return versions_.finish();
}

Layout Sharder::layout_of(const LoweredBody& body, int value, bool output) {
  for (int v : output ? body.outputs : body.inputs) {
    if (body.versions[v].value == value) return body.versions[v].layout;
  }
  CHECK(false, "{} is not at the edge of {}", (*body.graph)[value].name, body.name);
}

}  // namespace myriad
