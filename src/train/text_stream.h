// Tokens to text as they come: whole characters only, and nothing that may turn out to be the
// beginning of a stop text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace myriad {

class TextStream {
 public:
  // `prompt`: the tokens before, which tell a SentencePiece model whether a space is due. `stops`:
  // texts that end it, none empty. The tokenizer outlives it.
  TextStream(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
             std::vector<std::string> stops);

  // What is certain now and was not before.
  std::string add(int32_t id);
  // No further token comes: what was held back. Bytes that are no whole character at the end are
  // dropped.
  std::string finish();

  bool stopped() const { return stopped_; }          // a stop text came; it is not part of the text
  const std::string& text() const { return text_; }  // all so far, what is held back too

 private:
  std::string send(size_t end);
  bool stop_at(size_t old);
  size_t maybe_a_stop() const;

  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::vector<int32_t> ids_;
  size_t from_,
      read_;          // tokens [from_, read_) are text already, and give those behind their context
  size_t taken_ = 0;  // bytes of those behind that are text already
  std::string text_;
  size_t sent_ = 0;
  bool stopped_ = false;
};

}  // namespace myriad
