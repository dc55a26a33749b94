#include "fuzz/mutate.h"

#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/env.h"
#include "data/packed.h"

namespace {

const std::vector<std::string> kTexts = {"0",
                                         "-1",
                                         "1",
                                         "2147483648",
                                         "9223372036854775807",
                                         "9223372036854775808",
                                         "18446744073709551615",
                                         "1e308",
                                         "1e-308",
                                         "0.5",
                                         "null",
                                         "true",
                                         "~",
                                         "[]",
                                         "{}",
                                         "[[]]",
                                         "\"\"",
                                         "\"a\"",
                                         "-",
                                         ":",
                                         ",",
                                         "\n",
                                         "\n  ",
                                         "\\u0000",
                                         "\\ud800",
                                         "\xff",
                                         "\xc3\xa9",
                                         "&a",
                                         "*a",
                                         "!!int",
                                         "<<",
                                         "{",
                                         "}",
                                         "[",
                                         "]",
                                         "\"",
                                         "#",
                                         "'",
                                         "F32",
                                         "I64",
                                         "NaN"};

size_t below(std::mt19937_64& random, size_t n) { return n == 0 ? 0 : random() % n; }

// A place and a length within the text, mostly short.
std::pair<size_t, size_t> stretch(const std::string& text, std::mt19937_64& random) {
  const size_t at = below(random, text.size() + 1);
  const size_t most = std::min<size_t>(text.size() - at, random() % 8 == 0 ? 4096 : 16);
  return {at, below(random, most + 1)};
}

// The stretch of digits around or after a place.
void replace_number(std::string& text, std::mt19937_64& random) {
  const auto digit = [&](size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  size_t begin = below(random, text.size());
  while (begin < text.size() && !digit(begin)) ++begin;
  while (begin > 0 && digit(begin - 1)) --begin;
  size_t end = begin;
  while (digit(end)) ++end;
  text.replace(begin, end - begin, kTexts[below(random, kTexts.size())]);
}

void replace_word(std::string& bytes, std::mt19937_64& random) {
  const uint64_t words[] = {0,
                            1,
                            ~uint64_t{0},
                            uint64_t{1} << 63,
                            uint64_t{1} << 62,
                            (uint64_t{1} << 60) - 1,
                            uint64_t{1} << 32,
                            bytes.size(),
                            bytes.size() - 8,
                            random()};
  const size_t size = random() % 2 ? 8 : 4;
  if (bytes.size() < size) return;
  size_t at = below(random, bytes.size() - size + 1);
  if (random() % 2) at = std::min<size_t>(at, 128);  // headers
  if (random() % 2) at = at / size * size;
  uint64_t word = words[below(random, std::size(words))];
  if (random() % 3 == 0) {  // near what it was
    uint64_t was = 0;
    std::memcpy(&was, bytes.data() + at, size);
    word = was + random() % 5 - 2;
  }
  std::memcpy(bytes.data() + at, &word, size);
}

void change(std::string& bytes, const std::vector<std::string>& seeds, std::mt19937_64& random) {
  const auto [at, n] = stretch(bytes, random);
  switch (random() % 10) {
    case 0:
      if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
      return;
    case 1:
      if (at < bytes.size()) bytes[at] = static_cast<char>(random());
      return;
    case 2:
      bytes.erase(at, n);
      return;
    case 3:
      bytes.insert(at, bytes.substr(at, n));
      return;
    case 4: {
      const std::string& other = seeds[below(random, seeds.size())];
      const auto [from, count] = stretch(other, random);
      bytes.replace(at, n, other.substr(from, count));
      return;
    }
    case 5:
      bytes.insert(at, kTexts[below(random, kTexts.size())]);
      return;
    case 6:
    case 7:
      return replace_number(bytes, random);
    case 8:
      return replace_word(bytes, random);
    case 9:
      if (random() % 4 == 0) bytes.resize(at);
      return;
  }
}

}  // namespace

std::string mutated(const std::vector<std::string>& seeds, std::mt19937_64& random) {
  std::string bytes = seeds[below(random, seeds.size())];
  do change(bytes, seeds, random);
  while (random() % 3 == 0);
  return bytes;
}

void sign_packed(std::string& bytes) {
  myriad::PackedHeader header;
  if (bytes.size() < sizeof header) return;
  std::memcpy(&header, bytes.data(), sizeof header);
  const uint64_t checksums =
      sizeof header + (4 * header.tokens + 7) / 8 * 8 + 16 * (header.documents + 1);
  const size_t block = size_t{1} << 20;
  if (checksums > sizeof header && checksums < bytes.size()) {
    for (size_t begin = sizeof header, k = 0; begin < checksums; begin += block, ++k) {
      const uint64_t sum =
          XXH3_64bits(bytes.data() + begin, std::min<size_t>(block, checksums - begin));
      if (checksums + 8 * k + 8 <= bytes.size())
        std::memcpy(bytes.data() + checksums + 8 * k, &sum, 8);
    }
    header.checksums_hash = XXH3_64bits(bytes.data() + checksums, bytes.size() - checksums);
  }
  header.header_hash = XXH3_64bits(&header, offsetof(myriad::PackedHeader, header_hash));
  std::memcpy(bytes.data(), &header, sizeof header);
}

void sign_manifest(std::string& bytes) {
  nlohmann::ordered_json j = nlohmann::ordered_json::parse(bytes, nullptr, false);
  if (!j.is_object()) return;
  j.erase("xxh3");
  const auto text = [&] { return j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace); };
  j["xxh3"] = myriad::checksum_of(text());
  bytes = text() + "\n";
}
