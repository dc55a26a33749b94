// Reverse-mode differentiation of a straight-line body.
//
// The forward ops are visited in reverse order. When an op is reached, all ops that use its outputs
// have been visited, so the gradients of its outputs are complete: `settle` adds the contributions
// to each into one value "d.NAME". The op's gradient rule (ir/rows.h) then emits the contributions
// to the gradients of its operands. A read of a parameter ends in an accumulation into its "g:"
// state. Only values that depend on a parameter or on a received input get gradients. Two clean-ups
// follow: ops that nothing uses are dropped, and values made from state alone are recomputed in the
// backward body rather than stored for it. Read Differentiator::run first.
#include "passes/differentiate.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "ir/rows.h"

namespace myriad {

namespace {

class Differentiator {
 public:
  Differentiator(Graph& graph, const Body& forward)
      : graph_(graph), forward_(forward), b_(graph, backward_) {}

  Body run(const std::vector<Seed>& seeds, const std::vector<int>& received) {
    for (const Seed& s : seeds) parts_[s.value] = {s.gradient};
    needed_.insert(received.begin(), received.end());
    for (const Op& op : forward_.ops) {
      if (op.row == Row::read ||
          std::any_of(op.ins.begin(), op.ins.end(), [&](int i) { return needed_.count(i); })) {
        needed_.insert(op.outs.begin(), op.outs.end());
      }
    }
    for (auto op = forward_.ops.rbegin(); op != forward_.ops.rend(); ++op) turn(*op);
    std::set<int> ends;
    for (int x : received) {
      const int g = settle(x);
      if (g < 0) continue;
      CHECK(graph_[g].gradient_of == x, "{} has no gradient of its own", graph_[x].name);
      ends.insert(g);
    }
    backward_.outputs.assign(ends.begin(), ends.end());
    drop_dead(ends);
    make_again_from_state();
    return std::move(backward_);
  }

 private:
  // Emits the gradients of one forward op.
  void turn(const Op& op) {
    b_.part = op.part;
    if (op.row == Row::read) {
      const int g = settle(op.outs[0]);
      if (g >= 0) b_.write(Row::accum, g, StateName{StateKind::gradient_sum, op.attrs.state.of});
      return;
    }
    std::vector<int> d;
    for (int o : op.outs) d.push_back(settle(o));
    if (d.empty() || d[0] < 0 || !info(op.row).gradient) return;
    const std::vector<int> g = info(op.row).gradient(b_, op, d);
    for (size_t i = 0; i < g.size(); ++i) {
      if (g[i] < 0 || !needed_.count(op.ins[i])) continue;
      parts_[op.ins[i]].push_back(g[i]);
      if (graph_[g[i]].temporary()) graph_[g[i]].heading = op.ins[i];
    }
  }

  // The one value that holds the gradient of x, the sum of all contributions; -1 if there are none.
  // It carries the labels of x.
  int settle(int x) {
    const auto at = parts_.find(x);
    if (at == parts_.end()) return -1;
    const std::vector<int> parts = std::move(at->second);
    parts_.erase(at);
    const std::string name = "d." + graph_[x].name;
    int g = parts[0];
    if (parts.size() > 1) {
      g = b_.add(parts, graph_.find(name) < 0 ? name : "");
    } else if (!graph_[g].temporary()) {
      return g;
    } else {
      graph_.rename(g, name);
    }
    graph_[g].labels = graph_[x].labels;
    graph_[g].gradient_of = x;
    graph_[g].heading = -1;
    return g;
  }

  // Removes the ops whose results no accumulation and no output needs.
  void drop_dead(const std::set<int>& ends) {
    std::set<int> live = ends;
    std::vector<Op> keep;
    for (auto op = backward_.ops.rbegin(); op != backward_.ops.rend(); ++op) {
      const bool used =
          std::any_of(op->outs.begin(), op->outs.end(), [&](int o) { return live.count(o); });
      if (op->row != Row::accum && !used) continue;
      live.insert(op->ins.begin(), op->ins.end());
      keep.push_back(std::move(*op));
    }
    std::reverse(keep.begin(), keep.end());
    backward_.ops = std::move(keep);
  }

  // Clones the forward ops that depend on state alone into the backward body, once in each of its
  // parts, before their first use there.
  void make_again_from_state() {
    std::map<int, const Op*> maker;
    for (const Op& op : forward_.ops) {
      const bool from_state =
          op.row == Row::read ||
          (!op.ins.empty() &&
           std::all_of(op.ins.begin(), op.ins.end(), [&](int i) { return maker.count(i); }));
      if (!from_state) continue;
      for (int o : op.outs) maker[o] = &op;
    }
    std::vector<Op> out;
    std::set<int> made;
    int part = 0;
    const std::function<void(int)> make = [&](int value) {
      const auto at = maker.find(value);
      if (at == maker.end() || made.count(value)) return;
      made.insert(at->second->outs.begin(), at->second->outs.end());
      for (int i : at->second->ins) make(i);
      out.push_back(*at->second);
      out.back().part = part;
    };
    for (Op& op : backward_.ops) {
      if (op.part != part) made.clear();  // parts are bodies of their own
      part = op.part;
      for (int i : op.ins) make(i);
      out.push_back(std::move(op));
    }
    backward_.ops = std::move(out);
  }

  Graph& graph_;
  const Body& forward_;
  Body backward_;
  Builder b_;
  std::map<int, std::vector<int>> parts_;  // value -> contributions to its gradient so far
  std::set<int> needed_;                   // values that depend on a parameter or a received value
};

}  // namespace

Body differentiate(Graph& graph, const Body& forward, const std::vector<Seed>& seeds,
                   const std::vector<int>& received) {
  return Differentiator(graph, forward).run(seeds, received);
}

void differentiate(Piece& piece) {
  if (piece.forward.ops.empty()) return;
  Graph& g = piece.graph;
  std::vector<Seed> seeds;
  std::vector<int> received;
  const auto gradient_input = [&](int v) {
    Value d = g[v];
    d.name = "d." + d.name;
    d.gradient_of = v;
    return g.add(std::move(d));
  };
  if (const int y = g.find("y"); y >= 0) seeds.push_back({y, gradient_input(y)});
  if (const int loss = g.find("loss"); loss >= 0) seeds.push_back({loss, g.at("inv_n")});
  for (const auto& [value, seed] : piece.seeds) seeds.push_back({g.at(value), g.at(seed)});
  if (const int x = g.find("x"); x >= 0) received.push_back(x);
  piece.backward = differentiate(g, piece.forward, seeds, received);
  piece.backward.name = piece.name + ".backward";
}

Body recompute(const Body& forward, const Body& backward, const std::set<int>& kept) {
  std::map<int, const Op*> maker;
  for (const Op& op : forward.ops) {
    for (int o : op.outs) {
      if (!kept.count(o)) maker[o] = &op;
    }
  }
  Body out{.name = backward.name, .ops = {}, .outputs = backward.outputs};
  std::set<int> there;
  const std::function<void(int)> need = [&](int value) {
    const auto at = maker.find(value);
    if (at == maker.end() || there.count(value)) return;
    there.insert(at->second->outs.begin(), at->second->outs.end());
    for (int i : at->second->ins) need(i);
    out.ops.push_back(*at->second);
  };
  for (const Op& op : backward.ops) {
    if (!op.outs.empty() && maker.count(op.outs[0])) {  // a clone that depends on state alone
      need(op.outs[0]);
      continue;
    }
    for (int i : op.ins) need(i);
    out.ops.push_back(op);
  }
  return out;
}

std::set<int> dear_outputs(const Body& body) {
  std::set<int> values;
  for (const Op& op : body.ops) {
    const bool chosen = op.row == Row::topk || op.row == Row::fits;
    if (chosen || is_product(op) || info(op.row).engine == Engine::attention)
      values.insert(op.outs.begin(), op.outs.end());
  }
  return values;
}

std::vector<int> inputs_of(const Body& body) {
  std::vector<int> inputs;
  std::set<int> seen;
  for (const Op& op : body.ops) {
    for (int i : op.ins) {
      if (seen.insert(i).second) inputs.push_back(i);
    }
    seen.insert(op.outs.begin(), op.outs.end());
  }
  return inputs;
}

}  // namespace myriad
