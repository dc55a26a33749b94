// Rounds of routed rows where a token's choices on one node go together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "ir/nodes.h"

namespace myriad {

// An owner of experts takes at most `bound` rows in a round. Tokens come in order. All choices of a
// token on one node run in the same round, so that the token is sent to that node once: in the
// node's current round if every owner has room for them, else in the next. Choices are split only
// if they alone would fill more than a round of one owner; the lowering chooses `bound` so that
// this cannot happen.
class NodeRounds {
 public:
  static size_t state_size(const OwnerNodes& nodes) {
    return static_cast<size_t>(2 * nodes.owners);
  }
  // state: of that size, any content.
  NodeRounds(int64_t experts, const OwnerNodes& nodes, int64_t bound, std::span<int64_t> state)
      : experts_(experts),
        nodes_(nodes),
        bound_(bound),
        taken_(state.first(static_cast<size_t>(nodes.owners))),
        running_(state.subspan(static_cast<size_t>(nodes.owners))) {
    std::fill(state.begin(), state.end(), 0);
  }

  // The next token: calls to(j, round) for each of its choices but negative ones.
  template <class F>
  void token(std::span<const int32_t> chosen, F&& to) {
    for (size_t j = 0; j < chosen.size(); ++j) {
      if (chosen[j] < 0 || seen(chosen, j)) continue;
      const int64_t node = node_of(chosen[j]);
      if (!fits(chosen, node)) advance(node);
      for (size_t i = j; i < chosen.size(); ++i) {
        if (chosen[i] < 0 || node_of(chosen[i]) != node) continue;
        int64_t& taken = taken_[static_cast<size_t>(owner_of(chosen[i]))];
        if (bound_ > 0 && taken == bound_) advance(node);
        ++taken;
        to(i, running_[static_cast<size_t>(node)]);
      }
    }
  }
  int64_t rounds() const { return 1 + *std::max_element(running_.begin(), running_.end()); }

 private:
  int64_t owner_of(int64_t expert) const { return nodes_.owner_of_expert(expert, experts_); }
  int64_t node_of(int64_t expert) const { return nodes_.node_of_expert(expert, experts_); }
  bool seen(std::span<const int32_t> chosen, size_t j) const {
    return std::any_of(chosen.begin(), chosen.begin() + static_cast<int64_t>(j),
                       [&](int32_t e) { return e >= 0 && node_of(e) == node_of(chosen[j]); });
  }
  bool fits(std::span<const int32_t> chosen, int64_t node) const {
    return bound_ <= 0 || std::all_of(chosen.begin(), chosen.end(), [&](int32_t e) {
             if (e < 0 || node_of(e) != node) return true;
             const int64_t owner = owner_of(e);
             const auto wanted = std::count_if(chosen.begin(), chosen.end(), [&](int32_t other) {
               return other >= 0 && owner_of(other) == owner;
             });
             return taken_[static_cast<size_t>(owner)] + wanted <= bound_;
           });
  }
  void advance(int64_t node) {
    const auto first = taken_.begin() + nodes_.first_owner(node),
               last = taken_.begin() + nodes_.first_owner(node + 1);
    if (std::all_of(first, last, [](int64_t n) { return n == 0; })) return;
    ++running_[static_cast<size_t>(node)];
    std::fill(first, last, 0);
  }

  int64_t experts_;
  OwnerNodes nodes_;
  int64_t bound_;
  std::span<int64_t> taken_, running_;  // rows of an owner in its running round; that of a node
};

}  // namespace myriad
