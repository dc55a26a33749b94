#include "kernels/rows.h"

#include <numeric>

namespace myriad {

namespace {

void check_covers(const Tensor& dense, Range b, Range s) {
  CHECK(dense.dims >= 2, "{} dims", dense.dims);
  if (b.size() == 0 || s.size() == 0) return;
  const auto inside = [&](Range r, int d) {
    return r.lo >= dense.lo[d] && r.hi <= dense.lo[d] + dense.size[d];
  };
  CHECK(inside(b, 0) && inside(s, 1),
        "rows of b [{}, {}) s [{}, {}) in a tensor from b {} + {}, s {} + {}", b.lo, b.hi, s.lo,
        s.hi, dense.lo[0], dense.size[0], dense.lo[1], dense.size[1]);
}

// Calls f(local e, b, s) for each pair of the box, in the order (b, s).
template <class F>
void each_pair(const Tensor& choices, Range e, Range b, Range s, F f) {
  check_covers(choices, b, s);
  const int64_t k = choices.size[2], first = b.lo - choices.lo[0], from = s.lo - choices.lo[1];
  const auto experts = static_cast<uint64_t>(e.size());
  for (int64_t ib = 0; ib < b.size(); ++ib) {
    const int32_t* chosen = choices.as<int32_t>() + ((first + ib) * choices.size[1] + from) * k;
    for (int64_t is = 0; is < s.size(); ++is, chosen += k) {
      for (int64_t j = 0; j < k; ++j) {
        // Below e.lo (or negative: no choice) it wraps to a large number.
        const auto x = static_cast<uint64_t>(chosen[j] - e.lo);
        if (x < experts) f(static_cast<int64_t>(x), ib, is);
      }
    }
  }
}

}  // namespace

void enumerate_rows(const Tensor& choices, Range e, Range b, Range s, std::vector<int32_t>& row_e,
                    std::vector<int32_t>& row_b, std::vector<int32_t>& row_s) {
  std::vector<int64_t> next(static_cast<size_t>(e.size()) + 1);
  each_pair(choices, e, b, s, [&](int64_t x, int64_t, int64_t) { ++next[x + 1]; });
  std::partial_sum(next.begin(), next.end(), next.begin());
  for (auto* list : {&row_e, &row_b, &row_s}) list->resize(static_cast<size_t>(next.back()));
  each_pair(choices, e, b, s, [&](int64_t x, int64_t ib, int64_t is) {
    const int64_t i = next[x]++;
    row_e[i] = static_cast<int32_t>(x);
    row_b[i] = static_cast<int32_t>(ib);
    row_s[i] = static_cast<int32_t>(is);
  });
}

int64_t count_rows(const Tensor& choices, Range e, Range b, Range s) {
  int64_t n = 0;
  each_pair(choices, e, b, s, [&](int64_t, int64_t, int64_t) { ++n; });
  return n;
}

TokensOfRows::TokensOfRows(const KernelCall& call, const Tensor& dense)
    : width(1), s_size_(dense.size[1]), b_(call.rows->b), s_(call.rows->s) {
  if (call.rows->n > 0) check_covers(dense, call.b, call.s);
  for (int d = 2; d < dense.dims; ++d) width *= dense.size[d];
  first_ = (call.b.lo - dense.lo[0]) * s_size_ + call.s.lo - dense.lo[1];
}

}  // namespace myriad
