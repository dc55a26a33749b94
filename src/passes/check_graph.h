// The checker of graphs: what holds of bodies before they are laid out.
#pragma once

#include "ir/pieces.h"

namespace myriad {

// Proves, or throws Error naming body and op:
//
// - a body makes each value once, and before it reads it; the values that it hands out are made in
//   it or read by it;
// - operands and results of an op have the labels, sizes and types that the op says;
// - reads and writes, and no other ops, name a state.
void check_graph(const Graph& graph, const Body& body);

// All bodies of a piece.
void check_graph(const Piece& piece);

}  // namespace myriad
