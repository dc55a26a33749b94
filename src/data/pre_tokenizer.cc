// Cuts a text into words by a list of regular expressions. ICU matches UTF-16, but tokens are made
// of bytes, so Utf16 keeps for each unit the byte at which its character begins; words are then
// views of the original bytes, and ill-formed bytes (matched as U+FFFF) reach the encoder
// unchanged. Each split cuts the pieces that the one before left, and a matcher is confined to one
// piece at a time, so that look-around does not see beyond it, as in Hugging Face's tokenizers.
// ICU's matchers have state: each thread clones its own, and finds them by a number instead of an
// address, which a later PreTokenizer might have again. Read PreTokenizer::split first.

#include "data/pre_tokenizer.h"

#include <unicode/uregex.h>
#include <unicode/ustring.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "base/error.h"
#include "data/regex_syntax.h"

namespace myriad {

namespace {

struct CloseRegex {
  void operator()(URegularExpression* regex) const { uregex_close(regex); }
};
using Regex = std::unique_ptr<URegularExpression, CloseRegex>;

constexpr size_t kThreadsMatchers = 16;

struct Range {
  int32_t begin, end;  // in UTF-16 units
};

// A match, or what stands between two.
struct Part {
  Range range;
  bool match;
};

// The text in UTF-16, with the byte where each unit's character begins.
struct Utf16 {
  std::vector<UChar> units;
  std::vector<int32_t> offsets;

  void assign(std::string_view text) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
    const int32_t size = static_cast<int32_t>(text.size());
    units.resize(text.size());
    offsets.resize(text.size() + 1);
    int32_t n = 0;
    for (int32_t i = 0; i < size;) {
      const int32_t begin = i;
      UChar32 c = bytes[i];
      if (c < 0x80) {
        ++i;
      } else {
        U8_NEXT(bytes, i, size, c);
        if (c < 0) c = 0xFFFF;  // no letter, number or space
      }
      offsets[n] = begin;
      if (c > 0xFFFF) {
        units[n++] = U16_LEAD(c);
        offsets[n] = begin;
        c = U16_TRAIL(c);
      }
      units[n++] = static_cast<UChar>(c);
    }
    offsets[n] = size;
    units.resize(static_cast<size_t>(n));
  }
};

Regex compile(const std::string& pattern) {
  const std::string translated = icu_pattern(pattern);
  UErrorCode status = U_ZERO_ERROR;
  std::vector<UChar> units(translated.size() + 1);
  int32_t length = 0;
  u_strFromUTF8(units.data(), static_cast<int32_t>(units.size()), &length, translated.data(),
                static_cast<int32_t>(translated.size()), &status);
  UParseError place{};
  Regex regex(
      uregex_open(units.data(), length, UREGEX_MULTILINE | UREGEX_UNIX_LINES, &place, &status));
  if (U_FAILURE(status)) {
    throw Error(fmt::format("the pattern \"{}\" is not legal: {} at character {}", pattern,
                            u_errorName(status), place.offset));
  }
  return regex;
}

void check(UErrorCode status, const std::string& pattern) {
  if (U_SUCCESS(status)) return;
  throw Error(fmt::format("the pattern \"{}\" failed on a text: {}", pattern, u_errorName(status)));
}

// The matches within a piece and what stands between them, in order and without gaps.
void find_parts(URegularExpression* regex, Range piece, const Split& split,
                std::vector<Part>& parts) {
  UErrorCode status = U_ZERO_ERROR;
  uregex_setRegion(regex, piece.begin, piece.end, &status);
  parts.clear();
  int32_t end = piece.begin;
  while (uregex_findNext(regex, &status)) {
    const Range found = {uregex_start(regex, 0, &status), uregex_end(regex, 0, &status)};
    if (found.begin > end) parts.push_back({{end, found.begin}, split.invert});
    parts.push_back({found, !split.invert});
    end = found.end;
  }
  check(status, split.pattern);
  if (end < piece.end) parts.push_back({{end, piece.end}, split.invert});
}

void merge_with_next(const std::vector<Part>& parts, std::vector<Range>& pieces) {
  const size_t first = pieces.size();
  bool previous = false;
  for (size_t i = parts.size(); i-- > 0;) {
    const auto [range, match] = parts[i];
    if (match && !previous && pieces.size() > first) {
      pieces.back().begin = range.begin;
    } else {
      pieces.push_back(range);
    }
    previous = match;
  }
  std::reverse(pieces.begin() + static_cast<ptrdiff_t>(first), pieces.end());
}

// As Hugging Face's NormalizedString::split.
void apply(SplitBehavior behavior, const std::vector<Part>& parts, std::vector<Range>& pieces) {
  if (behavior == SplitBehavior::merged_with_next) return merge_with_next(parts, pieces);
  const size_t first = pieces.size();
  bool previous = false;
  for (const auto& [range, match] : parts) {
    const bool joins = (behavior == SplitBehavior::contiguous && match == previous) ||
                       (behavior == SplitBehavior::merged_with_previous && match && !previous);
    previous = match;
    if (behavior == SplitBehavior::removed && match) continue;
    if (joins && pieces.size() > first) {
      pieces.back().end = range.end;
    } else {
      pieces.push_back(range);
    }
  }
}

}  // namespace

struct PreTokenizer::Compiled {
  uint64_t number;  // distinct for each
  std::vector<Split> splits;
  std::vector<Regex> regexes;
};

PreTokenizer::PreTokenizer(const std::vector<Split>& splits) {
  static std::atomic<uint64_t> made = 0;
  auto compiled = std::make_shared<Compiled>();
  compiled->number = made++;
  compiled->splits = splits;
  for (const Split& split : splits) compiled->regexes.push_back(compile(split.pattern));
  compiled_ = std::move(compiled);
}

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& words) const {
  if (text.empty()) return;
  if (text.size() >= size_t{1} << 30) throw Error(fmt::format("a text of {} bytes", text.size()));
  thread_local std::map<uint64_t, std::vector<Regex>> matchers;
  thread_local Utf16 wide;
  thread_local std::vector<Range> pieces, next;
  thread_local std::vector<Part> parts;
  if (matchers.size() > kThreadsMatchers) matchers.clear();
  auto [mine, fresh] = matchers.try_emplace(compiled_->number);
  UErrorCode status = U_ZERO_ERROR;
  if (fresh) {
    for (const Regex& regex : compiled_->regexes) {
      mine->second.emplace_back(uregex_clone(regex.get(), &status));
    }
    CHECK(U_SUCCESS(status), "ICU: {}", u_errorName(status));
  }
  wide.assign(text);
  pieces.assign(1, {0, static_cast<int32_t>(wide.units.size())});
  for (size_t i = 0; i < compiled_->splits.size(); ++i) {
    const Split& split = compiled_->splits[i];
    URegularExpression* regex = mine->second[i].get();
    uregex_setText(regex, wide.units.data(), static_cast<int32_t>(wide.units.size()), &status);
    check(status, split.pattern);
    next.clear();
    for (const Range piece : pieces) {
      find_parts(regex, piece, split, parts);
      apply(split.behavior, parts, next);
    }
    std::erase_if(next, [](Range r) { return r.begin == r.end; });
    pieces.swap(next);
  }
  for (const auto [begin, end] : pieces) {
    const int32_t first = wide.offsets[begin];
    words.push_back(text.substr(first, wide.offsets[end] - first));
  }
}

}  // namespace myriad
