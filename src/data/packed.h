// A file of tokenised documents: written once, then mapped and read by any number of threads and
// processes. Little-endian layout, version 1:
//   header (96 bytes, see PackedHeader) | tokens, int32, padded to 8 bytes | index, (documents + 1)
//   pairs of uint64: first token and first text byte of each document | xxh3 of each 1 MiB block of
//   all that stands between the header and here. The header holds its own checksum and that of the
//   block checksums.
// Every document ends with its end-of-text token and has no other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/env.h"

namespace myriad {

struct PackedHeader {
  char magic[8];  // "MYRPACK\n"
  uint32_t version, token_bytes;
  uint64_t documents, tokens;
  uint64_t text_bytes;  // UTF-8 bytes of all documents, before tokenisation
  uint64_t tokenizer_hash;
  int32_t vocabulary, end_of_text;
  uint64_t reserved[3];
  uint64_t checksums_hash;  // xxh3 of the block checksums
  uint64_t header_hash;     // xxh3 of all the fields above
};
static_assert(sizeof(PackedHeader) == 96);

struct PackedTokenizer {
  uint64_t hash;
  int32_t vocabulary, end_of_text;
};

// Writes beside `path` and renames in finish(); without finish() nothing is left. Throws Failure
// naming the file when the system refuses (no space), Error where end_of_text is unknown
// (negative). One thread.
class PackedWriter {
 public:
  PackedWriter(std::filesystem::path path, PackedTokenizer tokenizer);
  ~PackedWriter();
  PackedWriter(const PackedWriter&) = delete;
  PackedWriter& operator=(const PackedWriter&) = delete;

  // The tokens of one document without end-of-text, which is added; text_bytes is the length of its
  // text. Throws Error if end-of-text is among them.
  void add(std::span<const int32_t> tokens, int64_t text_bytes);
  void finish();

 private:
  void write(const void* bytes, size_t size);
  void write_block();
  void put(const void* bytes, size_t size);

  std::filesystem::path path_, aside_;
  Env env_;
  std::unique_ptr<NewFile> file_;  // until finish()
  PackedHeader header_{};
  std::vector<char> block_;
  std::vector<uint64_t> index_, checksums_;
};

// A mapped file, checked in full when opened. Spans live as long as the PackedFile.
class PackedFile {
 public:
  PackedFile() = default;  // of no documents

  // Throws Error naming the file and the offset of what is wrong: not a packed file, another
  // version, cut short, longer than told, or damaged.
  static PackedFile open(const std::filesystem::path& path);

  int64_t documents() const { return static_cast<int64_t>(header_.documents); }
  int64_t tokens() const { return static_cast<int64_t>(header_.tokens); }
  int64_t text_bytes() const { return static_cast<int64_t>(header_.text_bytes); }
  PackedTokenizer tokenizer() const {
    return {header_.tokenizer_hash, header_.vocabulary, header_.end_of_text};
  }

  std::span<const int32_t> all_tokens() const { return tokens_; }
  int64_t document_begin(int64_t i) const {
    return static_cast<int64_t>(index_[2 * i]);
  }  // i <= documents()
  int64_t document_tokens(int64_t i) const { return document_begin(i + 1) - document_begin(i); }
  std::span<const int32_t> document(int64_t i) const {  // its end-of-text token is the last
    return tokens_.subspan(document_begin(i), document_tokens(i));
  }
  int64_t document_text_bytes(int64_t i) const {
    return static_cast<int64_t>(index_[2 * i + 3] - index_[2 * i + 1]);
  }

 private:
  std::shared_ptr<const char> mapping_;
  PackedHeader header_{};
  std::span<const int32_t> tokens_;
  std::span<const uint64_t> index_;
};

}  // namespace myriad
