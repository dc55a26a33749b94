#include "passes/check_graph.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ir/rows.h"

namespace myriad {

namespace {

[[noreturn]] void refuse(const Graph& graph, const Body& body, const Op& op,
                         const std::string& what) {
  throw Error(what,
              fmt::format("{}, op {} ({})", body.name, &op - body.ops.data(), show(op, graph)));
}

// One side of an op: values against labels and types.
void check_side(const Graph& graph, const Body& body, const Op& op, const std::vector<int>& values,
                const std::vector<std::string>& labels, const std::vector<DType>& types) {
  const auto need = [&](bool ok, const std::string& what) {
    if (!ok) refuse(graph, body, op, what);
  };
  const bool known = std::all_of(values.begin(), values.end(), [&](int v) {
    return v >= 0 && v < static_cast<int>(graph.values.size());
  });
  if (!known) {  // and so the op cannot be shown
    throw Error("an operand or a result is no value of the graph",
                fmt::format("{}, op {} ({})", body.name, &op - body.ops.data(), info(op.row).name));
  }
  need(values.size() == labels.size() && values.size() == types.size(),
       fmt::format("{} values have {} lists of labels and {} types", values.size(), labels.size(),
                   types.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& v = graph[values[i]];
    need(v.dtype == types[i],
         fmt::format("{} is {}, the op says {}", v.name, name_of(v.dtype), name_of(types[i])));
    need(v.sizes.size() == labels[i].size(),
         fmt::format("{} has {} dims, the op says \"{}\"", v.name, v.sizes.size(), labels[i]));
    for (size_t d = 0; d < labels[i].size(); ++d) {
      const int at = op.size.find(labels[i][d]);
      need(at >= 0, fmt::format("label {} has no size", labels[i][d]));
      need(op.size.sizes[static_cast<size_t>(at)] == v.sizes[d],
           fmt::format("{} is {} along {}, the op says {}", v.name, v.sizes[d], labels[i][d],
                       op.size.sizes[static_cast<size_t>(at)]));
    }
  }
}

}  // namespace

void check_graph(const Graph& graph, const Body& body) {
  std::set<int> to_come, made, read;
  for (const Op& op : body.ops) to_come.insert(op.outs.begin(), op.outs.end());
  for (const Op& op : body.ops) {
    check_side(graph, body, op, op.ins, op.in_labels, op.in_types);
    check_side(graph, body, op, op.outs, op.out_labels, op.out_types);
    const bool of_state = op.row == Row::read || op.row == Row::write || op.row == Row::accum;
    if (op.attrs.state.empty() == of_state)
      refuse(graph, body, op, of_state ? "it names no state" : "it names a state");
    for (int v : op.ins) {
      if (to_come.count(v) && !made.count(v))
        refuse(graph, body, op, graph[v].name + " is read before it is made");
      read.insert(v);
    }
    for (int v : op.outs) {
      if (!made.insert(v).second) refuse(graph, body, op, graph[v].name + " is made twice");
    }
  }
  for (int v : body.outputs) {
    if (made.count(v) || read.count(v)) continue;
    throw Error(fmt::format("it hands out {}, which it does not make", graph[v].name), body.name);
  }
}

void check_graph(const Piece& piece) {
  for (const Body* body : {&piece.forward, &piece.backward, &piece.settle, &piece.settle_other,
                           &piece.sum, &piece.square, &piece.update})
    check_graph(piece.graph, *body);
}

}  // namespace myriad
