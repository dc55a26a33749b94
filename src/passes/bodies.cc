#include "passes/bodies.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "ir/rows.h"
#include "passes/differentiate.h"
#include "passes/relay.h"
#include "passes/sharder.h"
#include "passes/strategy.h"

namespace myriad {

namespace {

class Bodies {
 public:
  Bodies(const Emit& emit, const Plan& plan, const LowerOptions& options, Program& program)
      : plan_(plan), options_(options), program_(program) {
    for (int j = 0; j < plan.micro_batches; ++j) {
      const int64_t n = micro_batch_rows(options.rows, plan.micro_batches, j).size();
      if (!out_.variants.count(n)) out_.variants[n].pieces = emit(n);
    }
    first_ = &out_.variants.begin()->second;
    program_.mesh = mesh_of(plan, first_->pieces);
    program_.stages = plan.pp;
    if (plan.ranks_per_node < plan.ranks()) program_.ranks_per_node = plan.ranks_per_node;
    wanted_ = options.wanted
                  ? options.wanted
                  : Wanted(Rules(rules_of(plan), program_.mesh, aliases_of(plan, program_.mesh)));
    const int pp = program_.mesh.find("pp");
    stage_atoms_ = static_cast<AtomSet>(program_.mesh.all() & ~(pp < 0 ? 0 : 1u << pp));
  }

  LoweredPieces run() {
    for (auto& [rows, variant] : out_.variants) lower_bodies(variant, rows);
    if (!options_.forward_only) lower_optimizer();
    lower_finish();
    return std::move(out_);
  }

 private:
  // Bodies.

  Layout boundary(const char* name, const Value& like) const {
    Value v = like;
    v.name = name;
    v.gradient_of = -1;
    const Want w = wanted_(v);
    Layout layout(static_cast<int>(v.sizes.size()));
    layout.cuts = w.cuts;
    return layout;
  }

  int add_body(LoweredBody body) {
    program_.bodies.push_back(std::move(body));
    return static_cast<int>(program_.bodies.size()) - 1;
  }

  void lower_bodies(LoweredVariant& v, int64_t rows) {
    const size_t n = v.pieces.pieces.size();
    v.forward.resize(n);
    v.again.resize(n);
    v.backward.resize(n);
    for (size_t i = 0; i < n; ++i) {
      Piece& piece = v.pieces.pieces[i];
      for (Op& op : piece.forward.ops) {
        if (op.row == Row::fits) op.attrs.cp = plan_.cp;
      }
      if (piece.loop_part >= 0) bound_rounds(piece, rows);
      if (piece.loop_part >= 0 && plan_.dispatch == Dispatch::node_relay) relay(piece, plan_);
      differentiate(piece);
      v.graphs.push_back(std::make_shared<Graph>(std::move(piece.graph)));
      sharders_[rows].push_back(std::make_unique<Sharder>(
          program_.mesh, wanted_, memory_, v.graphs[i], static_cast<int>(i),
          states_[static_cast<int>(i)], stage_atoms_));
      if (!piece.forward.ops.empty()) lower_piece(v, static_cast<int>(i), rows);
    }
  }

  // How many routed rows an owner of experts takes a round: expert_rows_bound times an even share
  // of the largest part; under node_relay all of one token at least, so that no token is parted.
  void bound_rounds(Piece& piece, int64_t rows) {
    const Rules rules("*: b=edp_d s=edp_s", program_.mesh, aliases_of(plan_, program_.mesh));
    const auto cuts = rules(Value{.name = "x", .labels = "bs", .sizes = {1, 1}}).cuts;
    const auto largest_part = [&](int64_t n, AtomList cut) {
      const int64_t parts = program_.mesh.parts(cut);
      return (n + parts - 1) / parts;
    };
    for (Op& op : piece.forward.ops) {
      if (op.row != Row::window && op.row != Row::rounds) continue;
      op.attrs.parts = plan_.ep;
      op.attrs.inner = plan_.etp;
      op.attrs.ranks_per_node = plan_.dispatch == Dispatch::node_relay ? plan_.ranks_per_node : 0;
      const double even =
          static_cast<double>(largest_part(rows, cuts[0]) * largest_part(op.size.at('s'), cuts[1]) *
                              op.size.at('j')) /
          plan_.ep;
      const int64_t of_a_token =
          op.attrs.ranks_per_node > 0
              ? std::min(op.size.at('j'), (op.attrs.experts + plan_.ep - 1) / plan_.ep)
              : 1;
      op.attrs.bound = std::max(
          of_a_token,
          static_cast<int64_t>(std::ceil(even * (plan_.ep == 1 ? 1 : plan_.expert_rows_bound))));
    }
  }

  struct Part {
    Body body;
    enum Kind { forward, again, backward } kind;
    bool loop;
  };

  // The bodies of a piece in the order they run.
  std::vector<Part> parts_of(Piece& piece, Recompute how) const {
    std::vector<Part> parts;
    int last = 0;
    for (const Op& op : piece.forward.ops) last = std::max(last, op.part);
    const auto ops_of = [](const Body& body, int part, bool count) {
      Body b;
      for (const Op& op : body.ops) {
        if (op.part == part && (count || op.row != Row::accum)) b.ops.push_back(op);
      }
      return b;
    };
    const auto add = [&](Body body, Part::Kind kind, int part, const char* name) {
      body.name = piece.name + name + (last > 0 ? fmt::format(".{}", part) : "");
      if (!body.ops.empty()) parts.push_back({std::move(body), kind, part == piece.loop_part});
    };
    for (int p = 0; p <= last; ++p)
      add(ops_of(piece.forward, p, true), Part::forward, p, ".forward");
    if (options_.forward_only) return parts;
    if (how == Recompute::full && last > 0) {
      for (int p = 0; p <= last; ++p)
        add(ops_of(piece.forward, p, false), Part::again, p, ".again");
    }
    std::set<int> kept = dear_outputs(piece.forward);
    for (int p = last; p >= 0; --p) {
      Body b = ops_of(piece.backward, p, true);
      const Body forward = ops_of(piece.forward, p, true);
      // A round keeps nothing: its backward makes it again.
      if (p == piece.loop_part || (how == Recompute::full && last == 0)) {
        b = recompute(forward, b);
      } else if (how == Recompute::selective) {
        b = recompute(forward, b, kept);
      }
      for (int value : inputs_of(b)) kept.insert(value);  // there in any case
      for (int o : piece.backward.outputs) {
        for (const Op& op : b.ops) {
          if (std::find(op.outs.begin(), op.outs.end(), o) != op.outs.end()) b.outputs.push_back(o);
        }
      }
      add(std::move(b), Part::backward, p, ".backward");
    }
    return parts;
  }

  void lower_piece(LoweredVariant& v, int i, int64_t rows) {
    Piece& piece = v.pieces.pieces[i];
    const Graph& graph = *v.graphs[i];
    Sharder& sharder = *sharders_.at(rows)[i];
    const std::string suffix = out_.variants.size() > 1 ? fmt::format("/{}", rows) : "";
    const bool layer = i != v.pieces.units.front() && i != v.pieces.units.back();
    std::vector<Part> parts = parts_of(piece, layer ? plan_.recompute : Recompute::none);
    const int x = graph.find("x"), y = graph.find("y"), rounds = graph.find("rounds");
    std::map<int, Layout> known;  // what earlier bodies took or handed on
    if (x >= 0) known[x] = boundary("x", graph[x]);
    for (size_t k = 0; k < parts.size(); ++k) {
      Body& body = parts[k].body;
      body.name += suffix;
      std::map<int, Layout> given;
      std::vector<int> inputs = inputs_of(body);
      if (parts[k].loop) inputs.push_back(rounds);
      for (int value : inputs) {
        if (y >= 0 && graph[value].gradient_of == y) known[value] = boundary("d.x", graph[value]);
        if (const auto at = known.find(value); at != known.end()) given[value] = at->second;
      }
      const std::vector<Output> outputs = handed_on(parts, k, graph, x, y, rounds);
      LoweredBody lowered = sharder.lower(body, given, outputs);
      if (parts[k].loop) close_loop(lowered, rounds);
      for (int in : lowered.inputs)
        known.emplace(lowered.versions[in].value, lowered.versions[in].layout);
      for (int out : lowered.outputs)
        known[lowered.versions[out].value] = lowered.versions[out].layout;
      auto& list = parts[k].kind == Part::forward ? v.forward[i]
                   : parts[k].kind == Part::again ? v.again[i]
                                                  : v.backward[i];
      list.push_back(add_body(std::move(lowered)));
    }
  }

  // What body k hands to later ones, the next unit, the previous unit and taps.
  std::vector<Output> handed_on(const std::vector<Part>& parts, size_t k, const Graph& graph, int x,
                                int y, int rounds) const {
    std::set<int> made;
    for (const Op& op : parts[k].body.ops) made.insert(op.outs.begin(), op.outs.end());
    std::vector<Output> outputs;
    const auto add = [&](int value, std::optional<Layout> layout) {
      if (!made.count(value) || std::any_of(outputs.begin(), outputs.end(),
                                            [&](const Output& o) { return o.value == value; }))
        return;
      outputs.push_back({value, layout});
    };
    if (y >= 0 && parts[k].kind != Part::again) add(y, boundary("x", graph[y]));
    for (int o : parts[k].body.outputs) add(o, boundary("d.x", graph[o]));
    bool made_again = false;  // later bodies then take it from the `again` ones
    for (size_t l = k + 1; l < parts.size(); ++l) {
      if (parts[k].kind == Part::forward && parts[l].kind == Part::again) made_again = true;
      if (made_again && parts[l].kind != Part::forward) continue;
      for (const Op& op : parts[l].body.ops) {
        if (info(op.row).as_wanted)
          add(op.ins[0], boundary(graph[op.ins[0]].name.c_str(), graph[op.ins[0]]));
      }
      for (int value : inputs_of(parts[l].body)) {
        if (value == x) continue;
        add(value, parts[k].loop ? of_tokens(graph, value) : std::nullopt);
      }
      if (parts[l].loop) add(rounds, std::nullopt);
    }
    if (parts[k].kind == Part::forward) {
      for (const std::string& name : options_.keep) add(graph.find(name), std::nullopt);
    }
    return outputs;
  }

  // What a round hands back to tokens lies as what it hands on: at home, settled; or pending over
  // nodes, to be settled once for all rounds.
  std::optional<Layout> of_tokens(const Graph& graph, int value) const {
    if (plan_.dispatch == Dispatch::node_gather) return std::nullopt;
    const Value &v = graph[value], &on = graph[graph.at("m")];
    if (v.heading < 0 || v.labels != on.labels) return std::nullopt;
    return boundary("m", on);
  }

  void close_loop(LoweredBody& body, int rounds) const {
    body.loop = true;
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      if (body.versions[body.inputs[i]].value == rounds) body.rounds = static_cast<int>(i);
    }
    for (const Op& op : body.ops) {
      if (op.row != Row::window) continue;
      body.parts = op.attrs.parts;
      body.bound = op.attrs.bound;
    }
    // What does not depend on the round is moved once.
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

  std::vector<Output> outputs_of(const Body& body) const {
    std::vector<Output> out;
    for (int o : body.outputs) out.push_back({o, std::nullopt});
    return out;
  }

  // Layouts of body's inputs that `from` hands over.
  static std::map<int, Layout> handed(const Body& body,
                                      std::initializer_list<const LoweredBody*> from) {
    std::map<int, Layout> given;
    for (int i : inputs_of(body)) {
      for (const LoweredBody* b : from) {
        for (int o : b->outputs) {
          if (b->versions[o].value == i) given[i] = b->versions[o].layout;
        }
      }
    }
    return given;
  }

  void lower_optimizer() {
    const Pieces& p = first_->pieces;
    const size_t n = p.pieces.size();
    out_.optimizer.settle.assign(n, -1);
    out_.optimizer.square.assign(n, -1);
    out_.optimizer.update.assign(n, -1);
    for (size_t i = 0; i < n; ++i) {
      if (static_cast<int>(i) == p.tied) {
        lower_tied();
        continue;
      }
      const Piece& piece = p.pieces[i];
      if (piece.settle.ops.empty()) continue;
      Sharder& sharder = *sharders_.begin()->second[i];
      out_.optimizer.settle[i] =
          add_body(sharder.lower(piece.settle, {}, outputs_of(piece.settle)));
      lower_square_and_update(sharder, piece, out_.optimizer.settle[i], i);
    }
  }

  void lower_square_and_update(Sharder& sharder, const Piece& piece, int gradients, size_t i) {
    const auto given = [&](const Body& body) {
      return handed(body, {&program_.bodies[gradients]});
    };
    out_.optimizer.square[i] = add_body(sharder.lower(piece.square, given(piece.square), {}));
    out_.optimizer.update[i] = add_body(sharder.lower(piece.update, given(piece.update), {}));
  }

  // A tied weight has one gradient sum per use: each is settled by itself, then they are added in
  // order of use.
  void lower_tied() {
    const Pieces& p = first_->pieces;
    const size_t i = static_cast<size_t>(p.tied);
    const Piece& piece = p.pieces[i];
    const auto sharder_with = [&](int states) {
      return Sharder(program_.mesh, wanted_, memory_, first_->graphs[i], static_cast<int>(i),
                     states_[states], stage_atoms_);
    };
    Sharder of_embedding = sharder_with(p.units.front()), of_head = sharder_with(p.units.back());
    out_.optimizer.settle[i] =
        add_body(of_embedding.lower(piece.settle, {}, outputs_of(piece.settle)));
    out_.optimizer.settle_other =
        add_body(of_head.lower(piece.settle_other, {}, outputs_of(piece.settle_other)));
    const auto given = handed(piece.sum, {&program_.bodies[out_.optimizer.settle[i]],
                                          &program_.bodies[out_.optimizer.settle_other]});
    out_.optimizer.sum = add_body(of_embedding.lower(piece.sum, given, outputs_of(piece.sum)));
    lower_square_and_update(of_embedding, piece, out_.optimizer.sum, i);
  }

  void lower_finish() {
    const Pieces& p = first_->pieces;
    const Piece& piece = p.pieces[p.finish];
    Sharder sharder(program_.mesh, wanted_, memory_, first_->graphs[p.finish], p.finish,
                    states_[-1], program_.mesh.all());
    out_.finish = add_body(sharder.lower(piece.update, {}, outputs_of(piece.update)));
  }

  const Plan& plan_;
  const LowerOptions& options_;
  Program& program_;
  Wanted wanted_;
  LayoutMemory memory_;
  LoweredPieces out_;
  LoweredVariant* first_;
  std::map<int64_t, std::vector<std::unique_ptr<Sharder>>> sharders_;  // by rows and piece
  std::map<int, std::map<std::string, Layout>> states_;  // by piece; -1: of the finish
  AtomSet stage_atoms_ = 0;
};

}  // namespace

LoweredPieces lower_pieces(const Emit& emit, const Plan& plan, const LowerOptions& options,
                           Program& program) {
  return Bodies(emit, plan, options, program).run();
}

}  // namespace myriad
