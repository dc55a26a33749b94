// Plain moves between tensors of one type and shape, for the executor's state; fixed blocks, any
// number of workers.
#pragma once

#include "kernels/kernel.h"

namespace myriad {

// dst = src; any dtype.
void copy(const Tensor& dst, const Tensor& src, Meter& meter, Pool* pool = nullptr);
// dst += src; a real type (bf16: rounded) or exact (normalised). Counts no FLOPs but those of one
// addition an element.
void accumulate(const Tensor& dst, const Tensor& src, Meter& meter, Pool* pool = nullptr);

}  // namespace myriad
