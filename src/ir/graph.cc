#include "ir/graph.h"

#include <algorithm>

#include "base/error.h"
#include "ir/rows.h"

namespace myriad {

int64_t LabelSizes::at(char label) const {
  const int i = find(label);
  CHECK(i >= 0, "label {} is not among \"{}\"", label, labels);
  return sizes[i];
}

bool LabelSizes::set(char label, int64_t size) {
  const int i = find(label);
  if (i >= 0) return sizes[i] == size;
  labels += label;
  sizes.push_back(size);
  return true;
}

const char* name_of(RopeStyle style) { return style == RopeStyle::half ? "half" : "interleaved"; }

int Graph::add(Value v) {
  const int id = static_cast<int>(values.size());
  const auto at = std::lower_bound(index_.begin(), index_.end(), std::pair(v.name, -1));
  CHECK(at == index_.end() || at->first != v.name, "value {} exists", v.name);
  index_.insert(at, {v.name, id});
  v.port = port_named(v.name);
  values.push_back(std::move(v));
  return id;
}

int Graph::find(std::string_view name) const {
  const auto at = std::lower_bound(index_.begin(), index_.end(), name,
                                   [](const auto& e, std::string_view n) { return e.first < n; });
  return at == index_.end() || at->first != name ? -1 : at->second;
}

int Graph::find(Port port) const { return find(name_of(port)); }

int Graph::at(std::string_view name) const {
  const int id = find(name);
  CHECK(id >= 0, "no value {}", name);
  return id;
}

void Graph::rename(int id, std::string name) {
  const auto old = std::lower_bound(index_.begin(), index_.end(), std::pair(values[id].name, -1));
  index_.erase(old);
  const auto at = std::lower_bound(index_.begin(), index_.end(), std::pair(name, -1));
  CHECK(at == index_.end() || at->first != name, "value {} exists", name);
  index_.insert(at, {name, id});
  values[id].port = port_named(name);
  values[id].name = std::move(name);
}

std::string Graph::fresh() { return fmt::format("%{}", ++temporaries_); }

std::string show(const Op& op, const Graph& graph) {
  std::string outs, ins, rule;
  for (int o : op.outs) outs += (outs.empty() ? "" : ", ") + graph[o].name;
  for (int i : op.ins) ins += ", " + graph[i].name;
  for (const auto& l : op.in_labels) rule += (&l == &op.in_labels[0] ? "" : ",") + l;
  rule += "->";
  for (const auto& l : op.out_labels) rule += (&l == &op.out_labels[0] ? "" : ";") + l;
  std::string text = fmt::format("{} = {} \"{}\"{}", outs, info(op.row).name, rule, ins);
  if (!op.attrs.state.empty()) text += " " + show(op.attrs.state);
  return text;
}

bool works_on_rows(const Op& op) {
  if (op.row == Row::dispatch || op.row == Row::combine || op.row == Row::dispatch_w ||
      op.row == Row::collect_w || op.row == Row::spread || op.row == Row::collapse)
    return false;
  const auto rows = [](const std::string& labels) { return labels.starts_with("ebs"); };
  return std::any_of(op.in_labels.begin(), op.in_labels.end(), rows) ||
         std::any_of(op.out_labels.begin(), op.out_labels.end(), rows);
}

}  // namespace myriad
