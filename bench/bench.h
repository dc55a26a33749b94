// What the benches share: made-up rows of the full size, and medians.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "train/job.h"

namespace myriad {

inline Batch random_batch(int64_t rows, int64_t sequence, int64_t vocabulary) {
  Batch b{.rows = rows, .sequence = sequence};
  uint64_t x = 1;
  for (int64_t i = 0; i < rows * sequence; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    b.ids.push_back(static_cast<int32_t>((x >> 33) % static_cast<uint64_t>(vocabulary)));
    b.targets.push_back(static_cast<int32_t>((x >> 23) % static_cast<uint64_t>(vocabulary)));
    b.positions.push_back(static_cast<int32_t>(i % sequence));
    b.documents.push_back(0);
  }
  return b;
}

inline double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<long>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

}  // namespace myriad
