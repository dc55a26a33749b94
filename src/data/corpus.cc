// Reads documents from .jsonl and .txt files, and splits them into training and held-out. Files of
// a folder are sorted by path, as the order in which a file system lists them is arbitrary. Errors
// name the line and the byte in the uncompressed text; the JSON parser sees one line at a time, so
// its own position is replaced. All text is UTF-8 afterwards: the JSON parser refuses ill-formed
// strings, and plain texts are checked here. The side of a document depends on a hash of its text
// alone, so adding files to a corpus moves no document. Read read_one first.

#include "data/corpus.h"

#include <xxhash.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/compress.h"
#include "data/files.h"
#include "data/unicode_text.h"

namespace myriad {

namespace {

namespace fs = std::filesystem;

std::string optional_string(const nlohmann::json& line, const char* key, const std::string& where) {
  const auto found = line.find(key);
  if (found == line.end() || found->is_null()) return "";
  if (!found->is_string()) {
    throw Error(fmt::format("key \"{}\" must be a string, not {}", key, found->type_name()), where);
  }
  return found->get<std::string>();
}

// The parser's message without the position that it names, because it sees one line only.
std::string reason_of(const nlohmann::json::parse_error& e) {
  const std::string what = e.what();
  const size_t column = what.find("column "), colon = what.find(": ", column);
  return column == std::string::npos || colon == std::string::npos ? what : what.substr(colon + 2);
}

// `offset` is where the line begins in the file.
Document parse_line(std::string_view text, const std::string& where, size_t offset) {
  nlohmann::json line;
  try {
    line = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    throw Error(fmt::format("not a JSON object: at byte {} of the line (offset {}): {}", e.byte,
                            offset + std::max<size_t>(e.byte, 1) - 1, reason_of(e)),
                where);
  }
  if (!line.is_object()) {
    throw Error(fmt::format("not a JSON object but {}", line.type_name()), where);
  }
  if (!line.contains("text")) throw Error("key \"text\" is missing", where);
  return {.text = optional_string(line, "text", where),
          .source = optional_string(line, "source", where),
          .lang = optional_string(line, "lang", where)};
}

std::string contents(const fs::path& path) {
  std::string bytes = read_file(path);
  if (path.extension() == ".gz") return gunzip(bytes, path.string());
  if (path.extension() == ".zst") return unzstd(bytes, path.string());
  return bytes;
}

// ".jsonl" or ".txt", whether the file is compressed or not; empty if a corpus has no such files.
std::string kind_of(fs::path path) {
  if (path.extension() == ".gz" || path.extension() == ".zst") path.replace_extension();
  const std::string kind = path.extension();
  return kind == ".jsonl" || kind == ".txt" ? kind : "";
}

// `source` is given to a plain text; the lines of a .jsonl file name their own.
void read_one(const fs::path& path, const std::string& source, std::vector<Document>& documents) {
  std::string bytes = contents(path);
  if (kind_of(path) == ".txt") {
    if (const size_t bad = ill_formed_at(bytes); bad != std::string::npos) {
      throw Error(fmt::format("not UTF-8: byte 0x{:02x} at offset {} of the text",
                              static_cast<uint8_t>(bytes[bad]), bad),
                  path);
    }
    if (!bytes.empty())
      documents.push_back({.text = std::move(bytes), .source = source, .lang = ""});
    return;
  }
  int64_t number = 0;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string_view text(bytes.data() + begin, end - begin);
    ++number;
    if (text.find_first_not_of(" \t\r") != std::string_view::npos) {
      Document document = parse_line(text, fmt::format("{}:{}", path.string(), number), begin);
      if (!document.text.empty()) documents.push_back(std::move(document));
    }
    begin = end + 1;
  }
}

}  // namespace

std::vector<Document> read_corpus(const fs::path& path) {
  const char* hint = "scripts/corpus.py builds corpus/documents.jsonl; data/sample is a small one";
  std::vector<Document> documents;
  std::error_code refused;  // names that no file can have
  if (fs::is_directory(path, refused)) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file() && !kind_of(entry.path()).empty()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) read_one(file, file.lexically_relative(path), documents);
  } else if (!fs::exists(path, refused)) {
    throw Error("no such file or folder", path, hint);
  } else if (kind_of(path).empty()) {
    throw Error("neither .jsonl nor .txt, with .gz or .zst behind or without", path);
  } else {
    read_one(path, path.filename(), documents);
  }
  if (documents.empty()) throw Error("holds no documents", path, hint);
  return documents;
}

bool is_held_out(std::string_view text, int permille) {
  return XXH3_64bits(text.data(), text.size()) % 1000 < static_cast<uint64_t>(permille);
}

CorpusSplit split_corpus(std::vector<Document> documents, int held_out_permille) {
  if (held_out_permille < 0 || held_out_permille > 1000) {
    throw Error(fmt::format("held-out share is {} permille", held_out_permille), "",
                "legal values are 0 to 1000");
  }
  CorpusSplit split;
  for (Document& document : documents) {
    auto& side = is_held_out(document.text, held_out_permille) ? split.held_out : split.training;
    side.push_back(std::move(document));
  }
  return split;
}

}  // namespace myriad
