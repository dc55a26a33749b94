// Which experts the tokens of a micro-batch chose, as recorded: what a walk that only counts needs
// to know about routed rows.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "ir/program.h"

namespace myriad {

struct Choices {
  int64_t rows = 0, sequence = 0, k = 0;
  std::vector<int32_t> expert;  // [rows, sequence, k], -1: none
};
using Routing = std::map<std::pair<int, int>, Choices>;  // (unit, micro-batch)

// The rounds in which the pairs of one part of the tokens run: the same rule as Row::window.
class RoundsOf {
 public:
  RoundsOf(const Choices& choices, int64_t experts, const OwnerNodes& nodes, int64_t bound, Range b,
           Range s);
  int rounds() const { return rounds_; }
  // Pairs of a round in a box of global ranges; of them those that lead on their node.
  int64_t count(int round, bool leads, Range e, Range b, Range s) const;

 private:
  struct Pair {
    int32_t expert, row, position, round;
    bool leads;
  };
  std::vector<Pair> pairs_;
  int rounds_ = 1;
};

}  // namespace myriad
