#include "cluster/load.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace myriad {

namespace {

constexpr uint64_t kSeed = 1;

std::vector<double> zipf(double s, int64_t experts) {
  std::vector<std::pair<uint64_t, int64_t>> order;  // the most loved first
  for (int64_t e = 0; e < experts; ++e)
    order.emplace_back(random_bits(kSeed, stream_of("zipf"), static_cast<uint64_t>(e)), e);
  std::sort(order.begin(), order.end());
  std::vector<double> share(static_cast<size_t>(experts));
  double sum = 0;
  for (int64_t i = 0; i < experts; ++i)
    sum += share[static_cast<size_t>(order[static_cast<size_t>(i)].second)] =
        std::pow(static_cast<double>(i + 1), -s);
  for (double& x : share) x /= sum;
  return share;
}

}  // namespace

ExpertLoad parse_load(const std::string& text, int64_t experts) {
  if (text.empty() || text == "even") return {};
  double s = 0;
  if (text.starts_with("zipf:")) {
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data() + 5, end, s);
    if (error == std::errc() && at == end && s >= 0 && std::isfinite(s))
      return {{zipf(s, experts)}};
  }
  throw Error(
      fmt::format("an expert load cannot be \"{}\"", text), "--experts",
      "legal: even; zipf:S with S of 0 or more, for instance zipf:1; a folder of a run with "
      "experts");
}

double busiest(const ExpertLoad& load, int64_t experts, int64_t owners) {
  const auto most = [&](auto share_of) {
    double most = 0;
    for (int64_t p = 0; p < owners; ++p)
      most = std::max(most, share_of(p * experts / owners, (p + 1) * experts / owners));
    return most * static_cast<double>(owners);
  };
  if (load.even()) {
    return most([&](int64_t lo, int64_t hi) {
      return static_cast<double>(hi - lo) / static_cast<double>(experts);
    });
  }
  double sum = 0;
  for (const std::vector<double>& layer : load.layers) {
    CHECK(static_cast<int64_t>(layer.size()) == experts, "{} shares for {} experts", layer.size(),
          experts);
    sum += most([&](int64_t lo, int64_t hi) {
      return std::accumulate(layer.begin() + lo, layer.begin() + hi, 0.0);
    });
  }
  return sum / static_cast<double>(load.layers.size());
}

}  // namespace myriad
