// Byte-level BPE: every string of bytes has tokens, and decoding gives the same bytes back. Trained
// here, or read from Hugging Face's tokenizer.json. One trained here has these ids: 0 is
// <|endoftext|>, 1 to 256 are the bytes 0 to 255, and id 257 + r is the merge of rank r. A Bpe is
// immutable once made; encode may be called from several threads (each keeps its own cache of
// words).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/added_tokens.h"
#include "data/pre_tokenizer.h"
#include "data/tokenizer.h"
#include "data/unicode_text.h"

namespace myriad {

struct BpeToken {
  std::string bytes;      // what decoding gives
  bool in_model = false;  // stands in model.vocab; neither this nor added: the id is no token
  bool literal = false;   // its name there is the text itself, not a spelling of bytes
};

struct BpeMerge {
  int32_t left, right, made;
  bool operator==(const BpeMerge&) const = default;
};

// Parts of a tokenizer.json that are kept as they were read: JSON texts.
struct BpeSettings {
  std::string normalizer = "null", pre_tokenizer, post_processor = "null", decoder;
};

// All that a tokenizer.json tells.
struct BpeParts {
  std::vector<BpeToken> tokens;  // by id
  std::vector<BpeMerge> merges;  // by rank
  bool ignore_merges = false;    // a whole word that is a token is that token
  std::vector<AddedToken> added;
  BpeSettings settings;
  int32_t end_of_text = Tokenizer::kUnknown;
};

class Bpe final : public Tokenizer {
 public:
  static constexpr int32_t kEndOfText = 0;  // these four: of a Bpe trained here
  static constexpr int32_t kFirstByte = 1;
  static constexpr int32_t kFirstMerge = 257;
  static constexpr const char* kEndOfTextName = "<|endoftext|>";

  // Learns merges, the most frequent pair first, equal counts by lower pair of ids, until
  // `vocabulary` tokens exist or no pair occurs twice; so vocabulary() may be smaller for small
  // texts. Depends on the documents only, not on their order or on the machine. Throws Error if
  // vocabulary < 257 or there is no text.
  static Bpe train(std::span<const std::string_view> documents, int vocabulary);

  // From merges by rank; each pair names ids below its own. Throws Error naming the merge.
  static Bpe from_merges(const std::vector<std::pair<int32_t, int32_t>>& merges);

  // Throws Error naming `where` and the key, for what is wrong or not supported.
  static Bpe from_parts(BpeParts parts, const std::string& where);

  // Hugging Face tokenizer.json. Throws Error naming file and key.
  static Bpe load(const std::filesystem::path& path);
  static Bpe parse(std::string_view json, const std::string& file);

  // As Hugging Face's tokenizers load it; what was read comes back the same.
  void save(const std::filesystem::path& path) const;

  void encode_onto(std::string_view text, std::vector<int32_t>& ids) const override;
  void encode_with_added_onto(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;

  int vocabulary() const override { return static_cast<int>(parts_.tokens.size()); }
  int32_t end_of_text() const override { return parts_.end_of_text; }
  uint64_t hash() const override { return hash_; }
  const char* kind() const override { return "byte-level BPE"; }

  std::string_view token_bytes(int32_t id) const { return parts_.tokens[id].bytes; }
  const std::vector<BpeMerge>& merges() const { return parts_.merges; }
  const BpeParts& parts() const { return parts_; }

  // The same tokenizer whose end_of_text is the added token of this name. Throws Error if there is
  // none.
  Bpe with_end_of_text(std::string_view content) const;

 private:
  Bpe() = default;
  int32_t rank_of(int32_t left, int32_t right) const;  // -1: no such merge
  void index_tokens(const std::string& where);
  void index_merges(const std::string& where);
  void compute_hash();
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;
  void encode_normalized(std::string_view text, std::vector<int32_t>& ids) const;

  BpeParts parts_;
  int32_t byte_ids_[256] = {};                       // -1: none
  std::vector<std::pair<uint64_t, int32_t>> table_;  // open addressing: pair of ids -> rank
  std::unordered_map<std::string, int32_t> words_;   // with ignore_merges: bytes -> id
  NormalForm form_ = NormalForm::none;
  bool prefix_space_ = false;
  PreTokenizer pre_tokenizer_;
  AddedTokens raw_added_, normalized_added_;
  uint64_t hash_ = 0;
};

// The settings of tokenizers trained here. The words are those of cl100k and of most open models
// since.
BpeSettings trained_settings();

// What the settings say, for those who encode. Throws Error naming the key that is wrong or not
// supported.
struct BpePreparation {
  NormalForm form;
  std::vector<Split> splits;
  bool prefix_space;  // a text that does not begin with a space gets one
};
BpePreparation read_settings(const BpeSettings& settings, const std::string& where);

}  // namespace myriad
