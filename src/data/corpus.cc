#include "data/corpus.h"

#include <xxhash.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/files.h"

namespace myriad {

namespace {

std::string optional_string(const nlohmann::json& line, const char* key, const std::string& where) {
  const auto found = line.find(key);
  if (found == line.end() || found->is_null()) return "";
  if (!found->is_string()) {
    throw Error(fmt::format("key \"{}\" must be a string, not {}", key, found->type_name()), where);
  }
  return found->get<std::string>();
}

Document parse_line(std::string_view text, const std::string& where) {
  nlohmann::json line;
  try {
    line = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("not a JSON object: {}", e.what()), where);
  }
  if (!line.is_object()) {
    throw Error(fmt::format("not a JSON object but {}", line.type_name()), where);
  }
  if (!line.contains("text")) throw Error("key \"text\" is missing", where);
  return {.text = optional_string(line, "text", where),
          .source = optional_string(line, "source", where),
          .lang = optional_string(line, "lang", where)};
}

void read_one(const std::filesystem::path& path, std::vector<Document>& documents) {
  const std::string bytes = read_file(path);
  if (path.extension() == ".txt") {
    if (!bytes.empty()) documents.push_back({.text = bytes, .source = path.filename(), .lang = ""});
    return;
  }
  int64_t number = 0;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string_view text(bytes.data() + begin, end - begin);
    ++number;
    begin = end + 1;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Document document = parse_line(text, fmt::format("{}:{}", path.string(), number));
    if (!document.text.empty()) documents.push_back(std::move(document));
  }
}

bool is_corpus_file(const std::filesystem::path& path) {
  return path.extension() == ".jsonl" || path.extension() == ".txt";
}

}  // namespace

std::vector<Document> read_corpus(const std::filesystem::path& path) {
  const char* hint = "scripts/corpus.py builds corpus/documents.jsonl; data/sample is a small one";
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.is_regular_file() && is_corpus_file(entry.path())) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
  } else if (!std::filesystem::exists(path)) {
    throw Error("no such file or folder", path, hint);
  } else if (!is_corpus_file(path)) {
    throw Error("neither .jsonl nor .txt", path);
  } else {
    files.push_back(path);
  }
  std::vector<Document> documents;
  for (const auto& file : files) read_one(file, documents);
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
