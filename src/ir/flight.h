// Collectives in two halves. `start` posts what this rank contributes and makes a version in
// flight, which has the layout after the move; `finish` waits for the others and makes the readable
// version of the same value and layout, in the same memory. Between the two a rank may do other
// work, in the same run or in later actions (the version in flight is then an output of one body
// and an input of another), as long as nothing reads the destination or overwrites the source.
// passes/check_flight.h holds the rules.
#pragma once

#include <vector>

#include "ir/program.h"

namespace myriad {

// Steps that carry `what` and `atoms`.
constexpr bool is_move(StepKind k) {
  return k == StepKind::move || k == StepKind::start || k == StepKind::finish;
}

// Whether a collective begins here, so that its bytes and messages are counted and priced here: a
// start, or a move that sends and blocks.
constexpr bool begins_collective(const Step& s) {
  return s.kind == StepKind::start || (s.kind == StepKind::move && sends(s.what));
}

// Whether a collective ends here, so that the rank waits for its group.
constexpr bool ends_collective(const Step& s) {
  return s.kind == StepKind::finish || (s.kind == StepKind::move && sends(s.what));
}

// By version: the version that its start sends from; -1: no start of this body made it.
std::vector<int> sources_in_flight(const LoweredBody& body);

// Of one stage, by flat position (machine/walker.h) of a step: of a finish, the position of its
// start; -1 for all others. A program that check_program accepts has one for each.
std::vector<int> starts_of(const Program& program, int stage);

}  // namespace myriad
