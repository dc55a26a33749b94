#include "machine/routing.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>

#include "ir/rounds.h"

namespace myriad {

RoundsOf::RoundsOf(const Choices& choices, int64_t experts, const OwnerNodes& nodes, int64_t bound,
                   Range rows, Range positions) {
  const bool together = nodes.ranks_per_node > 0;
  std::vector<int64_t> state(NodeRounds::state_size(nodes));
  NodeRounds by_node(experts, nodes, bound, state);
  for (int64_t b = rows.lo; b < rows.hi; ++b) {
    for (int64_t s = positions.lo; s < positions.hi; ++s) {
      const std::span<const int32_t> chosen(
          choices.expert.data() + (b * choices.sequence + s) * choices.k,
          static_cast<size_t>(choices.k));
      by_node.token(chosen, [&](size_t j, int64_t round) {
        pairs_.push_back({chosen[j], static_cast<int32_t>(b), static_cast<int32_t>(s),
                          static_cast<int32_t>(round), false});
      });
    }
  }
  std::stable_sort(pairs_.begin(), pairs_.end(),
                   [](const Pair& a, const Pair& b) { return a.expert < b.expert; });
  int64_t owner = 0, place = 0, node = 0;
  std::set<std::array<int32_t, 3>> led;  // round, row, position on this node
  for (Pair& p : pairs_) {
    if (const int64_t mine = nodes.owner_of_expert(p.expert, experts); mine != owner) {
      owner = mine;
      place = 0;
    }
    if (!together) p.round = bound > 0 ? static_cast<int32_t>(place / bound) : 0;
    ++place;
    rounds_ = std::max(rounds_, p.round + 1);
    if (nodes.node_of(owner) != node) {
      node = nodes.node_of(owner);
      led.clear();
    }
    p.leads = led.insert({p.round, p.row, p.position}).second;
  }
}

int64_t RoundsOf::count(int round, bool leads, Range e, Range b, Range s) const {
  const auto in = [](Range r, int64_t x) { return x >= r.lo && x < r.hi; };
  const auto lo = std::partition_point(pairs_.begin(), pairs_.end(),
                                       [&](const Pair& p) { return p.expert < e.lo; });
  const auto hi =
      std::partition_point(lo, pairs_.end(), [&](const Pair& p) { return p.expert < e.hi; });
  return std::count_if(lo, hi, [&](const Pair& p) {
    return p.round == round && (p.leads || !leads) && in(b, p.row) && in(s, p.position);
  });
}

}  // namespace myriad
