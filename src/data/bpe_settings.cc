// What a tokenizer.json says about normalising and cutting texts. Every pre-tokenizer that is
// supported becomes a Split, a regular expression with a behaviour, so the encoder needs only one
// mechanism; any other is refused with its key. ByteLevel must come last, because it spells bytes
// as characters of its own alphabet and a later pattern would see those; here words stay bytes,
// which gives the same tokens. Read read_settings first, then read_pre_tokenizer.

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "data/bpe.h"
#include "data/regex_syntax.h"

namespace myriad {

namespace {

using Json = nlohmann::json;

constexpr const char* kTrainedPattern =
    R"('(?:[sdmtSDMT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Hugging Face's pattern means Rust's \w, which also holds the two joiners.
constexpr const char* kWhitespacePattern = R"([\w\x{200C}\x{200D}]+|[^\w\x{200C}\x{200D}\s]+)";
constexpr const char* kPunctuationPattern = R"([\p{P}$+<=>\^`|~])";

struct Part {
  const Json& json;
  std::string where;  // file and key

  Part at(const char* key) const {
    if (!json.is_object()) throw Error("must be an object", where);
    const auto found = json.find(key);
    if (found == json.end()) throw Error(fmt::format("key \"{}\" is missing", key), where);
    return {*found, where + "/" + key};
  }

  std::string text(const char* key) const {
    const Part part = at(key);
    if (!part.json.is_string()) throw Error("must be a string", part.where);
    return part.json.get<std::string>();
  }

  bool flag(const char* key, bool otherwise) const {
    if (!json.is_object()) throw Error("must be an object", where);
    if (!json.contains(key)) return otherwise;
    const Part part = at(key);
    if (!part.json.is_boolean()) throw Error("must be true or false", part.where);
    return part.json.get<bool>();
  }

  std::vector<Part> list(const char* key) const {
    const Part part = at(key);
    if (!part.json.is_array()) throw Error("must be an array", part.where);
    std::vector<Part> parts;
    for (size_t i = 0; i < part.json.size(); ++i) {
      parts.push_back({part.json[i], fmt::format("{}/{}", part.where, i)});
    }
    return parts;
  }
};

void read_normalizer(const Part& part, NormalForm& form) {
  if (part.json.is_null()) return;
  const std::string type = part.text("type");
  if (type == "Sequence") {
    for (const Part& inner : part.list("normalizers")) read_normalizer(inner, form);
    return;
  }
  const std::pair<const char*, NormalForm> forms[] = {{"NFC", NormalForm::nfc},
                                                      {"NFD", NormalForm::nfd},
                                                      {"NFKC", NormalForm::nfkc},
                                                      {"NFKD", NormalForm::nfkd}};
  for (const auto& [name, value] : forms) {
    if (type != name) continue;
    if (form != NormalForm::none) throw Error("a second normal form", part.where);
    form = value;
    return;
  }
  throw Error(fmt::format("the normalizer {} is not supported", type), part.where,
              "none, NFC, NFD, NFKC or NFKD");
}

SplitBehavior read_behavior(const Part& part, const char* key) {
  const std::string name = part.text(key);
  const std::pair<const char*, SplitBehavior> behaviors[] = {
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  for (const auto& [known, value] : behaviors) {
    if (name == known) return value;
  }
  throw Error(fmt::format("\"{}\" is no behavior", name), part.where + "/" + key);
}

Split read_split(const Part& part) {
  const Part pattern = part.at("pattern");
  if (!pattern.json.is_object() || pattern.json.size() != 1) {
    throw Error("must be {\"Regex\": ...} or {\"String\": ...}", pattern.where);
  }
  const bool regex = pattern.json.contains("Regex");
  const std::string text = pattern.text(regex ? "Regex" : "String");
  if (!regex && text.empty()) throw Error("is empty", pattern.where);
  return {regex ? text : regex_of_literal(text), read_behavior(part, "behavior"),
          part.flag("invert", false)};
}

struct Reading {
  std::vector<Split> splits;
  bool prefix_space = false;
  bool bytes = false;  // ByteLevel was there
};

void read_byte_level(const Part& part, Reading& reading) {
  reading.bytes = true;
  reading.prefix_space = part.flag("add_prefix_space", true);
  if (reading.prefix_space && !reading.splits.empty()) {
    throw Error("true after other pre-tokenizers is not supported",
                part.where + "/add_prefix_space");
  }
  if (part.flag("use_regex", true)) reading.splits.push_back({kGpt2Pattern});
}

void read_pre_tokenizer(const Part& part, Reading& reading) {
  if (part.json.is_null()) return;
  const std::string type = part.text("type");
  if (type == "Sequence") {
    for (const Part& inner : part.list("pretokenizers")) read_pre_tokenizer(inner, reading);
    return;
  }
  if (reading.bytes) {
    throw Error(fmt::format("{} after ByteLevel is not supported", type), part.where);
  }
  if (type == "ByteLevel") {
    read_byte_level(part, reading);
  } else if (type == "Split") {
    reading.splits.push_back(read_split(part));
  } else if (type == "Digits") {
    const bool single = part.flag("individual_digits", false);
    reading.splits.push_back(
        {"\\p{N}", single ? SplitBehavior::isolated : SplitBehavior::contiguous});
  } else if (type == "Punctuation") {
    const bool told = part.json.contains("behavior");
    reading.splits.push_back(
        {kPunctuationPattern, told ? read_behavior(part, "behavior") : SplitBehavior::isolated});
  } else if (type == "Whitespace") {
    reading.splits.push_back({kWhitespacePattern, SplitBehavior::removed, true});
  } else if (type == "WhitespaceSplit") {
    reading.splits.push_back({"\\s", SplitBehavior::removed});
  } else {
    throw Error(fmt::format("the pre-tokenizer {} is not supported", type), part.where,
                "Split, ByteLevel, Digits, Punctuation, Whitespace, WhitespaceSplit or a Sequence");
  }
}

}  // namespace

BpePreparation read_settings(const BpeSettings& settings, const std::string& where) {
  BpePreparation preparation{};
  const Json normalizer = Json::parse(settings.normalizer);
  read_normalizer({normalizer, where + ": /normalizer"}, preparation.form);
  const Json pre_tokenizer = Json::parse(settings.pre_tokenizer);
  Reading reading;
  read_pre_tokenizer({pre_tokenizer, where + ": /pre_tokenizer"}, reading);
  if (!reading.bytes) {
    throw Error(
        "there is no ByteLevel", where + ": /pre_tokenizer",
        "only byte-level BPE is read; SentencePiece models are read from their .model file");
  }
  const Json decoder = Json::parse(settings.decoder);
  const std::string type = Part{decoder, where + ": /decoder"}.text("type");
  if (type != "ByteLevel") {
    throw Error(fmt::format("the decoder {} is not supported", type), where + ": /decoder",
                "ByteLevel");
  }
  preparation.splits = std::move(reading.splits);
  preparation.prefix_space = reading.prefix_space;
  return preparation;
}

BpeSettings trained_settings() {
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", kTrainedPattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", false}};
  BpeSettings settings;
  settings.pre_tokenizer =
      Json{{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}}.dump();
  settings.decoder = bytes.dump();
  return settings;
}

}  // namespace myriad
