// What it costs to bring a value from one layout to another, remembered across all the searches of
// a plan. A cost depends on the mesh, the two layouts and the shape of the value; nothing else.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <unordered_map>
#include <vector>

#include "ir/layout.h"

namespace myriad {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Ordered by bytes; the number of messages breaks ties.
struct MoveCost {
  double bytes = 0;  // that a rank sends on average, times the price of the dearest atom; kNever if
                     // the move is not legal
  int messages = 0;  // number of collectives
  auto operator<=>(const MoveCost&) const = default;
};

// The properties of a value that its moves are priced by. An element counts as four bytes whatever
// its type, so that the choice of precision does not change layouts; an exact sum counts in full.
struct Shape {
  Sizes sizes;
  bool exact = false;
  double density = 1;
  auto operator<=>(const Shape&) const = default;
};
Shape shape_of(const Value& value);

// All that is remembered belongs to one mesh: whoever owns the table passes the same mesh always.
class MoveCosts {
 public:
  // The number of a shape; equal shapes have equal numbers.
  int intern(const Shape& shape);
  MoveCost operator()(const Mesh& mesh, const Layout& from, const Layout& to, int shape);

 private:
  struct Key {
    Layout from, to;
    int shape;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const;
  };
  std::map<Shape, int> numbers_;
  std::vector<Shape> shapes_;  // by number
  std::unordered_map<Key, MoveCost, KeyHash> costs_;
};

}  // namespace myriad
