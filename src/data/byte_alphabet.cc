#include "data/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace myriad {

namespace {

struct Alphabet {
  std::array<std::string, 256> of_byte;
  std::array<int, 0x200> byte_of;  // by code point; -1: none

  Alphabet() {
    byte_of.fill(-1);
    int others = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const int c = printable ? byte : 0x100 + others++;
      byte_of[c] = byte;
      if (c < 0x80) {
        of_byte[byte] = {static_cast<char>(c)};
      } else {
        of_byte[byte] = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
      }
    }
  }
};

const Alphabet kAlphabet;

}  // namespace

std::string spelled(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += kAlphabet.of_byte[static_cast<uint8_t>(byte)];
  return text;
}

std::optional<std::string> unspelled(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const int first = static_cast<uint8_t>(text[i]);
    int c = first;
    if (first >= 0x80) {  // two bytes, or a character beyond the alphabet
      if (first < 0xC2 || first > 0xC5 || i + 1 == text.size()) return std::nullopt;
      c = (first & 0x1F) << 6 | (static_cast<uint8_t>(text[++i]) & 0x3F);
    }
    if (kAlphabet.byte_of[c] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte_of[c]);
  }
  return bytes;
}

}  // namespace myriad
