// Ops on single elements by their definitions, each computed in double and rounded once to the type
// of the output. map1() and map_grad() walk the elements, and the functions below say what is
// computed of each.
#include <algorithm>
#include <cmath>

#include "kernels/call.h"
#include "kernels/ref/ref.h"

namespace myriad::ref {

namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// GELU's tanh form (Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2): 0.5 (1 + tanh(u)) is
// the logistic of 2 u, u = sqrt(2 / pi) (x + kCube x^3).
constexpr double kTwoRoot = 2 * 0.79788456080286535588, kCube = 0.044715;
double gelu_gate(double x) { return logistic(kTwoRoot * (x + kCube * x * x * x)); }

// Sets dx[i] = dy[i] slope(x[i]), computed in double.
template <class F>
void map_grad(const KernelCall& call, F slope) {
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

// Sets out[i] = f(x[i]), computed in double.
template <class F>
void map1(const KernelCall& call, F f) {
  begin(call);
  by_real(call.outs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = call.ins[0].as<T>();
    T* y = call.outs[0].as<T>();
    const int64_t n = call.outs[0].elements();
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(f(static_cast<double>(x[i])));
  });
}

}  // namespace

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
  map1(call, [=](double x) { return 1 / std::sqrt(a * x + b); });
}

void recip(const KernelCall& call) {
  map1(call, [](double x) { return 1 / x; });
}

void log(const KernelCall& call) {
  map1(call, [](double x) { return std::log(x); });
}

void silu(const KernelCall& call) {
  map1(call, [](double x) { return x * logistic(x); });
}

void silu_grad(const KernelCall& call) {
  map_grad(call, [](double x) {
    const double s = logistic(x);
    return s * (1 + x * (1 - s));
  });
}

void gelu(const KernelCall& call) {
  map1(call, [](double x) { return x * gelu_gate(x); });
}

void gelu_grad(const KernelCall& call) {
  map_grad(call, [](double x) {
    const double s = gelu_gate(x), z = std::clamp(x, -100.0, 100.0);  // beyond, s (1 - s) is 0
    return s + z * s * (1 - s) * kTwoRoot * (1 + 3 * kCube * z * z);
  });
}

}  // namespace myriad::ref
