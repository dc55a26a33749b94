// What this machine's matrix products reach, the yardstick of model FLOPs utilisation.
#pragma once

#include <string>

#include "base/pool.h"

namespace myriad {

struct MatrixPeak {
  double flops_per_s = 0;
  std::string library;  // that reached it
};

// The better of oneDNN and OpenBLAS: products of 2048 x 2048 x 2048 in f32 on all workers of the
// pool, the best of those done in about `seconds`; in less than 0.1 s, which is too short for
// these, of 256 x 256 x 256. Sets the process's matrix library back to automatic.
MatrixPeak measure_matrix_peak(Pool& pool, double seconds = 1);

// The same of bf16 with sums in f32, FLOPs a second; 0 where the processor does not multiply bf16.
double measure_bf16_peak(Pool& pool, double seconds = 1);

}  // namespace myriad
