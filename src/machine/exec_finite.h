// The hunt for the first value that is not finite, in a replay of a step.
#pragma once

#include <span>

#include "kernels/kernel.h"
#include "machine/exec.h"

namespace myriad {

// The first result of an op just run that holds something not finite though it must not; no name if
// there is none.
BadTensor not_finite(const At& at, const Action& a, const LoweredBody& body, const Op& op,
                     std::span<const Tensor> outs);

}  // namespace myriad
