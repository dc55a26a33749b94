// A SentencePiece .model through the library: its normaliser, its pieces, its byte fallback.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace myriad {

class SentencePiece final : public Tokenizer {
 public:
  // The bytes of a .model. Throws Error naming the file.
  static SentencePiece parse(std::string_view bytes, const std::string& file);

  void encode_onto(std::string_view text, std::vector<int32_t>& ids) const override;
  void encode_with_added_onto(std::string_view text, std::vector<int32_t>& ids) const override {
    encode_onto(text, ids);
  }

  // Control pieces (<s>, </s>) decode to their names. What stands between two of them is a text of
  // its own: the space that encoding put before it goes.
  std::string decode(std::span<const int32_t> ids) const override;

  int vocabulary() const override { return vocabulary_; }
  int32_t end_of_text() const override;
  uint64_t hash() const override { return hash_; }
  const char* kind() const override { return "SentencePiece"; }

 private:
  SentencePiece() = default;

  std::shared_ptr<const sentencepiece::SentencePieceProcessor> processor_;
  int vocabulary_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace myriad
