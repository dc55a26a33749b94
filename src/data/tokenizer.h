// What every tokenizer does: our byte-level BPE (bpe.h; trained here or read from a published
// tokenizer.json) and SentencePiece models (sentencepiece.h). A Tokenizer is immutable once made
// and may be used from several threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace myriad {

class Tokenizer {
 public:
  static constexpr int32_t kUnknown = -1;

  virtual ~Tokenizer() = default;

  // Appends the tokens of a plain text, a document for instance: nothing in it is read as an added
  // or special token, and nothing is put around it.
  virtual void encode_onto(std::string_view text, std::vector<int32_t>& ids) const = 0;
  std::vector<int32_t> encode(std::string_view text) const;

  // The same, but added tokens in the text ("<|im_start|>") become their ids, as Hugging Face's
  // tokenizers do with add_special_tokens false: for prompts and templates. SentencePiece has no
  // added tokens: control pieces in a text stay text.
  virtual void encode_with_added_onto(std::string_view text, std::vector<int32_t>& ids) const = 0;
  std::vector<int32_t> encode_with_added(std::string_view text) const;

  // The bytes of the tokens, special ones included; they may end within a character. Throws Error
  // for an id that is no token.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // UTF-8: what is ill-formed becomes U+FFFD, one for each maximal part of a character.
  std::string decode_text(std::span<const int32_t> ids) const;

  virtual int vocabulary() const = 0;       // ids are 0 to vocabulary() - 1; some may be no token
  virtual int32_t end_of_text() const = 0;  // kUnknown: the file does not tell
  virtual uint64_t hash() const = 0;        // equal for equal tokenizers
  virtual const char* kind() const = 0;     // for people: "byte-level BPE", "SentencePiece"
};

// By content: a tokenizer.json, a SentencePiece model, or a folder with tokenizer.json,
// tokenizer.model or one other *.model (in this order). In a folder, eos_token of
// tokenizer_config.json tells end_of_text. Throws Error naming file and key.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

// The tokenizer file that load_tokenizer would read: `path` itself, or the one in the folder.
std::filesystem::path tokenizer_file(const std::filesystem::path& path);

}  // namespace myriad
