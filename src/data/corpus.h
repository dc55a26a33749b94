// Documents as they come from disk, and their split into training and held-out by content alone, so
// that a document keeps its side whatever else the corpus holds, and equal texts never stand on
// both sides.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace myriad {

struct Document {
  std::string text;    // UTF-8
  std::string source;  // where it came from, for people
  std::string lang;    // "en", "zh", or empty when not told
};

struct CorpusSplit {
  std::vector<Document> training, held_out;
};

// A .jsonl file ({"text": ..., "source": ..., "lang": ...} a line, only text required), a .txt file
// (one document), either with .gz or .zst behind, or a folder of such files, in it and below it, in
// order of their paths. Documents with empty text are skipped. Throws Error naming the file, the
// line or the offset, and the key; also when no document is found.
std::vector<Document> read_corpus(const std::filesystem::path& path);

// xxh3(text) % 1000 < permille.
bool is_held_out(std::string_view text, int permille);

// Keeps the order of documents on both sides. 0 <= permille <= 1000.
CorpusSplit split_corpus(std::vector<Document> documents, int held_out_permille);

}  // namespace myriad
