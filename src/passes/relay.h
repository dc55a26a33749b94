// Dispatch in two steps for layouts in which each token crosses to a node once.
#pragma once

#include "ir/pieces.h"
#include "ir/plan.h"

namespace myriad {

// Between tokens and the rows of all choices puts one row a token and node: dispatch becomes leads,
// dispatch ("xl") and spread, combine becomes collapse ("yl") and combine. Where those rows lie is
// for the rules to say. Before `differentiate`.
void relay(Piece& piece, const Plan& plan);

}  // namespace myriad
