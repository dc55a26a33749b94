// Routed rows that cross nodes once. A token sends one row, the lead, to each node that owns
// experts it chose; spread copies the lead to the rows of all the token's choices on that node, and
// collapse adds these rows up again. Leads finds the lead of a row by binary search, for both lists
// are ordered by (e, b, s). Read kernels/rows.h and ir/nodes.h first.
#include <algorithm>
#include <tuple>
#include <type_traits>
#include <vector>

#include "kernels/call.h"
#include "kernels/ref/ref.h"
#include "kernels/rows.h"

namespace myriad::ref {

namespace {

int64_t node_of(const KernelCall& call, int64_t expert) {
  return call.nodes.node_of_expert(expert, call.op->attrs.experts);
}

// Finds for a row of the choices the row of its lead.
class Leads {
 public:
  explicit Leads(const KernelCall& call)
      : call_(call), token_(call, call.ins[1]), choices_(call.ins[1].size[2]) {}

  int64_t operator()(int64_t row) const {
    const RowSet &rows = *call_.rows, &leads = *call_.leads;
    const int64_t node = node_of(call_, call_.e.lo + rows.e[row]);
    const int32_t* chosen = call_.ins[1].as<int32_t>() + token_(row) * choices_;
    const int32_t* lead = std::find_if(
        chosen, chosen + choices_, [&](int32_t e) { return e >= 0 && node_of(call_, e) == node; });
    CHECK(lead != chosen + choices_, "row {}: its token has no lead on node {}", row, node);
    const auto e = static_cast<int32_t>(*lead - call_.e.lo);
    const auto first = std::lower_bound(leads.e, leads.e + leads.n, e) - leads.e;
    const auto last = std::upper_bound(leads.e + first, leads.e + leads.n, e) - leads.e;
    for (int64_t lo = first, hi = last; lo < hi;) {  // ordered by (b, s)
      const int64_t i = (lo + hi) / 2;
      const auto here = std::pair(leads.b[i], leads.s[i]),
                 want = std::pair(rows.b[row], rows.s[row]);
      if (here == want) return i;
      (here < want ? lo : hi) = here < want ? i + 1 : i;
    }
    CHECK(false, "row {}: its lead {} is not here", row, *lead);
  }

 private:
  const KernelCall& call_;
  const TokensOfRows token_;
  const int64_t choices_;
};

int64_t width_of(const Tensor& rows) {
  int64_t n = 1;
  for (int d = 1; d < rows.dims; ++d) n *= rows.size[d];
  return n;
}

}  // namespace

void leads(const KernelCall& call) {
  begin(call);
  const Attrs& a = call.op->attrs;
  const int64_t k = call.ins[0].size[2], tokens = call.ins[0].size[0] * call.ins[0].size[1];
  for (int64_t t = 0; t < tokens; ++t) {
    const int32_t* chosen = call.ins[0].as<int32_t>() + t * k;
    for (int64_t j = 0; j < k; ++j) {
      const int32_t e = chosen[j];
      CHECK(e < a.experts, "choice {} of {} experts", e, a.experts);
      const bool first =
          e >= 0 && std::none_of(chosen, chosen + k, [&](int32_t other) {
            return other >= 0 && other < e && node_of(call, other) == node_of(call, e);
          });
      call.outs[0].as<int32_t>()[t * k + j] = first ? e : -1;
    }
  }
}

void spread(const KernelCall& call) {
  begin(call);
  const Leads lead(call);
  const int64_t width = width_of(call.outs[0]);
  by_real(call.outs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < call.rows->n; ++i)
      std::copy_n(call.ins[0].as<T>() + lead(i) * width, width, call.outs[0].as<T>() + i * width);
  });
}

void collapse(const KernelCall& call) {
  begin(call);
  const Leads lead(call);
  const int64_t width = width_of(call.outs[0]);
  by_real(call.outs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    using Sum = std::conditional_t<std::is_same_v<T, Bf16>, float, T>;  // bf16: rounded once
    std::vector<Sum> sums(static_cast<size_t>(call.outs[0].elements()), Sum(0));
    for (int64_t i = 0; i < call.rows->n; ++i) {
      const T* from = call.ins[0].as<T>() + i * width;
      Sum* to = sums.data() + lead(i) * width;
      for (int64_t d = 0; d < width; ++d) to[d] += static_cast<Sum>(from[d]);
    }
    std::transform(sums.begin(), sums.end(), call.outs[0].as<T>(), [](Sum x) { return T(x); });
  });
}

}  // namespace myriad::ref
