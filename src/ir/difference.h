// Where two programs, or parts of them, differ. For tests.
#pragma once

#include <bit>
#include <string>

#include "base/error.h"
#include "ir/fields.h"

namespace myriad {

// Compares every field of the table (ir/fields.h), doubles bit by bit, and what pointers point to.
// Says the path to the first difference, as in ".bodies[1].ops[0].attrs.k"; empty if there is none.
template <class T>
std::string difference(const T& a, const T& b) {
  std::string out;
  if constexpr (HasFields<T>) {
    for_each_field<T>([&](auto field) {
      if (!out.empty()) return;
      out = difference(a.*field.at, b.*field.at);
      if (!out.empty()) out = fmt::format(".{}{}", field.name, out == " " ? "" : out);
    });
  } else if constexpr (requires { a.data(), a.size(), a[0]; }) {  // vectors, strings
    if (a.size() != b.size()) return fmt::format(": {} and {} items", a.size(), b.size());
    for (size_t i = 0; i < a.size() && out.empty(); ++i) {
      out = difference(a[i], b[i]);
      if (!out.empty()) out = fmt::format("[{}]{}", i, out == " " ? "" : out);
    }
  } else if constexpr (requires { a.get(), *a; }) {
    if (a && b) return difference(*a, *b);
    if (a || b) out = " ";
  } else if constexpr (std::is_same_v<T, double>) {
    if (std::bit_cast<uint64_t>(a) != std::bit_cast<uint64_t>(b)) out = " ";
  } else if (!(a == b)) {
    out = " ";
  }
  return out;
}

}  // namespace myriad
