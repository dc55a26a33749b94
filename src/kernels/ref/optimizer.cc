#include <cmath>
#include <limits>

#include "kernels/call.h"
#include "kernels/ref/ref.h"

namespace myriad::ref {

void sum_exact(const KernelCall& call) {
  begin(call);
  ExactSum& sum = *call.outs[0].as<ExactSum>();
  sum.clear();
  const int64_t n = call.ins[0].elements();
  by_real(call.ins[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < n; ++i) {
      double p = 1;
      for (const Tensor& x : call.ins) p *= static_cast<double>(x.as<T>()[i]);
      sum.add(p);
    }
  });
  sum.normalise();
}

void clip(const KernelCall& call) {
  begin(call);
  const double norm = std::sqrt(call.ins[0].as<ExactSum>()->value()), live = scalar(call.ins[1]);
  double factor = 1;
  if (live == 0 || !std::isfinite(norm)) {
    factor = std::numeric_limits<double>::quiet_NaN();
  } else if (call.op->attrs.max != 0) {
    factor = std::min(1.0, call.op->attrs.max / (norm + 1e-6));
  }
  *call.outs[0].as<double>() = factor;
  *call.outs[1].as<double>() = norm;
}

void settle_exact(const KernelCall& call) {
  begin(call);
  *call.outs[0].as<double>() = call.ins[0].as<ExactSum>()->value();
}

void adamw(const KernelCall& call) {
  begin(call);
  const Attrs& a = call.op->attrs;
  const double factor = scalar(call.ins[4]), lr = scalar(call.ins[5]);
  const double left1 = scalar(call.ins[6]), left2 = scalar(call.ins[7]);
  by_real(call.outs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *p = call.ins[0].as<T>(), *g = call.ins[1].as<T>();
    const T *m = call.ins[2].as<T>(), *v = call.ins[3].as<T>();
    T *new_p = call.outs[0].as<T>(), *new_m = call.outs[1].as<T>(), *new_v = call.outs[2].as<T>();
    const int64_t n = call.outs[0].elements();
    for (int64_t i = 0; i < n; ++i) {
      if (std::isnan(factor)) {
        new_p[i] = p[i], new_m[i] = m[i], new_v[i] = v[i];
        continue;
      }
      const double gi = g[i] * factor, pi = p[i];
      const double mi = a.beta1 * m[i] + (1 - a.beta1) * gi;
      const double vi = a.beta2 * v[i] + (1 - a.beta2) * gi * gi;
      new_p[i] = static_cast<T>(pi * (1 - lr * a.decay) -
                                lr / left1 * mi / (std::sqrt(vi) / std::sqrt(left2) + a.eps));
      new_m[i] = static_cast<T>(mi);
      new_v[i] = static_cast<T>(vi);
    }
  });
}

}  // namespace myriad::ref
