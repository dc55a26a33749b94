// What a rank holds of a value as a tensor: type, local sizes and where they begin; no memory yet.
#pragma once

#include "ir/local.h"
#include "kernels/kernel.h"

namespace myriad {

inline Tensor local_tensor(const Mesh& mesh, std::span<const int64_t> sizes, const Layout& layout,
                           int rank, DType dtype = DType::f32) {
  Tensor t{.dtype = dtype, .dims = layout.dims};
  const LocalBox box = local_box(mesh, layout, sizes, rank);
  for (int d = 0; d < layout.dims; ++d) {
    t.size[d] = box[d].size();
    t.lo[d] = box[d].lo;
  }
  return t;
}

}  // namespace myriad
