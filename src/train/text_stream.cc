#include "train/text_stream.h"

#include <algorithm>

#include "data/unicode_text.h"

namespace myriad {

namespace {

constexpr size_t kContext = 8;  // tokens of the prompt that are decoded with what follows

// Without a character that is still open. SentencePiece decodes one to U+FFFD, byte by byte, until
// it is whole.
size_t whole(std::string_view text) {
  size_t end = whole_characters(text);
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  for (int i = 0; i < 3 && text.substr(0, end).ends_with(kReplacement); ++i)
    end -= kReplacement.size();
  return end;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
                       std::vector<std::string> stops)
    : tokenizer_(tokenizer),
      stops_(std::move(stops)),
      ids_(prompt.end() - static_cast<std::ptrdiff_t>(std::min(prompt.size(), kContext)),
           prompt.end()),
      from_(0),
      read_(ids_.size()) {}

std::string TextStream::add(int32_t id) {
  ids_.push_back(id);
  const std::span<const int32_t> all(ids_);
  const size_t before = tokenizer_.decode(all.subspan(from_, read_ - from_)).size();
  const std::string both = tokenizer_.decode(all.subspan(from_));
  const std::string_view fresh = std::string_view(both).substr(std::min(before, both.size()));
  const size_t old = text_.size(), end = whole(fresh);
  if (end > taken_) {
    text_ += replace_ill_formed(fresh.substr(taken_, end - taken_));
    taken_ = end;
  }
  if (end == fresh.size()) {
    from_ = read_;
    read_ = ids_.size();
    taken_ = 0;
  }
  return stop_at(old) ? send(text_.size()) : send(text_.size() - maybe_a_stop());
}

std::string TextStream::finish() { return send(text_.size()); }

// Cuts the text at the first stop text that ends beyond `old`.
bool TextStream::stop_at(size_t old) {
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    end = std::min(end, text_.find(stop, old < stop.size() ? 0 : old - stop.size() + 1));
  }
  if (end == std::string::npos) return false;
  text_.resize(end);
  return stopped_ = true;
}

std::string TextStream::send(size_t end) {
  if (end <= sent_) return "";
  const std::string out = text_.substr(sent_, end - sent_);
  sent_ = end;
  return out;
}

// Bytes at the end of the text that begin a stop text.
size_t TextStream::maybe_a_stop() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, text_.size()); n > longest; --n) {
      if (text_.ends_with(std::string_view(stop).substr(0, n))) longest = n;
    }
  }
  return longest;
}

}  // namespace myriad
