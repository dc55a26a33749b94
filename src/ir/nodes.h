// On which node an owner of experts is.
#pragma once

#include <algorithm>
#include <cstdint>

namespace myriad {

// Experts are shared by `owners` x `inner` (ep x etp) consecutive ranks, of which rank `first` is
// the first. Owner p is made of the `inner` ranks that begin at first + p * inner. Rank r is on
// node r / ranks_per_node (0: one node holds all ranks), and an owner counts as being on the node
// of its first rank. The nodes of such a group are numbered from 0. They need not hold equally many
// owners, and two groups may be divided among nodes in different ways.
struct OwnerNodes {
  int64_t owners = 1, inner = 1, ranks_per_node = 0, first = 0;

  // The group of `rank`.
  OwnerNodes around(int64_t rank) const {
    return {owners, inner, ranks_per_node, rank - rank % (owners * inner)};
  }
  int64_t owner_of_rank(int64_t rank) const { return (rank - first) / inner; }

  int64_t node_of(int64_t owner) const {
    if (ranks_per_node == 0) return 0;
    if (inner >= ranks_per_node) return owner;
    return (first + owner * inner) / ranks_per_node - first / ranks_per_node;
  }
  int64_t nodes() const { return node_of(owners - 1) + 1; }
  // For a node beyond the last: `owners`.
  int64_t first_owner(int64_t node) const {
    if (ranks_per_node == 0) return node == 0 ? 0 : owners;
    if (inner >= ranks_per_node) return std::min(node, owners);
    const int64_t at = (first / ranks_per_node + node) * ranks_per_node - first;
    return std::clamp<int64_t>((at + inner - 1) / inner, 0, owners);
  }
  // Owner p has experts [p E / owners, (p + 1) E / owners).
  int64_t owner_of_expert(int64_t expert, int64_t experts) const {
    return ((expert + 1) * owners - 1) / experts;
  }
  int64_t node_of_expert(int64_t expert, int64_t experts) const {
    return node_of(owner_of_expert(expert, experts));
  }
  bool operator==(const OwnerNodes&) const = default;
};

}  // namespace myriad
