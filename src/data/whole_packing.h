// Documents into rows without cutting: best-fit decreasing (Ding et al., "Fewer truncations improve
// language modeling", ICML 2024). A document longer than a row is cut into whole rows and a rest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace myriad {

// Where pieces of these lengths lie, in rows of `length`. Which document a piece is of makes no
// difference, so one packing serves every epoch: it depends on the lengths alone.
struct WholePacking {
  std::vector<int64_t> row_begins;  // rows() + 1 indices into pieces
  std::vector<int64_t> pieces;      // of each row: indices into the lengths
  int64_t rows() const { return static_cast<int64_t>(row_begins.size()) - 1; }
};

// lengths: 1 to `length` each, the longest first.
WholePacking pack_whole(std::span<const int64_t> lengths, int64_t length);

}  // namespace myriad
