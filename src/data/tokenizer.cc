#include "data/tokenizer.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/bpe.h"
#include "data/files.h"
#include "data/sentencepiece.h"
#include "data/unicode_text.h"

namespace myriad {

namespace {

namespace fs = std::filesystem;

// eos_token of tokenizer_config.json: a string, or an object with its content; empty if absent.
std::string end_of_text_name(const fs::path& folder) {
  const fs::path path = folder / "tokenizer_config.json";
  if (!fs::exists(path)) return "";
  nlohmann::json config;
  try {
    config = nlohmann::json::parse(read_file(path));
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("not JSON: {}", e.what()), path);
  }
  if (!config.is_object() || !config.contains("eos_token") || config["eos_token"].is_null()) {
    return "";
  }
  const nlohmann::json& told = config["eos_token"];
  const nlohmann::json& name =
      told.is_object() && told.contains("content") ? told["content"] : told;
  if (!name.is_string()) throw Error("must be a string", path.string() + ": /eos_token");
  return name.get<std::string>();
}

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode_onto(text, ids);
  return ids;
}

std::vector<int32_t> Tokenizer::encode_with_added(std::string_view text) const {
  std::vector<int32_t> ids;
  encode_with_added_onto(text, ids);
  return ids;
}

std::string Tokenizer::decode_text(std::span<const int32_t> ids) const {
  return replace_ill_formed(decode(ids));
}

fs::path tokenizer_file(const fs::path& path) {
  if (!fs::is_directory(path)) return path;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (fs::exists(path / name)) return path / name;
  }
  std::vector<fs::path> models;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() == ".model") models.push_back(entry.path());
  }
  if (models.size() != 1) {
    throw Error("the folder has no tokenizer", path, "tokenizer.json, or one SentencePiece .model");
  }
  return models[0];
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path) {
  const fs::path file = tokenizer_file(path);
  const std::string bytes = read_file(file);
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) throw Error("is empty", file);
  if (bytes[first] != '{') {
    return std::make_unique<SentencePiece>(SentencePiece::parse(bytes, file.string()));
  }
  Bpe bpe = Bpe::parse(bytes, file.string());
  const std::string name = fs::is_directory(path) ? end_of_text_name(path) : "";
  if (name.empty()) return std::make_unique<Bpe>(std::move(bpe));
  try {
    return std::make_unique<Bpe>(bpe.with_end_of_text(name));
  } catch (const Error& e) {
    throw Error(e.what(), (path / "tokenizer_config.json").string() + ": /eos_token");
  }
}

}  // namespace myriad
