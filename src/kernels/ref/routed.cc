// Ops between tokens "bs..." and routed rows "ebs...", one row at a time, in the order of the rows.
// Read kernels/rows.h first.
#include <algorithm>
#include <vector>

#include "kernels/call.h"
#include "kernels/ref/ref.h"
#include "kernels/rows.h"

namespace myriad::ref {

namespace {

// Returns which of its token's choices is the expert of row i.
int64_t choice_of(const KernelCall& call, const TokensOfRows& token, int64_t i) {
  const int64_t k = call.ins[1].size[2], e = call.e.lo + call.rows->e[i];
  const int32_t* chosen = call.ins[1].as<int32_t>() + token(i) * k;
  for (int64_t j = 0; j < k; ++j) {
    if (chosen[j] == e) return j;
  }
  CHECK(false, "row {}: expert {} is not among its token's choices", i, e);
}

template <class T, class Sum>
void add_rows(const KernelCall& call, const TokensOfRows& token, const T* x, Sum* sums) {
  for (int64_t i = 0; i < call.rows->n; ++i) {
    Sum* to = sums + token(i) * token.width;
    for (int64_t d = 0; d < token.width; ++d)
      to[d] = static_cast<Sum>(to[d] + x[i * token.width + d]);
  }
}

// The sums are kept in float and rounded once.
void combine_narrow(const KernelCall& call, const TokensOfRows& token) {
  const Tensor& y = call.outs[0];
  std::vector<float> sums(static_cast<size_t>(y.elements()), 0.0f);
  add_rows(call, token, call.ins[0].as<Bf16>(), sums.data());
  std::transform(sums.begin(), sums.end(), y.as<Bf16>(), [](float x) { return Bf16(x); });
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
  if (y.dtype == DType::bf16) return combine_narrow(call, token);
  by_real(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(y.as<T>(), y.elements(), T(0));
    add_rows(call, token, call.ins[0].as<T>(), y.as<T>());
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
