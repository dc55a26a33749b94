// Makes the backward body of a forward body. This happens before anything is laid out, so
// collectives need no gradient rules.
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

// received: the inputs whose gradients "d.NAME" become outputs of the backward body. The gradients
// of parameters that the forward body reads are added to their "g:" states. Forward values that the
// backward body reads are its inputs, except that values made from state alone (a read, a cast of
// it) are recomputed.
Body differentiate(Graph& graph, const Body& forward, const std::vector<Seed>& seeds,
                   const std::vector<int>& received);

// Makes piece.backward. Its seeds are "d.y" for "y", "inv_n" for "loss", and those of the piece; it
// hands over the gradient of "x".
void differentiate(Piece& piece);

// Clones forward ops into the backward body before their first use, so that only the inputs of the
// forward body and the values in `kept` must be stored. A clone names the same values as its
// original, by which the sharder lays it out alike; so it gives the same bits.
Body recompute(const Body& forward, const Body& backward, const std::set<int>& kept = {});

// The values that selective recompute keeps: the outputs of matrix products and of attention, which
// cost much to recompute, and the choices of a router, which are made once.
std::set<int> dear_outputs(const Body& body);

// The values that a body reads but does not make, in order of first use.
std::vector<int> inputs_of(const Body& body);

}  // namespace myriad
