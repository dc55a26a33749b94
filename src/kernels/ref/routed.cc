// Between tokens "bs..." and routed rows "ebs...".
#include "kernels/call.h"
#include "kernels/ref/ref.h"
#include "kernels/rows.h"

namespace myriad::ref {

namespace {

// Which choice of a token is the expert of row i.
int64_t choice_of(const KernelCall& call, const TokensOfRows& token, int64_t i) {
  const int64_t k = call.ins[1].size[2], e = call.e.lo + call.rows->e[i];
  const int32_t* chosen = call.ins[1].as<int32_t>() + token(i) * k;
  for (int64_t j = 0; j < k; ++j) {
    if (chosen[j] == e) return j;
  }
  CHECK(false, "row {}: expert {} is not among its token's choices", i, e);
}

}  // namespace

void dispatch(const KernelCall& call) {
  begin(call);
  const TokensOfRows token(call, call.ins[0]);
  by_real(call.outs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < call.rows->n; ++i) {
      std::copy_n(call.ins[0].as<T>() + token(i) * token.width, token.width,
                  call.outs[0].as<T>() + i * token.width);
    }
  });
}

void combine(const KernelCall& call) {
  begin(call);
  const Tensor& y = call.outs[0];
  const TokensOfRows token(call, y);
  by_real(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(y.as<T>(), y.elements(), T(0));
    for (int64_t i = 0; i < call.rows->n; ++i) {
      const T* from = call.ins[0].as<T>() + i * token.width;
      T* to = y.as<T>() + token(i) * token.width;
      for (int64_t d = 0; d < token.width; ++d) to[d] += from[d];
    }
  });
}

void dispatch_w(const KernelCall& call) {
  begin(call);
  const TokensOfRows token(call, call.ins[0]), choices(call, call.ins[1]);
  by_real(call.outs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < call.rows->n; ++i) {
      call.outs[0].as<T>()[i] =
          call.ins[0].as<T>()[token(i) * token.width + choice_of(call, choices, i)];
    }
  });
}

void collect_w(const KernelCall& call) {
  begin(call);
  const Tensor& y = call.outs[0];
  const TokensOfRows token(call, y), choices(call, call.ins[1]);
  by_real(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(y.as<T>(), y.elements(), T(0));
    for (int64_t i = 0; i < call.rows->n; ++i) {
      y.as<T>()[token(i) * token.width + choice_of(call, choices, i)] = call.ins[0].as<T>()[i];
    }
  });
}

}  // namespace myriad::ref
