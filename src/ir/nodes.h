// Which node an owner of experts lies on.
#pragma once

#include <algorithm>
#include <cstdint>

namespace myriad {

// The ranks that share the experts are `owners` x `inner` (ep x etp) neighbours, the first of them
// rank `first`; owner p has inner ones from first + p inner on and counts to the node of the first
// of these. Node of rank r: r / ranks_per_node (0: one node holds all). Nodes of such a group are
// numbered from 0; they need not hold as many owners each, nor as many in each group.
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
  int64_t first_owner(int64_t node) const {  // `owners` from the number of nodes on
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
