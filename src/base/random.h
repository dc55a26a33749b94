// Random numbers as pure functions of (seed, stream, index): no state, so that initialising then
// cutting equals cutting then initialising, and resuming needs nothing. Philox4x32-10 (Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): key = seed, counter = (index,
// stream).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace myriad {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A stream for each name (of a parameter, a use). The same on every machine, for good.
uint64_t stream_of(std::string_view name);

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index);

// In [0, 1), a multiple of 2^-53.
double uniform(uint64_t seed, uint64_t stream, uint64_t index);

// Mean 0, variance 1 (Box-Muller on one index). Its last bit is that of the C library's log and
// cos.
double normal(uint64_t seed, uint64_t stream, uint64_t index);

// The place of index in a pseudo-random permutation of [0, n) that is chosen by (seed, stream);
// index < n. A Feistel network on the least number of bits, walked until it lands in [0, n): fewer
// than two rounds of it on average.
uint64_t permuted(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);

}  // namespace myriad
