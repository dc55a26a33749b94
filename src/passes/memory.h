// Lifetimes to arena offsets: where everything a rank holds lies, for the whole step, before
// anything runs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ir/local.h"
#include "ir/program.h"

namespace myriad {

// Scratch bytes that an op's kernel asks for on local label sizes (kernels/kernel.h; none for a
// machine that only prices).
using ScratchBytes = std::function<size_t(const Op& op, const LabelSizes& local, DType real)>;

// Bytes of an element of a value; state: the letter of the state that holds it ("pmvgs"), 0: none.
// Default: of its dtype. A machine that only prices may plan for types that nothing here computes
// in.
using ElementBytes = std::function<int64_t(const Value& value, char state)>;

MemoryPlan plan_memory(const Program& program, int rank, const ScratchBytes& scratch,
                       const ElementBytes& element_bytes = {});

// Elements that the plan allows a version of a body; of routed rows as many as its box can hold, at
// most `bound` for each owner whose experts it covers.
int64_t version_elements(const Mesh& mesh, const LoweredBody& body, int version, int rank);
// The sizes of an op's labels on a rank (ir/local.h); of one on routed rows (see works_on_rows):
// one expert, one row, as many positions as the plan allows rows.
LabelSizes planned_labels(const Mesh& mesh, const LoweredBody& body, const Step& step, int rank);

// Versions that take no memory of their own: what is read shows the state, and what is written at
// once may be made in it. By version: index into body.states, or -1.
std::vector<int> shown_states(const LoweredBody& body);

}  // namespace myriad
