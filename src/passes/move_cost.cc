#include "passes/move_cost.h"

#include "base/error.h"

namespace myriad {

Shape shape_of(const Value& value) {
  return {value.sizes, value.dtype == DType::exact, value.density};
}

size_t MoveCosts::KeyHash::operator()(const Key& k) const {
  const LayoutHash hash;
  return (hash(k.from) * 31 + hash(k.to)) * 31 + static_cast<size_t>(k.shape);
}

int MoveCosts::intern(const Shape& shape) {
  const auto [at, fresh] = numbers_.try_emplace(shape, static_cast<int>(shapes_.size()));
  if (fresh) shapes_.push_back(shape);
  return at->second;
}

MoveCost MoveCosts::operator()(const Mesh& mesh, const Layout& from, const Layout& to, int shape) {
  // A partial maximum can be finalized, but it can never be read as a sum, nor a sum as a maximum.
  if (from.max && !to.max && (from.pending & to.pending)) return {kNever, 0};
  if (!from.max && to.max) return {kNever, 0};
  if (from == to) return {0, 0};
  const auto [at, fresh] = costs_.try_emplace({from, to, shape});
  if (!fresh) return at->second;
  const Shape& s = shapes_[static_cast<size_t>(shape)];
  const double weight = s.exact ? static_cast<double>(sizeof(ExactSum)) : 4;
  MoveCost c;
  Layout now = from;
  for (const MoveStep& step : reshard(from, to)) {
    c.bytes +=
        mesh.price(step.atoms) * weight * s.density * elements_sent(mesh, step, now, s.sizes);
    c.messages += sends(step.what);
    now = step.after;
  }
  at->second = c;
  return c;
}

}  // namespace myriad
