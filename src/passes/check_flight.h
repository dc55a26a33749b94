// The checker's part for collectives that start and finish apart (ir/flight.h).
#pragma once

#include "ir/program.h"

namespace myriad {

// Of one body. A finish takes a version in flight and makes the readable version of the same value
// and layout, for the same kind and atoms as its start. Nothing else takes a version in flight, and
// each one is finished once, or is one output. Nothing writes to a state that a transfer in flight
// sends from. A loop body finishes in a round what it starts there, and routed rows are finished in
// their body. Throws Error.
void check_flight(const LoweredBody& body);

// Of a whole program, of checked bodies whose actions have as many buffers as their bodies. A
// buffer in flight comes from one run and is an input of one later run, of a version that is in
// flight too and finished by the same kind of move over the same atoms; it is never sent, fed or
// received; none is left at the end of the step. While it is in flight, nothing writes to a state
// that it sends from. Throws Error.
void check_flight(const Program& program);

}  // namespace myriad
