// Ranks that cannot be told apart by what a simulation sees: local sizes, place in the network, and
// those they meet in collectives.
#pragma once

#include <vector>

#include "cluster/cost.h"
#include "ir/program.h"

namespace myriad {

// A column is a place within a stage; the ranks of a column differ in the stage only. Columns of
// one colour have equal local sizes in all bodies, equally placed groups, and in each group that a
// collective joins as many members of each colour.
struct Classes {
  int stages = 1, columns = 1;
  std::vector<int> colour;  // by column
  std::vector<std::vector<int>>
      priced;  // by colour: columns to look at; one, or a sample of which the dearest counts
  std::vector<int> size;        // by colour: columns
  std::vector<AtomList> atoms;  // of all collectives
  // By atoms, then stage and colour: the kind of group it is in. Kinds list their colours.
  std::vector<std::vector<int>> kind_of;
  std::vector<std::vector<std::vector<int>>> kinds;
  std::vector<bool> over_stages;    // by atoms: the group spans stages
  std::vector<GroupShape> uniform;  // by atoms, of all groups; ranks 0: they lie differently
  std::vector<std::vector<int>> shape_of_rank;  // by atoms, where not uniform: index into shapes
  std::vector<GroupShape> shapes;
  bool exact =
      true;  // false: too many colours, ranks of a stage taken as one, at the sizes of the largest
  int colours() const { return static_cast<int>(priced.size()); }
  int kind(int list, int stage, int colour) const {
    return kind_of[list][static_cast<size_t>(stage * colours() + colour)];
  }
  int rank(int stage, int column) const { return stage * columns + column; }
  int index_of(AtomList list) const;
  const GroupShape& shape(int atoms, int rank) const;
};

Classes classes_of(const Program& program, const Cluster& cluster, int64_t most_colours);

}  // namespace myriad
