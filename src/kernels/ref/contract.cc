// A contract by its definition: for every element of the output one sum, in double, over all points
// of the contracted labels. The loops come from kernels/loops.h.
#include "kernels/call.h"
#include "kernels/loops.h"
#include "kernels/ref/ref.h"

namespace myriad::ref {

namespace {

// An operand of any real type.
struct AnyReal {
  const Tensor* tensor = nullptr;
  double operator[](int64_t i) const { return real_at(*tensor, i); }
};

// The product of the N operands at the given offsets. X is a pointer or AnyReal.
template <int N, class X>
double product(const X* x, const Offsets& at) {
  double p = 1;
  for (int k = 0; k < N; ++k) p *= static_cast<double>(x[k][at[k]]);
  return p;
}

// The sum of products over the contracted loops, of which the last is innermost.
template <int N, class X>
double sum_of_products(const LoopNest& nest, const X* x, const Offsets& base) {
  if (nest.sums == 0) return product<N>(x, base);
  const Loop& inner = nest.sum[nest.sums - 1];
  const auto outer = nest.sum_loops().first(nest.sums - 1);
  double sum = 0;
  const int64_t rows = points(outer);
  Walk walk(outer);
  for (int64_t i = 0; i < rows; ++i, walk.next()) {
    Offsets at = base;
    for (int k = 0; k < N; ++k) at[k] += walk.at()[k];
    for (int64_t j = 0; j < inner.size; ++j) {
      sum += product<N>(x, at);
      for (int k = 0; k < N; ++k) at[k] += inner.stride[k];
    }
  }
  return sum;
}

template <int N, class X, class T>
void run(const LoopNest& nest, const X* x, double scale, T* y) {
  const int64_t n = points(nest.out_loops());
  Walk walk(nest.out_loops());
  for (int64_t i = 0; i < n; ++i, walk.next()) {
    y[walk.at()[kOut]] = static_cast<T>(scale * sum_of_products<N>(nest, x, walk.at()));
  }
}

template <class X, class T>
void run_all(const LoopNest& nest, const X* x, double scale, T* y) {
  switch (nest.operands) {
    case 0:
      return run<0>(nest, x, scale, y);
    case 1:
      return run<1>(nest, x, scale, y);
    case 2:
      return run<2>(nest, x, scale, y);
    case 3:
      return run<3>(nest, x, scale, y);
    default:
      return run<4>(nest, x, scale, y);
  }
}

template <class T>
void run_typed(const KernelCall& call, double scale) {
  const LoopNest nest = make_nest(*call.op, call.local);
  const T* same[kMaxOperands] = {};
  AnyReal any[kMaxOperands];
  bool all_same = true;
  for (int k = 0; k < nest.operands; ++k) {
    const Tensor& t = call.ins[nest.operand[k]];
    all_same &= t.dtype == call.outs[0].dtype;
    same[k] = t.as<T>();
    any[k].tensor = &t;
  }
  for (size_t i = 0; i < call.ins.size(); ++i) {
    if (call.ins[i].dims == 0) scale *= scalar(call.ins[i]);
  }
  T* y = call.outs[0].as<T>();
  return all_same ? run_all(nest, same, scale, y) : run_all(nest, any, scale, y);
}

}  // namespace

void contract(const KernelCall& call) {
  begin(call);
  by_real(call.outs[0].dtype,
          [&](auto zero) { run_typed<decltype(zero)>(call, call.op->attrs.scale); });
}

void broadcast(const KernelCall& call) {
  begin(call);
  by_real(call.outs[0].dtype, [&](auto zero) { run_typed<decltype(zero)>(call, 1); });
}

}  // namespace myriad::ref
