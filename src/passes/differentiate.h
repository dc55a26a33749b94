// The backward body of a forward body, before anything is laid out: collectives need no gradient
// rules.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ir/pieces.h"

namespace myriad {

struct Seed {
  int value;     // output of the forward body
  int gradient;  // value that holds its gradient
};

// received: inputs whose gradients "d.NAME" are outputs. Gradients of parameters read are added to
// their "g:" states. Forward values that it reads are its inputs, but what is made from state alone
// (a read, a cast of it) is made again.
Body differentiate(Graph& graph, const Body& forward, const std::vector<Seed>& seeds,
                   const std::vector<int>& received);

// Makes piece.backward: seeds "d.y" for "y" and "inv_n" for "loss"; receives "x".
void differentiate(Piece& piece);

// Clones forward ops into the backward body before their first use, so that only the inputs of the
// forward body and `kept` values are kept. A clone has its original's values: it is laid out alike
// and gives the same bits.
Body recompute(const Body& forward, const Body& backward, const std::set<int>& kept = {});

// Outputs of matrix products and of attention, dear to make again unlike what is made from them,
// and what a router chose, which is chosen once and told.
std::set<int> dear_outputs(const Body& body);

// Values a body reads but does not make, in order of first use.
std::vector<int> inputs_of(const Body& body);

}  // namespace myriad
