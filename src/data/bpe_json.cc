// Reads and writes Hugging Face's tokenizer.json. A setting that would change the tokens and is not
// supported is refused with its key, so a file that loads tokenises as it does elsewhere.
// Normaliser, pre-tokenizer, post-processor and decoder are kept as JSON texts, and save() writes
// them back as they were read; bpe_settings.cc says what they mean. Tokens are named in the byte
// alphabet (byte_alphabet.h), except those whose name is not made of its characters. Read
// Bpe::parse first.

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "data/bpe.h"
#include "data/byte_alphabet.h"
#include "data/files.h"

namespace myriad {

namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kMostIds = int64_t{1} << 22;

// Names of the token that ends a text, tried in this order where no other file names it.
constexpr std::array kEndOfTextNames = {
    "<|endoftext|>", "<｜end▁of▁sentence｜>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>",
    "[EOS]"};

struct Reader {
  const Json& root;
  const std::string& file;

  std::string where(const std::string& pointer) const { return file + ": " + pointer; }

  // The value at a path of keys; null where it is absent.
  const Json& value(const char* pointer) const {
    static const Json kNull;
    const Json::json_pointer place(pointer);
    return root.contains(place) ? root.at(place) : kNull;
  }

  const Json& value(const char* pointer, Json::value_t type, const char* wanted) const {
    const Json::json_pointer place(pointer);
    if (!root.contains(place)) throw Error(fmt::format("key {} is missing", pointer), file);
    const Json& found = root.at(place);
    if (found.type() != type) throw Error(fmt::format("must be {}", wanted), where(pointer));
    return found;
  }
};

// A part that must be off: absent, null or one of the given values.
void check_off(const Reader& reader, const char* pointer, std::initializer_list<Json> off = {}) {
  const Json& found = reader.value(pointer);
  if (found.is_null() || std::find(off.begin(), off.end(), found) != off.end()) return;
  throw Error(fmt::format("{} is not supported",
                          found.dump(-1, ' ', false, Json::error_handler_t::replace)),
              reader.where(pointer), off.size() ? off.begin()->dump() : "null");
}

void check_supported(const Reader& reader) {
  const Json& type = reader.value("/model/type");
  if (type != "BPE") {
    throw Error(fmt::format("is {}", type.dump()), reader.where("/model/type"),
                "only \"BPE\" is read");
  }
  check_off(reader, "/truncation");
  check_off(reader, "/padding");
  check_off(reader, "/model/dropout", {0.0});
  check_off(reader, "/model/continuing_subword_prefix", {""});
  check_off(reader, "/model/end_of_word_suffix", {""});
  check_off(reader, "/model/byte_fallback", {false});
}

int32_t read_id(const Json& json, const std::string& where) {
  const bool number = json.is_number_integer();
  const int64_t id = number ? json.get<int64_t>() : -1;
  if (id < 0 || id >= kMostIds) {
    throw Error(
        fmt::format("the id is {}", json.dump(-1, ' ', false, Json::error_handler_t::replace)),
        where, fmt::format("an integer from 0 to {}", kMostIds - 1));
  }
  return static_cast<int32_t>(id);
}

using Names = std::unordered_map<std::string, int32_t>;

BpeToken token_named(const std::string& name) {
  const auto bytes = unspelled(name);
  return {bytes ? *bytes : name, false, !bytes};
}

Names read_vocabulary(const Reader& reader, std::vector<BpeToken>& tokens) {
  const Json& vocab = reader.value("/model/vocab", Json::value_t::object, "an object");
  Names names;
  for (const auto& [name, json] : vocab.items()) {
    const std::string where = reader.where(fmt::format("/model/vocab/{}", name));
    const int32_t id = read_id(json, where);
    if (name.empty()) throw Error("a token without a name", where);
    if (std::ssize(tokens) <= id) tokens.resize(static_cast<size_t>(id) + 1);
    if (tokens[id].in_model) throw Error(fmt::format("the id {} is taken twice", id), where);
    tokens[id] = token_named(name);
    tokens[id].in_model = true;
    names.emplace(name, id);
  }
  return names;
}

// "a b" of older files, ["a", "b"] of newer ones.
std::pair<std::string, std::string> merge_parts(const Json& merge, const std::string& where) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const std::string& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  throw Error(fmt::format("{} is not a pair of tokens", merge.dump()), where);
}

std::vector<BpeMerge> read_merges(const Reader& reader, const Names& names,
                                  const std::vector<BpeToken>& tokens) {
  const Json& merges = reader.value("/model/merges", Json::value_t::array, "an array");
  std::vector<BpeMerge> read;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto where = [&] { return reader.where(fmt::format("/model/merges/{}", rank)); };
    const auto id_of = [&](const std::string& token) {
      const auto found = names.find(token);
      if (found == names.end()) {
        throw Error(fmt::format("token \"{}\" has no id in /model/vocab", token), where());
      }
      if (tokens[found->second].literal) {
        throw Error(fmt::format("token \"{}\" is not spelled in bytes", token), where());
      }
      return found->second;
    };
    const auto [left, right] = merge_parts(merges[rank], where());
    read.push_back({id_of(left), id_of(right), id_of(left + right)});
  }
  return read;
}

bool read_flag(const Json& json, const char* key, const std::string& where) {
  if (!json.contains(key)) return false;
  if (!json[key].is_boolean()) throw Error("must be true or false", where + "/" + key);
  return json[key].get<bool>();
}

AddedToken read_added_token(const Json& json, const std::string& where) {
  if (!json.is_object()) throw Error("must be an object", where);
  if (!json.contains("content") || !json["content"].is_string()) {
    throw Error("key \"content\" must be a string", where);
  }
  AddedToken token;
  token.content = json["content"].get<std::string>();
  if (token.content.empty()) throw Error("is empty", where + "/content");
  token.id = read_id(json.value("id", Json()), where + "/id");
  token.single_word = read_flag(json, "single_word", where);
  token.lstrip = read_flag(json, "lstrip", where);
  token.rstrip = read_flag(json, "rstrip", where);
  token.special = read_flag(json, "special", where);
  token.normalized =
      json.contains("normalized") ? read_flag(json, "normalized", where) : !token.special;
  return token;
}

void read_added(const Reader& reader, const Names& names, BpeParts& parts) {
  if (reader.value("/added_tokens").is_null()) return;
  const Json& list = reader.value("/added_tokens", Json::value_t::array, "an array");
  Names seen;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = reader.where(fmt::format("/added_tokens/{}", i));
    AddedToken token = read_added_token(list[i], where);
    const auto known = names.find(token.content);
    if (known != names.end() && known->second != token.id) {
      throw Error(fmt::format("the id is {}, but {} in /model/vocab", token.id, known->second),
                  where);
    }
    if (!seen.emplace(token.content, token.id).second) throw Error("stands there twice", where);
    if (std::ssize(parts.tokens) <= token.id)
      parts.tokens.resize(static_cast<size_t>(token.id) + 1);
    BpeToken& place = parts.tokens[token.id];
    if (known == names.end()) {
      if (!place.bytes.empty()) {
        throw Error(fmt::format("the id {} is that of another token", token.id), where);
      }
      place = token_named(token.content);
    }
    parts.added.push_back(std::move(token));
  }
}

int32_t guess_end_of_text(const std::vector<AddedToken>& added) {
  for (const char* name : kEndOfTextNames) {
    for (const AddedToken& token : added) {
      if (token.content == name) return token.id;
    }
  }
  return Tokenizer::kUnknown;
}

OrderedJson json_of(const AddedToken& t) {
  return {{"id", t.id},          {"content", t.content}, {"single_word", t.single_word},
          {"lstrip", t.lstrip},  {"rstrip", t.rstrip},   {"normalized", t.normalized},
          {"special", t.special}};
}

OrderedJson model_of(const BpeParts& parts) {
  const auto name = [&](int32_t id) {
    const BpeToken& token = parts.tokens[id];
    return token.literal ? token.bytes : spelled(token.bytes);
  };
  OrderedJson vocab = OrderedJson::object();
  OrderedJson merges = OrderedJson::array();
  for (int32_t id = 0; id < std::ssize(parts.tokens); ++id) {
    if (!parts.tokens[id].in_model) continue;
    // emplace_back: an ordered object would look through all its keys for each new one.
    vocab.get_ref<OrderedJson::object_t&>().emplace_back(name(id), id);
  }
  for (const BpeMerge& merge : parts.merges) {
    merges.push_back(name(merge.left) + " " + name(merge.right));
  }
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", parts.ignore_merges},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

}  // namespace

void Bpe::save(const std::filesystem::path& path) const {
  OrderedJson added = OrderedJson::array();
  for (const AddedToken& token : parts_.added) added.push_back(json_of(token));
  const BpeSettings& s = parts_.settings;
  const OrderedJson file = {{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", std::move(added)},
                            {"normalizer", OrderedJson::parse(s.normalizer)},
                            {"pre_tokenizer", OrderedJson::parse(s.pre_tokenizer)},
                            {"post_processor", OrderedJson::parse(s.post_processor)},
                            {"decoder", OrderedJson::parse(s.decoder)},
                            {"model", model_of(parts_)}};
  write_file_aside(path, file.dump(1) + "\n");
}

Bpe Bpe::parse(std::string_view json, const std::string& file) {
  Json root;
  try {
    root = Json::parse(json);
  } catch (const Json::exception& e) {
    throw Error(fmt::format("not JSON: {}", e.what()), file);
  }
  const Reader reader{root, file};
  if (!root.is_object()) throw Error("not a JSON object", file);
  check_supported(reader);
  BpeParts parts;
  parts.settings = {.normalizer = reader.value("/normalizer").dump(),
                    .pre_tokenizer = reader.value("/pre_tokenizer").dump(),
                    .post_processor = reader.value("/post_processor").dump(),
                    .decoder = reader.value("/decoder").dump()};
  const Json& model = reader.value("/model", Json::value_t::object, "an object");
  parts.ignore_merges = read_flag(model, "ignore_merges", reader.where("/model"));
  const Names names = read_vocabulary(reader, parts.tokens);
  parts.merges = read_merges(reader, names, parts.tokens);
  read_added(reader, names, parts);
  parts.end_of_text = guess_end_of_text(parts.added);
  return from_parts(std::move(parts), file);
}

Bpe Bpe::load(const std::filesystem::path& path) { return parse(read_file(path), path.string()); }

}  // namespace myriad
