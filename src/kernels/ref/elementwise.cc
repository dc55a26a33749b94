// Ops on single elements that are more than a function of one number (elementwise.h has those).
#include "kernels/ref/elementwise.h"

#include "kernels/ref/ref.h"

namespace myriad::ref {

void add(const KernelCall& call) {
  begin(call);
  by_real(call.outs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    T* y = call.outs[0].as<T>();
    const int64_t n = call.outs[0].elements();
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (const Tensor& x : call.ins) sum += static_cast<double>(x.as<T>()[i]);
      y[i] = static_cast<T>(sum);
    }
  });
}

void cast(const KernelCall& call) {
  begin(call);
  by_reals(call.ins[0].dtype, call.outs[0].dtype, [&](auto from, auto to) {
    using T = decltype(to);
    const auto* x = call.ins[0].as<decltype(from)>();
    const int64_t n = call.outs[0].elements();
    for (int64_t i = 0; i < n; ++i) call.outs[0].as<T>()[i] = static_cast<T>(x[i]);
  });
}

void rsqrt(const KernelCall& call) {
  const double a = call.op->attrs.a, b = call.op->attrs.b;
  map_by(call, [=](double x) { return 1 / std::sqrt(a * x + b); });
}

}  // namespace myriad::ref
