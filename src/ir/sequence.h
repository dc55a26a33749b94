// The order of a row's tokens when several ranks share the sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace myriad {

// The row is divided into 2 cp chunks by the cut rule, and rank i along cp gets chunks i and
// 2 cp - 1 - i: one early chunk, whose causal attention is cheap, and one late chunk, whose
// attention is expensive, so that every rank has the same work. order[place] is the index in the
// row of the token at that place. Masks, RoPE and losses take positions and targets as values, so
// only what depends on the order of tokens needs to know it: Row::fits, and whoever reads a row as
// a whole. Chunks need not have the same size; the division of places among ranks may then differ
// by a token.
inline std::vector<int32_t> sequence_order(int64_t sequence, int64_t cp) {
  std::vector<int32_t> order;
  order.reserve(static_cast<size_t>(sequence));
  const int64_t n = cp > 1 ? 2 * cp : 1;
  const auto take = [&](int64_t chunk) {
    for (int64_t i = chunk * sequence / n; i < (chunk + 1) * sequence / n; ++i)
      order.push_back(static_cast<int32_t>(i));
  };
  for (int64_t i = 0; i < n / 2; ++i) {
    take(i);
    take(n - 1 - i);
  }
  if (n == 1) take(0);
  return order;
}

// Takes values [rows, sequence, width] by place and returns them in the order of the row.
template <class T>
std::vector<T> in_row_order(const std::vector<T>& values, int64_t rows, int64_t sequence,
                            int64_t cp) {
  if (cp == 1 || values.empty()) return values;
  const std::vector<int32_t> order = sequence_order(sequence, cp);
  const int64_t width = static_cast<int64_t>(values.size()) / (rows * sequence);
  std::vector<T> out(values.size());
  for (int64_t b = 0; b < rows; ++b) {
    for (int64_t place = 0; place < sequence; ++place) {
      std::copy_n(values.begin() + (b * sequence + place) * width, width,
                  out.begin() + (b * sequence + order[static_cast<size_t>(place)]) * width);
    }
  }
  return out;
}

}  // namespace myriad
