#include "base/random.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace myriad {

namespace {

uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

std::array<uint32_t, 4> draw(uint64_t seed, uint64_t stream, uint64_t index) {
  return philox({low(index), high(index), low(stream), high(stream)}, {low(seed), high(seed)});
}

uint64_t joined(uint32_t low, uint32_t high) { return (uint64_t{high} << 32) | low; }

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * c[2];
    c = {high(b) ^ c[1] ^ key[0], low(b), high(a) ^ c[3] ^ key[1], low(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return c;
}

uint64_t stream_of(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto r = draw(seed, stream, index);
  return joined(r[0], r[1]);
}

double uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<double>(random_bits(seed, stream, index) >> 11) * 0x1p-53;
}

double normal(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto r = draw(seed, stream, index);
  const double u = static_cast<double>((joined(r[0], r[1]) >> 11) + 1) * 0x1p-53;  // in (0, 1]
  const double v = static_cast<double>(joined(r[2], r[3]) >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

uint64_t permuted(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n) {
  CHECK(index < n, "index is {} and n is {}", index, n);
  constexpr uint64_t kOther = 0x9e3779b97f4a7c15;  // not the key of random_bits
  const int bits = std::bit_width(n - 1), right_bits = bits - bits / 2;
  const uint32_t rounds = bits < 16 ? 32 : 8;  // halves of few bits mix slowly
  const uint64_t masks[2] = {(uint64_t{1} << right_bits) - 1, (uint64_t{1} << (bits / 2)) - 1};
  do {
    uint64_t half[2] = {index & masks[0], index >> right_bits};
    for (uint32_t round = 0; round < rounds; ++round) {
      const int to = round % 2;
      const uint64_t mix = draw(seed ^ kOther, stream, joined(low(half[1 - to]), round))[0];
      half[to] ^= mix & masks[to];
    }
    index = (half[1] << right_bits) | half[0];
  } while (index >= n);
  return index;
}

}  // namespace myriad
