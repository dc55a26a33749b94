#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace myriad {

std::vector<int64_t> whole_weights(std::span<const double> weights, const std::string& where) {
  constexpr double kUnits = 1e6;  // six decimals
  std::vector<int64_t> whole;
  for (const double w : weights) {
    const double units = w * kUnits;
    if (!(w > 0 && w <= 1e6) || std::abs(units - std::round(units)) > 1e-6 * std::max(1.0, w)) {
      throw Error(
          fmt::format("weight {} must be above 0, at most 1000000, with at most six decimals", w),
          where, fmt::format("nearest: {:g}", std::clamp(std::round(units), 1.0, 1e12) / kUnits));
    }
    whole.push_back(std::llround(units));
  }
  const int64_t divisor =
      std::reduce(whole.begin(), whole.end(), int64_t{0}, std::gcd<int64_t, int64_t>);
  int64_t sum = 0;
  for (int64_t& w : whole) sum += w /= divisor;
  if (sum > kMostPeriod) {
    throw Error(fmt::format("the weights are as {}: whole numbers of sum {}, above {}",
                            fmt::join(whole, " : "), sum, kMostPeriod),
                where, "weights with fewer digits");
  }
  return whole;
}

Mixture::Mixture(std::vector<int64_t> weights) : weights_(std::move(weights)) {
  const int64_t period = std::reduce(weights_.begin(), weights_.end());
  CHECK(!weights_.empty() && *std::min_element(weights_.begin(), weights_.end()) > 0 &&
            period <= kMostPeriod,
        "{} weights of sum {}", weights_.size(), period);
  std::vector<int64_t> taken(weights_.size());
  table_.reserve(static_cast<size_t>(period));
  for (int64_t n = 0; n < period; ++n) {
    int next = -1;
    int64_t earliest = 0;
    for (int s = 0; s < sources(); ++s) {
      const int64_t w = weights_[static_cast<size_t>(s)], k = taken[static_cast<size_t>(s)];
      if (k * period >= (n + 1) * w) continue;  // would be a whole row ahead
      const int64_t deadline = ((k + 1) * period + w - 1) / w;
      if (next >= 0 && deadline >= earliest) continue;
      next = s;
      earliest = deadline;
    }
    CHECK(next >= 0, "row {} of {}", n, period);
    table_.push_back({next, taken[static_cast<size_t>(next)]++});
  }
}

Mixture::Place Mixture::at(int64_t index) const {
  CHECK(index >= 0, "row {}", index);
  Place place = table_[static_cast<size_t>(index % period())];
  place.row += index / period() * weights_[static_cast<size_t>(place.source)];
  return place;
}

}  // namespace myriad
