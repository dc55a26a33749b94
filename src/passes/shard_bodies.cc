// Lays out the forward and backward bodies of all pieces, body by body in the order they run. What
// one body hands to a later one has one layout, which the maker chooses and the later one is given;
// only what crosses to another unit is fixed beforehand (boundary), so that all units agree without
// knowing each other. The layouts of states are shared by the variants of a piece.
#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "ir/rows.h"
#include "passes/bodies.h"
#include "passes/differentiate.h"

namespace myriad {

namespace {

// The layout that the rules ask of a value called `name`, which is like `like`.
Layout boundary(const Lowering& l, const char* name, const Value& like) {
  Value v = like;
  v.name = name;
  v.gradient_of = -1;
  const Want w = l.wanted(v);
  Layout layout(static_cast<int>(v.sizes.size()));
  layout.cuts = w.cuts;
  return layout;
}

// The bodies of one piece, and its values that they share.
struct PieceBodies {
  const Lowering& l;
  const Graph& graph;
  const std::vector<BodyPart>& parts;
  int x, y, rounds;

  Layout x_like(int value) const { return boundary(l, name_of(Port::x), graph[value]); }
  Layout dx_like(int value) const { return boundary(l, name_of(Port::dx), graph[value]); }
};

// What a round hands back to tokens lies as what it hands on: at home, reduced; or pending over
// nodes, to be reduced once for all rounds.
std::optional<Layout> of_tokens(const PieceBodies& p, int value) {
  if (p.l.plan.dispatch == Dispatch::node_gather) return std::nullopt;
  const Value &v = p.graph[value], &on = p.graph[p.graph.at("m")];
  if (v.heading < 0 || v.labels != on.labels) return std::nullopt;
  return boundary(p.l, "m", on);
}

// What body k hands to later ones, the next unit, the previous unit and taps.
std::vector<Output> handed_on(const PieceBodies& p, size_t k) {
  const BodyPart& part = p.parts[k];
  std::set<int> made;
  for (const Op& op : part.body.ops) made.insert(op.outs.begin(), op.outs.end());
  std::vector<Output> outputs;
  const auto add = [&](int value, std::optional<Layout> layout) {
    const bool known = std::any_of(outputs.begin(), outputs.end(),
                                   [&](const Output& o) { return o.value == value; });
    if (made.count(value) && !known) outputs.push_back({value, layout});
  };
  if (p.y >= 0 && part.role != BodyRole::recompute) add(p.y, p.x_like(p.y));
  for (int o : part.body.outputs) add(o, p.dx_like(o));
  bool recomputed = false;  // later bodies then take it from those that recompute
  for (size_t i = k + 1; i < p.parts.size(); ++i) {
    const BodyPart& later = p.parts[i];
    if (part.role == BodyRole::forward && later.role == BodyRole::recompute) recomputed = true;
    if (recomputed && later.role != BodyRole::forward) continue;
    for (const Op& op : later.body.ops) {
      if (info(op.row).as_wanted)
        add(op.ins[0], boundary(p.l, p.graph[op.ins[0]].name.c_str(), p.graph[op.ins[0]]));
    }
    for (int value : inputs_of(later.body)) {
      if (value != p.x) add(value, part.loop ? of_tokens(p, value) : std::nullopt);
    }
    if (later.loop) add(p.rounds, std::nullopt);
  }
  if (part.role == BodyRole::forward) {
    for (const std::string& name : p.l.options.keep) add(p.graph.find(name), std::nullopt);
  }
  return outputs;
}

// Makes a laid-out body a loop over rounds: what it hands on is summed over them, and what does not
// depend on the round is moved in the first round only.
void close_loop(LoweredBody& body, int rounds) {
  body.loop = true;
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    if (body.versions[body.inputs[i]].value == rounds) body.rounds = static_cast<int>(i);
  }
  for (const Op& op : body.ops) {
    if (op.row != Row::window) continue;
    body.parts = op.attrs.parts;
    body.bound = op.attrs.bound;
  }
  std::vector<bool> fixed(body.versions.size(), false);
  for (int in : body.inputs) fixed[in] = true;
  for (Step& step : body.steps) {
    if (step.kind != StepKind::move || !fixed[step.ins[0]]) continue;
    step.once = true;
    fixed[step.outs[0]] = true;
  }
  CHECK(body.rounds >= 0 && body.bound > 0, "{} has no rounds", body.name);
  for (size_t o = 0; o < body.outputs.size(); ++o) {
    body.steps.push_back(
        {.kind = StepKind::emit, .ins = {body.outputs[o]}, .state = static_cast<int>(o)});
  }
}

void shard_piece(Lowering& l, LoweredVariant& v, size_t i, Sharder& sharder) {
  const Graph& graph = *v.graphs[i];
  const PieceBodies p{.l = l,
                      .graph = graph,
                      .parts = v.parts[i],
                      .x = graph.find(Port::x),
                      .y = graph.find(Port::y),
                      .rounds = graph.find(Port::rounds)};
  std::map<int, Layout> known;  // what earlier bodies took or handed on
  if (p.x >= 0) known[p.x] = p.x_like(p.x);
  for (size_t k = 0; k < p.parts.size(); ++k) {
    const BodyPart& part = p.parts[k];
    std::map<int, Layout> given;
    std::vector<int> inputs = inputs_of(part.body);
    if (part.loop) inputs.push_back(p.rounds);
    for (int value : inputs) {
      if (p.y >= 0 && graph[value].gradient_of == p.y) known[value] = p.dx_like(value);
      if (const auto at = known.find(value); at != known.end()) given[value] = at->second;
    }
    LoweredBody lowered = sharder.lower(part.body, given, handed_on(p, k));
    if (part.loop) close_loop(lowered, p.rounds);
    for (int in : lowered.inputs)
      known.emplace(lowered.versions[in].value, lowered.versions[in].layout);
    for (int out : lowered.outputs)
      known[lowered.versions[out].value] = lowered.versions[out].layout;
    auto& bodies = part.role == BodyRole::forward     ? v.forward[i]
                   : part.role == BodyRole::recompute ? v.recompute[i]
                                                      : v.backward[i];
    bodies.push_back(l.add_body(std::move(lowered), part.role));
  }
}

}  // namespace

void shard_bodies(Lowering& l) {
  for (auto& [rows, v] : l.pieces.variants) {
    const size_t n = v.pieces.pieces.size();
    v.forward.resize(n);
    v.recompute.resize(n);
    v.backward.resize(n);
    auto& sharders = l.sharders[rows];
    for (size_t i = 0; i < n; ++i) {
      const int piece = static_cast<int>(i);
      v.graphs.push_back(std::make_shared<Graph>(std::move(v.pieces.pieces[i].graph)));
      sharders.push_back(std::make_unique<Sharder>(l.program.mesh, l.wanted, l.memory, v.graphs[i],
                                                   piece, l.states[piece], l.stage_atoms));
      shard_piece(l, v, i, *sharders[i]);
    }
  }
}

}  // namespace myriad
