// What one rank holds of a value and computes of an op. Whoever walks a program (executor, counter,
// simulator, memory plan) asks here, so that all of them agree to the last element.
#pragma once

#include <array>
#include <cstdint>

#include "ir/program.h"

namespace myriad {

// Ranks lie on nodes in order, ranks_per_node on each; 0: one node holds them all.
constexpr int64_t node_of_rank(int64_t rank, int64_t ranks_per_node) {
  return ranks_per_node == 0 ? 0 : rank / ranks_per_node;
}

// The ranges of a value's dims that a rank holds, one for each dim of the layout.
using LocalBox = std::array<Range, kMaxLayoutDims>;
LocalBox local_box(const Mesh& mesh, const Layout& layout, std::span<const int64_t> sizes,
                   int rank);

// Bytes of what a rank holds of a value.
int64_t local_bytes(const Mesh& mesh, const Value& value, const Layout& layout, int rank);

// The sizes of an op's labels on a rank, as a run step cuts them.
LabelSizes local_labels(const Mesh& mesh, const Op& op, const Step& step, int rank);

// The first version of routed rows (see ir/graph.h) that a step reads or else makes; -1 if it
// neither reads nor makes any.
int routed_version(const LoweredBody& body, const Step& step);

// Elements that a rank holds of each routed row: the product of the dims behind e, b and s.
int64_t row_elements(const Mesh& mesh, const Value& value, const Layout& layout, int rank);

// The sizes that a kernel sees of an op on routed rows, from those of local_labels: one expert, one
// row of tokens and as many positions as `elements` of the routed version make rows.
LabelSizes labels_on_rows(const Mesh& mesh, const LoweredBody& body, int routed, LabelSizes local,
                          int64_t elements, int rank);

}  // namespace myriad
