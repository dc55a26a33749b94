#include "passes/versions.h"

#include <algorithm>

#include "base/error.h"

namespace myriad {

Versions::Versions(const Mesh& mesh, MoveCosts& costs, std::shared_ptr<Graph> graph)
    : mesh_(mesh), costs_(costs), graph_(std::move(graph)) {}

void Versions::start(LoweredBody body) {
  body_ = std::move(body);
  held_.clear();
}

int Versions::shape(int value) {
  if (shapes_.size() < graph_->values.size()) shapes_.resize(graph_->values.size(), -1);
  int& number = shapes_[value];
  if (number < 0) number = costs_.intern(shape_of((*graph_)[value]));
  return number;
}

int Versions::make(int value, const Layout& layout) {
  body_.versions.push_back({value, layout});
  const int version = static_cast<int>(body_.versions.size()) - 1;
  held_[value] = {{version, layout}};
  return version;
}

const Held& Versions::cheapest_source(int value, const Layout& layout) {
  const Held* best = nullptr;
  MoveCost least{kNever, 0};
  for (const Held& h : held_.at(value)) {
    const MoveCost c = costs_(mesh_, h.layout, layout, shape(value));
    if (!best || c < least) {
      best = &h;
      least = c;
    }
  }
  CHECK(best && least.bytes < kNever, "{} cannot be brought to {}", (*graph_)[value].name,
        show(layout, (*graph_)[value].labels, mesh_));
  return *best;
}

int Versions::get(int value, const Layout& layout) {
  auto& held = held_.at(value);
  const auto in_layout = [&](const Layout& l) {
    return std::find_if(held.begin(), held.end(), [&](const Held& h) { return h.layout == l; });
  };
  if (const auto known = in_layout(layout); known != held.end()) return known->version;
  const Held source = cheapest_source(value, layout);
  int version = source.version;
  for (const MoveStep& step : reshard(source.layout, layout)) {
    if (const auto known = in_layout(step.after); known != held.end()) {
      version = known->version;
      continue;
    }
    body_.versions.push_back({value, step.after});
    const int next = static_cast<int>(body_.versions.size()) - 1;
    body_.steps.push_back({.kind = StepKind::move,
                           .ins = {version},
                           .outs = {next},
                           .what = step.what,
                           .atoms = step.atoms});
    held.push_back({next, step.after});
    version = next;
  }
  return version;
}

void Versions::prefer(int value, const Layout& layout) {
  const int version = get(value, layout);
  auto& held = held_.at(value);
  const auto at =
      std::find_if(held.begin(), held.end(), [&](const Held& h) { return h.version == version; });
  std::rotate(held.begin(), at, at + 1);
}

int Versions::carried(int value) const {
  const auto& held = of(value);
  const auto size = [&](const Held& h) {
    return average_elements(mesh_, h.layout, (*graph_)[value].sizes);
  };
  const auto rank = [&](const Held& h) {
    return std::pair(mesh_.parts(h.layout.pending), size(h));
  };
  const Held* best = &held[0];
  for (const Held& h : held) {
    if (size(h) <= size(held[0]) && rank(h) < rank(*best)) best = &h;
  }
  return best->version;
}

}  // namespace myriad
