#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "data/bpe.h"
#include "data/byte_alphabet.h"
#include "data/files.h"
#include "data/testing.h"
#include "data/unicode_text.h"

namespace myriad {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

std::filesystem::path golden(const char* name) {
  return std::filesystem::path(MYRIAD_SOURCE) / "tests/golden/tokenizers" / name;
}

// A vocabulary of the bytes (ids 0 to 255), "ab" 256, "abc" 257 and "the" 258, which no merge
// makes.
Json tiny() {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte)
    vocab[spelled(std::string(1, static_cast<char>(byte)))] = byte;
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  vocab["the"] = 258;
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", bytes},
          {"post_processor", nullptr},
          {"decoder", bytes},
          {"model",
           {{"type", "BPE"},
            {"vocab", vocab},
            {"merges", Json::array({"a b", Json::array({"ab", "c"})})}}}};
}

Bpe parsed(const Json& json) { return Bpe::parse(json.dump(), "t.json"); }

std::string refusal(const Json& json) {
  try {
    parsed(json);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

Json added(int id, const char* content, std::vector<const char*> flags = {}) {
  Json token = {{"id", id}, {"content", content}, {"normalized", false}};
  for (const char* flag : flags) token[flag] = true;
  return token;
}

// Words of a text by the tokens of a vocabulary without merges would be bytes; so they are cut
// here.
std::vector<std::string> words(std::vector<Split> splits, std::string_view text) {
  std::vector<std::string_view> views;
  PreTokenizer(splits).split(text, views);
  return {views.begin(), views.end()};
}

void check_golden(const char* file, const std::filesystem::path& path) {
  const Json texts = Json::parse(read_file(golden("texts.json")));
  const Json expected = Json::parse(read_file(golden("ids.json")))[file];
  const auto tokenizer = load_tokenizer(path);
  EXPECT_EQ(tokenizer->vocabulary(), expected["vocabulary"]);
  for (size_t i = 0; i < texts.size(); ++i) {
    const Ids ids = tokenizer->encode_with_added(texts[i].get<std::string>());
    EXPECT_EQ(Json(ids), expected["ids"][i]) << texts[i];
    EXPECT_EQ(Json(tokenizer->decode_text(expected["ids"][i].get<Ids>())), expected["decoded"][i]);
  }
}

TEST(Tokenizer, GoldenOfHuggingFace) { check_golden("small_bpe.json", golden("small_bpe.json")); }

TEST(Tokenizer, GoldenOfSentencePiece) {
  check_golden("small_spm.model", golden("small_spm.model"));
}

TEST(Tokenizer, WhatWasSavedIsTheSame) {
  const TemporaryFolder folder;
  const Bpe bpe = Bpe::load(golden("small_bpe.json"));
  bpe.save(folder / "tokenizer.json");
  const Bpe again = Bpe::load(folder / "tokenizer.json");
  EXPECT_EQ(again.hash(), bpe.hash());
  again.save(folder / "again.json");
  EXPECT_EQ(read_file(folder / "again.json"), read_file(folder / "tokenizer.json"));
  check_golden("small_bpe.json", folder / "tokenizer.json");
}

TEST(Tokenizer, PlainTextHoldsNoAddedTokens) {
  const auto bpe = load_tokenizer(golden("small_bpe.json"));
  const std::string text = "a<|endoftext|>b";
  EXPECT_EQ(bpe->end_of_text(), 0);
  EXPECT_EQ(bpe->encode_with_added(text)[1], 0);
  const Ids plain = bpe->encode(text);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 0), 0);
  EXPECT_EQ(bpe->decode(plain), text);
  EXPECT_EQ(bpe->decode(bpe->encode_with_added(text)), text);
}

TEST(Tokenizer, ControlPiecesDecodeToTheirNames) {
  const auto spm = load_tokenizer(golden("small_spm.model"));
  Ids ids = {1};
  for (const int32_t id : spm->encode("hello world")) ids.push_back(id);
  ids.push_back(spm->end_of_text());
  EXPECT_EQ(spm->decode(ids), "<s>hello world</s>");
  EXPECT_THROW(spm->decode(Ids{spm->vocabulary()}), Error);
  const std::string zero("a\0b", 3);
  EXPECT_EQ(spm->decode(spm->encode(zero)), zero);
}

TEST(Tokenizer, FoldersTellTheEndOfText) {
  const TemporaryFolder folder;
  EXPECT_THROW(load_tokenizer(folder / ""), Error);
  std::filesystem::copy(golden("small_spm.model"), folder / "spm.model");
  EXPECT_STREQ(load_tokenizer(folder / "")->kind(), "SentencePiece");
  std::filesystem::copy(golden("small_bpe.json"), folder / "tokenizer.json");
  EXPECT_EQ(load_tokenizer(folder / "")->end_of_text(), 0);
  put_bytes(folder / "tokenizer_config.json", R"({"eos_token": {"content": "<|im_end|>"}})");
  EXPECT_EQ(load_tokenizer(folder / "")->end_of_text(), 2);
  put_bytes(folder / "tokenizer_config.json", R"({"eos_token": "<absent>"})");
  EXPECT_THROW(load_tokenizer(folder / ""), Error);
  Json json = tiny();
  EXPECT_EQ(parsed(json).end_of_text(), Tokenizer::kUnknown);
  EXPECT_THROW(PackedWriter(folder / "pack", {1, 300, Tokenizer::kUnknown}), Error);
}

TEST(Tokenizer, IllFormedBytesBecomeReplacementCharacters) {
  EXPECT_EQ(replace_ill_formed("a\xe5\xba"), "a\uFFFD");
  EXPECT_EQ(replace_ill_formed("\xe5\xba\xffz"), "\uFFFD\uFFFDz");
  EXPECT_EQ(replace_ill_formed("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_ill_formed("床"), "床");
  const Bpe bpe = parsed(tiny());
  EXPECT_EQ(bpe.decode(Ids{0xE5, 0xBA}), "\xe5\xba");
  EXPECT_EQ(bpe.decode_text(Ids{0xE5, 0xBA}), "\uFFFD");
}

TEST(Tokenizer, IgnoreMergesTakesWholeWords) {
  Json json = tiny();
  EXPECT_EQ(parsed(json).encode("abc"), (Ids{257}));
  EXPECT_EQ(parsed(json).encode("the"), (Ids{'t', 'h', 'e'}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(parsed(json).encode("the"), (Ids{258}));
  EXPECT_EQ(parsed(json).encode("thee"), (Ids{'t', 'h', 'e', 'e'}));
}

TEST(Tokenizer, NormalFormAndPrefixSpace) {
  Json json = tiny();
  json["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(parsed(json).encode("e\u0301"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(parsed(json).encode("\xffx"), (Ids{0xFF, 'x'}));
  json = tiny();
  json["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_EQ(parsed(json).encode("ab"), (Ids{' ', 256}));
  EXPECT_EQ(parsed(json).encode(" ab"), (Ids{' ', 256}));
  EXPECT_EQ(parsed(json).encode(""), Ids{});
}

TEST(Tokenizer, FlagsOfAddedTokens) {
  Json json = tiny();
  json["added_tokens"] = {added(300, "<m>", {"lstrip", "rstrip"}),
                          added(301, "ab", {"single_word"}), added(302, "<m>n"),
                          added(303, "\u00e9\u00e9", {"normalized"})};
  json["added_tokens"][1]["id"] = 256;
  json["normalizer"] = {{"type", "NFC"}};
  const Bpe bpe = parsed(json);
  EXPECT_EQ(bpe.encode_with_added("x  <m>  y"), (Ids{'x', 300, 'y'}));
  EXPECT_EQ(bpe.encode_with_added("<m>n<m>"), (Ids{302, 300}));  // the longest
  EXPECT_EQ(bpe.encode_with_added("xab ab"), (Ids{'x', 256, ' ', 256}));
  EXPECT_EQ(bpe.encode_with_added("e\u0301\u00e9"), (Ids{303}));
  EXPECT_EQ(bpe.decode(Ids{300, 303}),
            "<m>\xe9\xe9");  // Hugging Face reads the alphabet there as well
  EXPECT_THROW(bpe.decode(Ids{299}), Error);
}

// What Hugging Face's tokenizers give.
TEST(Tokenizer, BehaviorsOfSplits) {
  using Words = std::vector<std::string>;
  const std::string text = "a--b-c";
  EXPECT_EQ(words({{"-", SplitBehavior::removed}}, text), (Words{"a", "b", "c"}));
  EXPECT_EQ(words({{"-", SplitBehavior::isolated}}, text), (Words{"a", "-", "-", "b", "-", "c"}));
  EXPECT_EQ(words({{"-", SplitBehavior::contiguous}}, text), (Words{"a", "--", "b", "-", "c"}));
  EXPECT_EQ(words({{"-", SplitBehavior::merged_with_previous}}, text),
            (Words{"a-", "-", "b-", "c"}));
  EXPECT_EQ(words({{"-", SplitBehavior::merged_with_next}}, text), (Words{"a", "-", "-b", "-c"}));
  EXPECT_EQ(words({{"[abc]", SplitBehavior::removed, true}}, text), (Words{"a", "b", "c"}));
  EXPECT_EQ(words({{"\\p{N}"}, {"x(?=1)"}}, "x1"), (Words{"x", "1"}));  // no look beyond a piece
  EXPECT_EQ(words({}, text), (Words{text}));
}

TEST(Tokenizer, UnsupportedPartsAreNamed) {
  EXPECT_EQ(refusal(tiny()), "");
  const auto with = [](const char* pointer, Json value) {
    Json json = tiny();
    json[Json::json_pointer(pointer)] = std::move(value);
    return refusal(json);
  };
  const auto names = [](const std::string& message, const char* what) {
    return message.find("t.json") != std::string::npos && message.find(what) != std::string::npos;
  };
  const auto split = [](const char* regex) {
    return Json{{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}};
  };
  EXPECT_TRUE(names(with("/model/type", "Unigram"), "/model/type"));
  EXPECT_TRUE(names(with("/model/byte_fallback", true), "/model/byte_fallback"));
  EXPECT_TRUE(names(with("/model/dropout", 0.1), "/model/dropout"));
  EXPECT_TRUE(names(with("/model/end_of_word_suffix", "</w>"), "/model/end_of_word_suffix"));
  EXPECT_TRUE(names(with("/truncation", {{"max_length", 8}}), "/truncation"));
  EXPECT_TRUE(names(with("/normalizer", {{"type", "Lowercase"}}), "Lowercase"));
  EXPECT_TRUE(names(with("/pre_tokenizer", {{"type", "Metaspace"}}), "Metaspace"));
  EXPECT_TRUE(names(with("/pre_tokenizer", nullptr), "/pre_tokenizer"));
  EXPECT_TRUE(names(with("/pre_tokenizer", split("a")), "ByteLevel"));
  for (const char* regex : {"(", "\\bx", "(?<name>x)", "[[:alpha:]]", "(x)\\1", "(?m:x)"}) {
    EXPECT_TRUE(names(with("/pre_tokenizer", split(regex)), "/pre_tokenizer") ||
                !with("/pre_tokenizer", split(regex)).empty());
    EXPECT_THROW(words({{regex}}, ""), Error) << regex;
  }
  EXPECT_TRUE(names(with("/decoder", {{"type", "Metaspace"}}), "/decoder"));
  EXPECT_TRUE(names(with("/model/vocab/ab", "x"), "/model/vocab/ab"));
  EXPECT_TRUE(names(with("/model/vocab/ab", 1), "/model/vocab/"));
  EXPECT_TRUE(names(with("/model/vocab/ab", int64_t{1} << 40), "/model/vocab/ab"));
  EXPECT_TRUE(names(with("/model/merges/1", Json::array({"a", "nowhere"})), "/model/merges/1"));
  EXPECT_TRUE(names(with("/added_tokens", Json::array({added(7, "x y")})), "/added_tokens/0"));
  EXPECT_TRUE(names(with("/added_tokens", Json::array({added(7, "ab")})), "/added_tokens/0"));
  EXPECT_TRUE(names(with("/added_tokens", Json::array({added(300, "")})), "/added_tokens/0"));
}

// Damage by bytes and by values: an Error or a tokenizer, never a crash.
TEST(Tokenizer, AThousandMutatedFiles) {
  const std::string small = read_file(golden("small_bpe.json"));
  const Json whole = Json::parse(small);
  std::vector<Json::json_pointer> places, settings;
  const Json leaves = whole.flatten();
  for (const auto& [key, value] : leaves.items()) {
    const bool entry = key.starts_with("/model/vocab") || key.starts_with("/model/merges");
    (entry ? places : settings).emplace_back(key);
  }
  const Json values[] = {nullptr,           true, -1,  0.5,         1ull << 63,    "",
                         "\u0120",          "(",  "[", "ByteLevel", Json::array(), Json::object(),
                         Json::array({"a"})};
  std::mt19937 random(3);
  int loaded = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string bytes;
    if (i % 2 == 0) {
      Json json = whole;
      for (unsigned n = random() % 3 + 1; n > 0; --n) {
        const auto& from = random() % 4 ? settings : places;
        auto place = from[random() % from.size()];
        if (random() % 4 == 0 && !place.parent_pointer().empty()) place = place.parent_pointer();
        if (json.contains(place)) json[place] = values[random() % std::size(values)];
      }
      bytes = json.dump();
    } else {
      bytes = small;
      for (unsigned n = random() % 4 + 1; n > 0; --n) {
        const size_t at = random() % bytes.size();
        if (random() % 16 == 0) bytes.resize(at + 1);
        bytes[at] = static_cast<char>(random() % 2 ? random() : 32 + random() % 95);
      }
    }
    try {
      const Bpe bpe = Bpe::parse(bytes, "mutated.json");
      const Ids ids = bpe.encode_with_added("it's <|im_end|> 床 1234\n\n  x");
      bpe.decode_text(ids);
      ++loaded;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(loaded, 20);
  EXPECT_LT(loaded, 980);
}

TEST(Tokenizer, FilesThatAreNone) {
  const TemporaryFolder folder;
  for (const std::string& bytes : {std::string(), std::string("{}"), std::string("{\"a\":"),
                                   std::string("[1]"), std::string("\n\n"), std::string(100, '\0'),
                                   read_file(golden("small_spm.model")).substr(9)}) {
    put_bytes(folder / "file", bytes);
    EXPECT_THROW(load_tokenizer(folder / "file"), Error);
  }
  EXPECT_THROW(load_tokenizer(folder / "absent"), Error);
}

}  // namespace
}  // namespace myriad
