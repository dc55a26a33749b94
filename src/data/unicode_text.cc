// Normalisation and UTF-8 checks on top of ICU. ICU is given well-formed text only: well_formed_end
// cuts any bytes into well-formed stretches and the ill-formed parts between them, and the
// functions differ in what they do with those parts. To agree with Hugging Face's tokenizers,
// normalized() leaves characters alone that are newer than the Unicode version of their tables, by
// means of a filtered normaliser. Text that the unfiltered one finds normalised already is copied:
// a part of normalised text is normalised as well, so the filter could change nothing. Read
// well_formed_end first.

#include "data/unicode_text.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/utf8.h>

#include <algorithm>

#include "base/error.h"

namespace myriad {

namespace {

// The end of the longest well-formed stretch from `begin`; `bad` gets the end of the ill-formed
// part after it.
size_t well_formed_end(std::string_view text, size_t begin, size_t& bad) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  for (size_t i = begin; i < text.size();) {
    if (bytes[i] < 0x80) {
      ++i;
      continue;
    }
    const int32_t length = static_cast<int32_t>(std::min<size_t>(4, text.size() - i));
    int32_t next = 0;
    UChar32 c;
    U8_NEXT(bytes + i, next, length, c);
    if (c < 0) {
      bad = i + static_cast<size_t>(next);
      return i;
    }
    i += static_cast<size_t>(next);
  }
  bad = text.size();
  return text.size();
}

const icu::Normalizer2& normalizer_of(NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* found = nullptr;
  if (form == NormalForm::nfc) found = icu::Normalizer2::getNFCInstance(status);
  if (form == NormalForm::nfd) found = icu::Normalizer2::getNFDInstance(status);
  if (form == NormalForm::nfkc) found = icu::Normalizer2::getNFKCInstance(status);
  if (form == NormalForm::nfkd) found = icu::Normalizer2::getNFKDInstance(status);
  CHECK(found && U_SUCCESS(status), "ICU: {}", u_errorName(status));
  return *found;
}

}  // namespace

std::string normalized(std::string_view text, NormalForm form) {
  std::string result;
  if (form == NormalForm::none) return result = text;
  static const icu::UnicodeSet known = [] {
    UErrorCode status = U_ZERO_ERROR;
    icu::UnicodeSet set(icu::UnicodeString("[[:age=9.0:]-[\\u0EBA]]"), status);
    CHECK(U_SUCCESS(status), "ICU: {}", u_errorName(status));
    return set.freeze(), set;
  }();
  const icu::Normalizer2& whole = normalizer_of(form);
  const icu::FilteredNormalizer2 normalizer(whole, known);
  for (size_t begin = 0; begin < text.size();) {
    size_t bad = 0;
    const size_t end = well_formed_end(text, begin, bad);
    CHECK(end - begin < (size_t{1} << 30), "a text of {} bytes", end - begin);
    const icu::StringPiece good(text.data() + begin, static_cast<int32_t>(end - begin));
    UErrorCode status = U_ZERO_ERROR;
    if (whole.isNormalizedUTF8(good, status)) {
      result.append(text.substr(begin, end - begin));
    } else {
      icu::StringByteSink<std::string> sink(&result);
      normalizer.normalizeUTF8(0, good, sink, nullptr, status);
    }
    CHECK(U_SUCCESS(status), "ICU: {}", u_errorName(status));
    result.append(text.substr(end, bad - end));
    begin = bad;
  }
  return result;
}

std::string replace_ill_formed(std::string_view bytes) {
  std::string result;
  for (size_t begin = 0; begin < bytes.size();) {
    size_t bad = 0;
    const size_t end = well_formed_end(bytes, begin, bad);
    result.append(bytes.substr(begin, end - begin));
    if (bad > end) result += "\xEF\xBF\xBD";
    begin = bad;
  }
  return result;
}

size_t ill_formed_at(std::string_view bytes) {
  size_t bad = 0;
  const size_t end = well_formed_end(bytes, 0, bad);
  return end == bytes.size() ? std::string_view::npos : end;
}

size_t whole_characters(std::string_view bytes) {
  const auto continues = [&](size_t i) {
    return (static_cast<unsigned char>(bytes[i]) & 0xC0) == 0x80;
  };
  for (size_t back = 1; back <= std::min<size_t>(3, bytes.size()); ++back) {
    const size_t lead = bytes.size() - back;
    if (continues(lead)) continue;
    const auto c = static_cast<unsigned char>(bytes[lead]);
    const size_t length = c >= 0xF0 && c <= 0xF4  ? 4
                          : c >= 0xE0 && c < 0xF0 ? 3
                          : c >= 0xC2 && c < 0xE0 ? 2
                                                  : 1;
    return length > back ? lead : bytes.size();
  }
  return bytes.size();
}

bool is_white_space(int32_t code_point) { return u_isUWhiteSpace(code_point); }

bool is_word_character(int32_t code_point) {
  constexpr uint32_t kMask = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return (U_GET_GC_MASK(code_point) & kMask) || u_isUAlphabetic(code_point) ||
         u_hasBinaryProperty(code_point, UCHAR_JOIN_CONTROL);
}

}  // namespace myriad
