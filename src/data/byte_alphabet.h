// GPT-2's alphabet, which gives every byte a printable character: printable Latin-1 bytes stand for
// themselves, the others for U+0100 and on, in order. Vocabularies of byte-level tokenizers are
// spelled in it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace myriad {

std::string spelled(std::string_view bytes);

// The bytes of a spelling; none if a character is not of the alphabet.
std::optional<std::string> unspelled(std::string_view text);

}  // namespace myriad
