#include "train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace myriad {

int32_t sample(std::span<const double> logits, const Sampling& s, uint64_t prompt,
               uint64_t position) {
  CHECK(!logits.empty());
  const auto best =
      static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (s.temperature == 0) return best;
  std::vector<int32_t> order(logits.size());  // likeliest first, ties by number
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  const size_t kept =
      s.top_k > 0 ? std::min<size_t>(order.size(), static_cast<size_t>(s.top_k)) : order.size();
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    likelier);
  std::vector<double> up_to(kept);
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    const double weight = std::exp((logits[order[i]] - logits[best]) / s.temperature);
    up_to[i] = sum += weight;
  }
  const auto end = std::lower_bound(up_to.begin(), up_to.end(), s.top_p * sum);
  const size_t n = std::min<size_t>(kept, static_cast<size_t>(end - up_to.begin()) + 1);
  const double at =
      uniform(s.seed, stream_of(fmt::format("generate {}", prompt)), position) * up_to[n - 1];
  const auto found =
      std::upper_bound(up_to.begin(), up_to.begin() + static_cast<std::ptrdiff_t>(n), at);
  return order[std::min<size_t>(n - 1, static_cast<size_t>(found - up_to.begin()))];
}

}  // namespace myriad
