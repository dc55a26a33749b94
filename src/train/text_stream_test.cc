#include "train/text_stream.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "data/bpe.h"
#include "data/unicode_text.h"

namespace myriad {
namespace {

// A token a byte: 1 + byte.
Bpe bytes() { return Bpe::from_merges({}); }

std::vector<int32_t> spelled(std::string_view text) {
  std::vector<int32_t> ids;
  for (char c : text) ids.push_back(Bpe::kFirstByte + static_cast<unsigned char>(c));
  return ids;
}

// What each byte of `text` lets through, parted by '|', and what the end does.
std::string streamed(std::string_view text, std::vector<std::string> stops = {}) {
  const Bpe bpe = bytes();
  TextStream stream(bpe, spelled("a prompt"), std::move(stops));
  std::string out;
  for (int32_t id : spelled(text)) {
    out += stream.add(id) + "|";
    if (stream.stopped()) break;
  }
  return out + stream.finish();
}

TEST(TextStream, CharactersComeWhole) {
  EXPECT_EQ(streamed("a中b"), "a|||中|b|");
  EXPECT_EQ(streamed("😀"), "|||😀|");
  EXPECT_EQ(streamed("a\xE4\xB8"), "a|||") << "what is open at the end is dropped";
}

TEST(TextStream, WhatIsNoCharacterIsReplacedOnceThatIsSure) {
  EXPECT_EQ(streamed("\x80z"), "\uFFFD|z|");
  EXPECT_EQ(streamed("\xE4\xB8z"), "||\uFFFDz|");
}

TEST(TextStream, StopsAreHeldBackUntilTheyAreNone) {
  EXPECT_EQ(streamed("one. two", {". t"}), "o|n|e||||");
  EXPECT_EQ(streamed("one. Two", {". t"}), "o|n|e|||. T|w|o|");
  EXPECT_EQ(streamed("aab", {"ab"}), "|a||") << "the beginning may begin again";
  EXPECT_EQ(streamed("x中", {"中"}), "x||||");
  EXPECT_EQ(streamed("one.", {". t"}), "o|n|e||.") << "the end lets go of it";
  EXPECT_EQ(streamed("abc", {"c", "b"}), "a||") << "whichever comes first";
}

TEST(TextStream, ATokenOfManyCharacters) {
  const Bpe bpe = Bpe::from_merges({{1 + 'a', 1 + 'b'}, {257, 1 + 'c'}});
  TextStream stream(bpe, {}, {"b"});
  EXPECT_EQ(stream.add(258), "a");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.text(), "a");
}

// Spaces of SentencePiece stand before words: they must neither be lost nor doubled.
TEST(TextStream, SentencePieceGivesTheSameTextPieceByPiece) {
  const auto model = load_tokenizer(std::filesystem::path(MYRIAD_SOURCE) /
                                    "tests/golden/tokenizers/small_spm.model");
  for (const char* text : {"The kernel can be installed.", "安装 Debian 系统 😀", "a  b\tc"}) {
    const std::vector<int32_t> ids = model->encode(text);
    for (size_t cut = 0; cut <= ids.size(); ++cut) {
      const std::span<const int32_t> all(ids);
      TextStream stream(*model, all.first(cut), {});
      std::string out = model->decode(all.first(cut));
      if (whole_characters(out) < out.size() || out.ends_with("\uFFFD"))
        continue;  // amid a character
      for (int32_t id : all.subspan(cut)) out += stream.add(id);
      EXPECT_EQ(out + stream.finish(), model->decode(ids)) << text << ", from token " << cut;
    }
  }
}

}  // namespace
}  // namespace myriad
