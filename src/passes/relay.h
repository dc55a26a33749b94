// Hierarchical dispatch: each token is sent to a node once, whatever the number of its experts
// there.
#pragma once

#include "ir/pieces.h"
#include "ir/plan.h"

namespace myriad {

// Replaces the dispatch of tokens to their experts by two steps. First a token is sent once to each
// node that holds at least one of its experts, to the rank of the lowest of these (its lead there);
// then the node's ranks spread it to the other experts on the node. The way back is the mirror
// image. In ops:
//   dispatch  becomes  leads, dispatch (which makes "xl") and spread;
//   combine   becomes  collapse (which makes "yl") and combine.
// The layouts of "xl" and "yl" are given by the rules (passes/strategy.cc). Runs before
// `differentiate`, which then finds the gradients of both steps by itself.
void relay(Piece& piece, const Plan& plan);

}  // namespace myriad
