// Element types of values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/exact_sum.h"

namespace myriad {

// exact: an order-free accumulator (base/exact_sum.h) that holds a sum to the last bit.
enum class DType : uint8_t { f32, f64, i32, exact };

constexpr size_t size_of(DType t) {
  switch (t) {
    case DType::f32:
      return 4;
    case DType::f64:
      return 8;
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
    case DType::i32:
      return "i32";
    case DType::exact:
      return "exact";
  }
  return "?";
}

}  // namespace myriad
