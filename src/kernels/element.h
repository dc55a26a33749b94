// One element of a tensor of any dtype, in double: for what is not in a hurry.
#pragma once

#include "base/bf16.h"
#include "base/exact_sum.h"
#include "kernels/kernel.h"

namespace myriad {

inline double element(const Tensor& t, int64_t i) {
  switch (t.dtype) {
    case DType::f32:
      return t.as<float>()[i];
    case DType::f64:
      return t.as<double>()[i];
    case DType::bf16:
      return static_cast<double>(t.as<Bf16>()[i]);
    case DType::i32:
      return t.as<int32_t>()[i];
    case DType::exact:
      return t.as<ExactSum>()[i].value();
  }
  return 0;
}

inline void set_element(const Tensor& t, int64_t i, double x) {
  switch (t.dtype) {
    case DType::f32:
      t.as<float>()[i] = static_cast<float>(x);
      break;
    case DType::f64:
      t.as<double>()[i] = x;
      break;
    case DType::bf16:
      t.as<Bf16>()[i] = Bf16(x);
      break;
    case DType::i32:
      t.as<int32_t>()[i] = static_cast<int32_t>(x);
      break;
    case DType::exact:
      t.as<ExactSum>()[i].clear();
      t.as<ExactSum>()[i].add(x);
      break;
  }
}

}  // namespace myriad
