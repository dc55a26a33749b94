#include "data/added_tokens.h"

#include <unicode/utf8.h>

#include <algorithm>

#include "data/unicode_text.h"

namespace myriad {

namespace {

// The character that ends before `end`, or begins at `begin`; -1: none, or not UTF-8.
int32_t character_before(std::string_view text, size_t end) {
  if (end == 0) return -1;
  const size_t base = end - std::min<size_t>(4, end);
  int32_t i = static_cast<int32_t>(end - base);
  int32_t c;
  U8_PREV(reinterpret_cast<const uint8_t*>(text.data()) + base, 0, i, c);
  return c;
}

int32_t character_at(std::string_view text, size_t begin, size_t& next) {
  if (begin >= text.size()) return -1;
  const int32_t length = static_cast<int32_t>(std::min<size_t>(4, text.size() - begin));
  int32_t i = 0, c;
  U8_NEXT(reinterpret_cast<const uint8_t*>(text.data()) + begin, i, length, c);
  next = begin + static_cast<size_t>(i);
  return c;
}

bool is_word(int32_t c) { return c >= 0 && is_word_character(c); }

size_t spaces_begin(std::string_view text, size_t end) {
  for (int32_t c = character_before(text, end); c >= 0 && is_white_space(c);
       c = character_before(text, end)) {
    end -= static_cast<size_t>(U8_LENGTH(c));
  }
  return end;
}

size_t spaces_end(std::string_view text, size_t begin) {
  size_t next = begin;
  for (int32_t c = character_at(text, begin, next); c >= 0 && is_white_space(c);
       c = character_at(text, begin, next)) {
    begin = next;
  }
  return begin;
}

}  // namespace

void AddedTokens::add(const AddedToken& token) {
  int32_t node = 0;
  for (const char c : token.content) {
    const uint64_t edge = static_cast<uint64_t>(node) * 256 + static_cast<uint8_t>(c);
    const auto [found, fresh] = edges_.try_emplace(edge, static_cast<int32_t>(ends_.size()));
    if (fresh) ends_.push_back(-1);
    node = found->second;
  }
  ends_[node] = static_cast<int32_t>(tokens_.size());
  first_[static_cast<uint8_t>(token.content[0])] = true;
  tokens_.push_back(token);
}

const AddedToken* AddedTokens::longest_at(std::string_view text, size_t begin) const {
  const AddedToken* longest = nullptr;
  int32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const auto found =
        edges_.find(static_cast<uint64_t>(node) * 256 + static_cast<uint8_t>(text[i]));
    if (found == edges_.end()) break;
    node = found->second;
    if (ends_[node] >= 0) longest = &tokens_[ends_[node]];
  }
  return longest;
}

std::vector<AddedTokens::Piece> AddedTokens::split(std::string_view text) const {
  std::vector<Piece> pieces;
  size_t done = 0;
  for (size_t i = 0; i < text.size() && !tokens_.empty();) {
    const AddedToken* token = first_[static_cast<uint8_t>(text[i])] ? longest_at(text, i) : nullptr;
    if (!token) {
      ++i;
      continue;
    }
    size_t begin = i, end = i + token->content.size(), next;
    i = end;
    if (token->single_word &&
        (is_word(character_before(text, begin)) || is_word(character_at(text, end, next)))) {
      continue;
    }
    if (token->lstrip) begin = std::max(spaces_begin(text, begin), done);
    if (token->rstrip) end = spaces_end(text, end);
    if (done < begin) pieces.push_back({-1, text.substr(done, begin - done)});
    pieces.push_back({token->id, text.substr(begin, end - begin)});
    done = end;
  }
  if (done < text.size()) pieces.push_back({-1, text.substr(done)});
  return pieces;
}

}  // namespace myriad
