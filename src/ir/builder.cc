// Ops made one by one. The index rule of an op ("bsd,grhd->bsgrh") and the sizes of its operands
// give the labels and sizes of its results, so the author of a model writes neither; a rule that
// contradicts the sizes is a CHECK. Routed rows are known by their labels "ebs..."; their set (the
// choices that define it) and expected density follow from the operands too. Read ir/builder.h and
// the labels in ir/graph.h first.
#include "ir/builder.h"

#include "base/error.h"
#include "ir/rows.h"

namespace myriad {

namespace {

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  size_t from = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || text[i] == by) {
      parts.emplace_back(text.substr(from, i - from));
      from = i + 1;
    }
  }
  return parts;
}

// A sparse output has the rows of its sparse operand, or those that `dispatch` makes.
int routing_of(const Graph& graph, const Op& op) {
  if (op.row == Row::dispatch || op.row == Row::dispatch_w || op.row == Row::collapse)
    return op.ins[1];
  if (op.row == Row::spread) return op.ins[2];
  for (int i : op.ins) {
    if (graph[i].sparse()) return graph[i].routing;
  }
  CHECK(false, "{} makes routed rows from none", info(op.row).name);
}

double density_of(const Graph& graph, const Op& op, int routing) {
  for (int i : op.ins) {
    if (graph[i].routing == routing) return graph[i].density;
  }
  return graph[routing].density * static_cast<double>(op.size.at('j')) /
         static_cast<double>(op.size.at('e'));
}

DType first_real(const Graph& graph, const Op& op) {
  for (int i : op.ins) {
    if (is_real(graph[i].dtype)) return graph[i].dtype;
  }
  return graph.real;
}

}  // namespace

std::vector<int> Builder::op(Row row, std::span<const int> ins, std::string_view rule,
                             Options options) {
  const size_t arrow = rule.find("->");
  CHECK(arrow != std::string_view::npos, "{}", rule);
  Op op{.row = row,
        .ins = {ins.begin(), ins.end()},
        .outs = {},
        .in_labels = {},
        .out_labels = {},
        .in_types = {},
        .out_types = {},
        .size = {},
        .attrs = std::move(options.attrs)};
  if (!ins.empty()) op.in_labels = split(rule.substr(0, arrow), ',');
  const std::string_view right = rule.substr(arrow + 2);
  const bool stores = row == Row::write || row == Row::accum;
  if (!stores) op.out_labels = split(right, ';');
  CHECK(op.in_labels.size() == ins.size(), "{} \"{}\" has {} operands", info(row).name, rule,
        ins.size());
  for (size_t i = 0; i < ins.size(); ++i) {
    const Value& v = graph_[ins[i]];
    const std::string& labels = op.in_labels[i];
    op.in_types.push_back(v.dtype);
    CHECK(labels.size() == v.sizes.size(), "{} \"{}\": operand {} is \"{}\"", info(row).name, rule,
          v.name, v.labels);
    for (size_t d = 0; d < labels.size(); ++d) {
      if (!op.size.set(labels[d], v.sizes[d])) {
        throw Error(fmt::format("{} \"{}\": {} is {} and {} in operand {}", info(row).name, rule,
                                labels[d], op.size.at(labels[d]), v.sizes[d], v.name));
      }
    }
  }
  for (size_t i = 0; i < options.sizes.labels.size(); ++i) {
    const char l = options.sizes.labels[i];
    if (rule.find(l) == std::string_view::npos) continue;
    if (!op.size.set(l, options.sizes.sizes[i])) {
      throw Error(fmt::format("{} \"{}\": {} is {} and {}", info(row).name, rule, l, op.size.at(l),
                              options.sizes.sizes[i]));
    }
  }
  for (size_t o = 0; o < op.out_labels.size(); ++o) {
    const bool named = o < options.names.size() && !options.names[o].empty();
    Value v{.name = named ? options.names[o] : graph_.fresh(),
            .labels = op.out_labels[o],
            .sizes = {},
            .dtype = o < options.dtypes.size() ? options.dtypes[o] : first_real(graph_, op),
            .from_state = row == Row::read || (row == Row::cast && graph_[ins[0]].from_state)};
    op.out_types.push_back(v.dtype);
    for (char l : v.labels) v.sizes.push_back(op.size.at(l));
    if (v.labels.starts_with("ebs")) {
      v.routing = routing_of(graph_, op);
      v.density = density_of(graph_, op, v.routing);
    }
    v.from_experts = row == Row::combine;
    op.outs.push_back(graph_.add(std::move(v)));
  }
  op.part = part;
  body_.ops.push_back(op);
  return op.outs;
}

int Builder::op1(Row row, std::initializer_list<int> ins, std::string_view rule, Options options) {
  return op(row, std::span(ins.begin(), ins.size()), rule, std::move(options))[0];
}

int Builder::contract(std::string_view rule, std::span<const int> ins, std::string name,
                      double scale, uint32_t stop, std::optional<DType> dtype) {
  Options options{.names = {std::move(name)},
                  .sizes = {},
                  .attrs = {.scale = scale, .stop = stop},
                  .dtypes = {}};
  if (dtype) options.dtypes = {*dtype};
  return op(Row::contract, ins, rule, std::move(options))[0];
}

int Builder::contract(std::string_view rule, std::initializer_list<int> ins, std::string name,
                      double scale, uint32_t stop, std::optional<DType> dtype) {
  return contract(rule, std::span(ins.begin(), ins.size()), std::move(name), scale, stop, dtype);
}

int Builder::add(std::span<const int> ins, std::string name) {
  const std::string labels = graph_[ins[0]].labels;
  std::string rule = labels;
  for (size_t i = 1; i < ins.size(); ++i) rule += "," + labels;
  return op(
      Row::add, ins, rule + "->" + labels,
      {.names = {std::move(name)}, .sizes = {}, .attrs = {}, .dtypes = {graph_[ins[0]].dtype}})[0];
}

int Builder::add(std::initializer_list<int> ins, std::string name) {
  return add(std::span(ins.begin(), ins.size()), std::move(name));
}

int Builder::elementwise(Row row, std::initializer_list<int> ins, std::string name, Attrs attrs) {
  std::string rule;
  for (int i : ins) rule += (rule.empty() && i == *ins.begin() ? "" : ",") + graph_[i].labels;
  rule += "->" + graph_[*ins.begin()].labels;
  return op(row, std::span(ins.begin(), ins.size()), rule,
            {.names = {std::move(name)}, .sizes = {}, .attrs = std::move(attrs), .dtypes = {}})[0];
}

int Builder::cast(int x, DType to, std::string name) {
  if (graph_[x].dtype == to) return x;
  const std::string& labels = graph_[x].labels;
  return op1(Row::cast, {x}, labels + "->" + labels,
             {.names = {std::move(name)}, .sizes = {}, .attrs = {}, .dtypes = {to}});
}

namespace {

StateName state_of(std::string_view printed) {
  const std::optional<StateName> name = state_named(printed);
  CHECK(name, "{} is not the name of a state", printed);
  return *name;
}

}  // namespace

int Builder::read(std::string_view state, std::string labels, Sizes sizes, DType dtype,
                  std::string name) {
  return read(state_of(state), std::move(labels), std::move(sizes), dtype, std::move(name));
}

void Builder::write(Row row, int value, std::string_view state) {
  write(row, value, state_of(state));
}

int Builder::read(StateName state, std::string labels, Sizes sizes, DType dtype, std::string name) {
  return op(Row::read, {}, "->" + labels,
            {.names = {std::move(name)},
             .sizes = {labels, sizes},
             .attrs = {.state = std::move(state)},
             .dtypes = {dtype}})[0];
}

void Builder::write(Row row, int value, StateName state) {
  const int ins[] = {value};
  op(row, ins, graph_[value].labels + "->",
     {.names = {}, .sizes = {}, .attrs = {.state = std::move(state)}, .dtypes = {}});
}

int Builder::input(std::string name, std::string labels, Sizes sizes, DType dtype) {
  const int known = graph_.find(name);
  if (known >= 0) return known;
  return graph_.add({.name = std::move(name),
                     .labels = std::move(labels),
                     .sizes = std::move(sizes),
                     .dtype = dtype});
}

}  // namespace myriad
