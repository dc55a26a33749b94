// Ops on single elements by their definitions. Each is a function of one number: what the op makes
// of the element x or, for a gradient, the slope there (at x, or at the output y). map() and
// map_grad() make kernels of them, which compute in double and round once to the type of the
// output. A further op of the kind is a function here and a line in kernels/table.cc.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/call.h"

namespace myriad::ref {

inline double recip(double x) { return 1 / x; }
inline double log(double x) { return std::log(x); }

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double sigmoid_grad(double y) { return y * (1 - y); }

inline double silu(double x) { return x * sigmoid(x); }
inline double silu_grad(double x) {
  const double s = sigmoid(x);
  return s * (1 + x * (1 - s));
}

// GELU's tanh form (Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2): 0.5 (1 + tanh(u)) is
// the logistic of 2 u, u = sqrt(2 / pi) (x + kCube x^3).
constexpr double kTwoRoot = 2 * 0.79788456080286535588, kCube = 0.044715;
inline double gelu_gate(double x) { return sigmoid(kTwoRoot * (x + kCube * x * x * x)); }
inline double gelu(double x) { return x * gelu_gate(x); }
inline double gelu_grad(double x) {
  const double s = gelu_gate(x), z = std::clamp(x, -100.0, 100.0);  // beyond, s (1 - s) is 0
  return s + z * s * (1 - s) * kTwoRoot * (1 + 3 * kCube * z * z);
}

// x ... -> ...: sets out[i] = f(x[i]).
template <class F>
void map_by(const KernelCall& call, F f) {
  begin(call);
  by_real(call.outs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = call.ins[0].as<T>();
    T* y = call.outs[0].as<T>();
    const int64_t n = call.outs[0].elements();
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(f(static_cast<double>(x[i])));
  });
}
template <double (*f)(double)>
void map(const KernelCall& call) {
  map_by(call, f);
}

// x ... (or y ...), dy ... -> dx ...: sets dx[i] = dy[i] slope(x[i]).
template <double (*slope)(double)>
void map_grad(const KernelCall& call) {
  begin(call);
  by_real(call.outs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = call.ins[0].as<T>();
    const T* dy = call.ins[1].as<T>();
    T* dx = call.outs[0].as<T>();
    const int64_t n = call.outs[0].elements();
    for (int64_t i = 0; i < n; ++i) {
      dx[i] = static_cast<T>(static_cast<double>(dy[i]) * slope(static_cast<double>(x[i])));
    }
  });
}

}  // namespace myriad::ref
