// An exact, order-free sum of doubles: a fixed-point number wide enough for every term, so that any
// grouping and order of additions gives the same bits. Norms, losses and counts are summed in it.
// Terms are cut to multiples of 2^-512 one by one (each cut depends on its term alone); a term of
// 2^511 or more, or a non-finite one, makes the sum non-finite for good. Up to 2^30 terms or sums
// may be added between normalisations.
#pragma once

#include <cstdint>

namespace myriad {

struct ExactSum {
  static constexpr int kLimbs = 34;  // each carries 32 bits, the last ones take carries and sign
  int64_t limb[kLimbs];
  int64_t bad;    // count of terms that were not finite or too large
  int64_t added;  // terms since the last normalisation

  void clear() { *this = ExactSum{}; }
  void add(double x);
  void add(const ExactSum& other);
  void normalise();      // carries settled: equal sums have equal bits
  double value() const;  // correctly rounded to within one unit in the last place; NaN if bad
};

}  // namespace myriad
