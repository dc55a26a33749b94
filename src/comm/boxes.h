// Several views of equal sizes walked together: how parts are copied and reduced. Made once;
// walking allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace myriad {

struct Boxes {
  using Strides = std::array<int64_t, 8>;

  // Views of equal sizes, dims of size 1 aside. The first is the destination.
  explicit Boxes(const std::vector<View>& views);

  int64_t rows = 1, run = 1;  // rows of `run` elements that are adjacent in every view
  int dims = 0;               // of the rows
  Strides size{};
  std::vector<std::byte*> data;  // by view
  std::vector<Strides> stride;   // by view, in elements
};

// Destination = the second view.
void copy(const Boxes& boxes, DType dtype);

// Destination = ((view 1 + view 2) + view 3) ..., or their maximum; of nothing if there is but the
// destination. It may lie over any one of the others at the same addresses. Exact sums end
// normalised.
void reduce(const Boxes& boxes, DType dtype, Reduction reduction);

}  // namespace myriad
