#include "machine/exec_finite.h"

#include <algorithm>
#include <cmath>

namespace myriad {

namespace {

bool all_finite(const Tensor& t) {
  const int64_t n = t.elements();
  const auto finite = [n](const auto* x) {
    return std::all_of(x, x + n, [](auto e) { return std::isfinite(e); });
  };
  if (t.dtype == DType::f32) return finite(t.as<float>());
  if (t.dtype == DType::f64) return finite(t.as<double>());
  if (t.dtype == DType::bf16)
    return std::all_of(t.as<Bf16>(), t.as<Bf16>() + n, [](float e) { return std::isfinite(e); });
  if (t.dtype == DType::exact)
    return std::all_of(t.as<ExactSum>(), t.as<ExactSum>() + n,
                       [](const ExactSum& e) { return e.bad == 0; });
  return true;
}

std::array<int, 4> order(const At& at, const Action& a, const LoweredBody& body) {
  if (is_optimizer(body.role)) return {2, 0, at.action, at.step};
  const bool backward = is_backward(body.role);
  return {backward, a.micro_batch, backward ? -a.unit : a.unit, at.step};
}

}  // namespace

BadTensor not_finite(const At& at, const Action& a, const LoweredBody& body, const Op& op,
                     std::span<const Tensor> outs) {
  for (size_t o = 0; o < outs.size(); ++o) {
    const bool may =
        op.row == Row::max_stop || (op.row == Row::attention && o == 1) || op.row == Row::clip;
    if (may || all_finite(outs[o])) continue;
    return {fmt::format("{} ({}, unit {}, micro-batch {})", show(op, *body.graph), body.name,
                        a.unit, a.micro_batch),
            at.rank, order(at, a, body)};
  }
  return {};
}

}  // namespace myriad
