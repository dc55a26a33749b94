// Digests whose value depends on the order of what goes in: two walks are compared by them without
// keeping a log.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/random.h"

namespace myriad {

constexpr uint64_t digest(uint64_t so_far, uint64_t word) {
  uint64_t x = (so_far ^ word) * 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  return x * 0xbf58476d1ce4e5b9u + so_far;
}

// One more transfer that a rank sends in: kind, group in mesh order, bytes.
inline uint64_t digest_transfer(uint64_t so_far, std::string_view kind, std::span<const int> group,
                                int64_t bytes) {
  uint64_t x = digest(so_far, stream_of(kind));
  for (int rank : group) x = digest(x, static_cast<uint64_t>(rank));
  return digest(x, static_cast<uint64_t>(bytes));
}

}  // namespace myriad
