#include <cmath>
#include <limits>

#include "kernels/call.h"
#include "kernels/ref/ref.h"

namespace myriad::ref {

namespace {

// z has rows of length v; m (the row maxima) may be -inf where a row is empty or all -inf: those
// count as exp(-inf).
double shift(double m) { return m == -std::numeric_limits<double>::infinity() ? 0 : m; }

// Calls f(T(), U(), rows, v) for logits z "...v" of type T, where U is the type of `other`.
template <class F>
void by_rows(const KernelCall& call, const Tensor& other, F f) {
  begin(call);
  const Tensor& z = call.ins[0];
  const int64_t v = z.size[z.dims - 1];
  int64_t rows = 1;
  for (int d = 0; d + 1 < z.dims; ++d) rows *= z.size[d];
  by_reals(z.dtype, other.dtype, [&](auto of_z, auto of_other) { f(of_z, of_other, rows, v); });
}

}  // namespace

void max_stop(const KernelCall& call) {
  by_rows(call, call.outs[0], [&](auto of_z, auto of_m, int64_t rows, int64_t v) {
    using T = decltype(of_m);
    const auto* z = call.ins[0].as<decltype(of_z)>();
    for (int64_t i = 0; i < rows; ++i) {
      double m = -std::numeric_limits<double>::infinity();
      for (int64_t j = 0; j < v; ++j) m = std::max(m, static_cast<double>(z[i * v + j]));
      call.outs[0].as<T>()[i] = static_cast<T>(m);
    }
  });
}

void sum_exp(const KernelCall& call) {
  by_rows(call, call.ins[1], [&](auto of_z, auto of_m, int64_t rows, int64_t v) {
    using T = decltype(of_m);
    const auto* z = call.ins[0].as<decltype(of_z)>();
    for (int64_t i = 0; i < rows; ++i) {
      const double m = shift(call.ins[1].as<T>()[i]);
      double sum = 0;
      for (int64_t j = 0; j < v; ++j) sum += std::exp(static_cast<double>(z[i * v + j]) - m);
      call.outs[0].as<T>()[i] = static_cast<T>(sum);
    }
  });
}

void exp_scale(const KernelCall& call) {
  by_rows(call, call.ins[1], [&](auto of_z, auto of_m, int64_t rows, int64_t v) {
    using T = decltype(of_z);
    using U = decltype(of_m);
    const T* z = call.ins[0].as<T>();
    T* y = call.outs[0].as<T>();
    for (int64_t i = 0; i < rows; ++i) {
      const double m = shift(call.ins[1].as<U>()[i]), dy = call.ins[2].as<U>()[i];
      for (int64_t j = 0; j < v; ++j) {
        y[i * v + j] = static_cast<T>(std::exp(static_cast<double>(z[i * v + j]) - m) * dy);
      }
    }
  });
}

void valid(const KernelCall& call) {
  begin(call);
  by_real(call.outs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const int32_t* target = call.ins[0].as<int32_t>();
    const int64_t n = call.outs[0].elements();
    for (int64_t i = 0; i < n; ++i) call.outs[0].as<T>()[i] = target[i] >= 0 ? T(1) : T(0);
  });
}

}  // namespace myriad::ref
