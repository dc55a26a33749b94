// Which source each row comes from: exact proportions, a pure function of the row's index.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace myriad {

// Weights as the least whole numbers in the same proportion: {0.7, 0.3} is {7, 3}. Throws Error
// naming `where` for a weight that is not above 0, has more than six decimals, or is above a
// million, and where the whole numbers sum to more than kMostPeriod.
inline constexpr int64_t kMostPeriod = int64_t{1} << 20;
std::vector<int64_t> whole_weights(std::span<const double> weights, const std::string& where);

// Of the first n rows, for every n and every source s of weight w(s) among the sum W:
//   | rows of s - n w(s) / W | < 1,
// and after each W rows the counts are exact. This is proportionate fairness on one processor
// (Baruah, Cohen, Plaxton, Varvel, "Proportionate progress", 1996): row k of a source may come no
// earlier than it would put the source a whole row ahead, and no later than it would leave it one
// behind; of those that may come, the one with the earliest deadline comes. Immutable.
class Mixture {
 public:
  // At least one weight, all above 0, of sum W at most kMostPeriod.
  explicit Mixture(std::vector<int64_t> weights);

  struct Place {
    int source;
    int64_t row;  // of the source, from 0
    bool operator==(const Place&) const = default;
  };
  Place at(int64_t index) const;  // index >= 0

  int sources() const { return static_cast<int>(weights_.size()); }
  const std::vector<int64_t>& weights() const { return weights_; }
  int64_t period() const { return static_cast<int64_t>(table_.size()); }  // W

 private:
  std::vector<int64_t> weights_;
  std::vector<Place> table_;  // of one period
};

}  // namespace myriad
