// Element types of values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bf16.h"
#include "base/exact_sum.h"

namespace myriad {

// bf16: storage only (base/bf16.h); kernels compute in f32 or wider and round once.
// exact: an order-free accumulator (base/exact_sum.h) that holds a sum to the last bit.
enum class DType : uint8_t { f32, f64, bf16, i32, exact };

constexpr bool is_real(DType t) { return t == DType::f32 || t == DType::f64 || t == DType::bf16; }

constexpr size_t size_of(DType t) {
  switch (t) {
    case DType::f32:
      return 4;
    case DType::f64:
      return 8;
    case DType::bf16:
      return 2;
    case DType::i32:
      return 4;
    case DType::exact:
      return sizeof(ExactSum);
  }
  return 0;
}

constexpr const char* name_of(DType t) {
  switch (t) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::bf16:
      return "bf16";
    case DType::i32:
      return "i32";
    case DType::exact:
      return "exact";
  }
  return "?";
}

}  // namespace myriad
