// UTF-8 texts through ICU. Texts may hold bytes that are not UTF-8: such stretches stay as they are
// where not said otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace myriad {

enum class NormalForm { none, nfc, nfd, nfkc, nfkd };

// Characters newer than Unicode 9 stay as they are, as in Hugging Face's tokenizers.
std::string normalized(std::string_view text, NormalForm form);

// Each maximal part of an ill-formed character becomes U+FFFD (Unicode's recommended practice, and
// that of Rust and Python).
std::string replace_ill_formed(std::string_view bytes);

// The offset of the first ill-formed character; npos: the bytes are UTF-8.
size_t ill_formed_at(std::string_view bytes);

// Length of the text without the beginning of a character at its end that further bytes may
// complete.
size_t whole_characters(std::string_view bytes);

bool is_white_space(int32_t code_point);
bool is_word_character(int32_t code_point);  // \w of Unicode's regular expressions

}  // namespace myriad
