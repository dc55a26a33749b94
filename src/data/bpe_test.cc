#include "data/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/error.h"
#include "data/files.h"
#include "data/testing.h"

namespace myriad {
namespace {

const std::vector<std::string>& texts() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> made;
    for (int i = 0; i < 30; ++i) {
      made.push_back("the cat sat on the mat, and the other cat didn't; number " +
                     std::to_string(i * i) + "\n");
      made.push_back(
          "床前明月光，疑是地上霜。举头望明月，低头思故乡。\n\n    the "
          "moon\t🙂🙂\n");
      made.push_back("aaaa aaaaaaa aaa   bbbbbb " + std::string(i, 'a'));
    }
    return made;
  }();
  return texts;
}

Bpe trained(int vocabulary = 400) {
  const std::vector<std::string_view> views(texts().begin(), texts().end());
  return Bpe::train(views, vocabulary);
}

std::vector<std::string> words(std::string_view text) {
  static const PreTokenizer pre_tokenizer(read_settings(trained_settings(), "").splits);
  std::vector<std::string_view> views;
  pre_tokenizer.split(text, views);
  return {views.begin(), views.end()};
}

// Merging by its definition: the whole word is scanned for the pair of lowest rank, again and
// again.
std::vector<int32_t> plain_encode(const Bpe& bpe, std::string_view text) {
  std::map<std::pair<int32_t, int32_t>, int32_t> rank;
  for (const auto& [left, right, made] : bpe.merges()) {
    rank.emplace(std::pair(left, right), static_cast<int32_t>(rank.size()));
  }
  std::vector<int32_t> all;
  for (const std::string& word : words(text)) {
    std::vector<int32_t> ids;
    for (const char byte : word) ids.push_back(Bpe::kFirstByte + static_cast<uint8_t>(byte));
    while (true) {
      int32_t best = INT32_MAX;
      size_t place = 0;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto found = rank.find({ids[i], ids[i + 1]});
        if (found != rank.end() && found->second < best) best = found->second, place = i;
      }
      if (best == INT32_MAX) break;
      ids[place] = Bpe::kFirstMerge + best;
      ids.erase(ids.begin() + static_cast<ptrdiff_t>(place) + 1);
    }
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

std::string random_bytes(std::mt19937& random, size_t size) {
  static const std::string common = "aab th\n '床月🙂";
  std::string bytes;
  while (bytes.size() < size) {
    bytes += random() % 2 ? common[random() % common.size()] : static_cast<char>(random());
  }
  return bytes;
}

// The expectations are what Python's `regex` and Hugging Face's tokenizers give for the pattern of
// trained tokenizers.
TEST(Bpe, CutsWordsAsTheExpressionDoes) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(words("Hello world"), (Words{"Hello", " world"}));
  EXPECT_EQ(words("it's I'LL we'Xe"), (Words{"it", "'s", " I", "'LL", " we", "'Xe"}));
  EXPECT_EQ(words("12345 6"), (Words{"123", "45", " ", "6"}));
  EXPECT_EQ(words("a  b   \n\n  c"), (Words{"a", " ", " b", "   \n\n", " ", " c"}));
  EXPECT_EQ(words("x = (y)!!\n\nz  "), (Words{"x", " =", " (", "y", ")!!\n\n", "z", "  "}));
  EXPECT_EQ(words("你好，世界。\u30001"), (Words{"你好", "，世界", "。", "\u3000", "1"}));
  EXPECT_EQ(words("\xff\xfe"
                  "a"),
            (Words{"\xff\xfe", "a"}));
  EXPECT_EQ(words("\xe5\xba"), (Words{"\xe5\xba"}));  // a character cut short
}

TEST(Bpe, RoundTripOfAnyBytes) {
  const Bpe bpe = trained();
  std::vector<std::string> cases = {
      "",           "a",        std::string("\0a\0\0", 4), "\xff\xfe\xc0\x80",
      "床前明月光", "\xe5\xba", "🙂👩‍👩‍👧",  "<|endoftext|>",
      " \n\r\n\t ", "e\u0301"};
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) cases.push_back(random_bytes(random, random() % 200));
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every += static_cast<char>(byte);
  cases.push_back(every);
  for (const std::string& text : cases) {
    const std::vector<int32_t> ids = bpe.encode(text);
    EXPECT_EQ(bpe.decode(ids), text);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), bpe.end_of_text()), 0);
  }
}

TEST(Bpe, EncodesAsThePlainRuleDoes) {
  const Bpe bpe = trained();
  std::mt19937 random(2);
  for (const std::string& text : texts()) EXPECT_EQ(bpe.encode(text), plain_encode(bpe, text));
  for (int i = 0; i < 100; ++i) {
    const std::string text = random_bytes(random, 100);
    EXPECT_EQ(bpe.encode(text), plain_encode(bpe, text));
  }
  const std::string long_word(5000, 'a');
  EXPECT_EQ(bpe.encode(long_word), plain_encode(bpe, long_word));
}

TEST(Bpe, TrainsTheMostFrequentPairFirstAndTiesByLowerIds) {
  const auto byte = [](char c) { return Bpe::kFirstByte + c; };
  const std::vector<std::string_view> documents = {"cdcd.abab.xyz.xyz.xyz"};
  const Bpe bpe = Bpe::train(documents, 1000);
  // ".x", "xy" and "yz" occur three times each; the lowest pair of ids is the first, and breaks up
  // "xy".
  ASSERT_GE(bpe.merges().size(), 2u);
  EXPECT_EQ(bpe.merges()[0], (BpeMerge{byte('.'), byte('x'), 257}));
  EXPECT_EQ(bpe.merges()[1], (BpeMerge{byte('y'), byte('z'), 258}));
  EXPECT_LT(bpe.vocabulary(), 1000);  // no pair occurs twice any more
}

// Counts every pair afresh for each merge.
TEST(Bpe, TrainsAsThePlainRuleDoes) {
  const Bpe bpe = trained(330);
  std::vector<std::vector<int32_t>> split;
  for (const std::string& text : texts()) {
    for (const std::string& word : words(text)) {
      auto& ids = split.emplace_back();
      for (const char c : word) ids.push_back(Bpe::kFirstByte + static_cast<uint8_t>(c));
    }
  }
  for (size_t rank = 0; rank < bpe.merges().size(); ++rank) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;
    for (const auto& ids : split) {
      for (size_t i = 0; i + 1 < ids.size(); ++i) ++counts[{ids[i], ids[i + 1]}];
    }
    const auto [left, right, made] = bpe.merges()[rank];
    const std::pair merge(left, right);
    for (const auto& [pair, count] : counts) {
      ASSERT_LE(count, counts[merge]) << rank;
      if (count == counts[merge]) {
        ASSERT_LE(merge, pair) << rank;
      }
    }
    for (auto& ids : split) {
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        if (std::make_pair(ids[i], ids[i + 1]) != merge) continue;
        ids[i] = made;
        ids.erase(ids.begin() + static_cast<ptrdiff_t>(i) + 1);
      }
    }
  }
}

TEST(Bpe, DoesNotDependOnTheOrderOfDocuments) {
  const std::vector<std::string_view> backward(texts().rbegin(), texts().rend());
  EXPECT_EQ(Bpe::train(backward, 400).hash(), trained().hash());
  EXPECT_NE(trained(350).hash(), trained().hash());
}

TEST(Bpe, EncodesFromSeveralThreads) {
  const Bpe bpe = trained(), other = trained(300);
  const std::string& text = texts()[1];
  const auto want = bpe.encode(text), want_other = other.encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i)
        wrong[t] += bpe.encode(text) != want || other.encode(text) != want_other;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(Bpe, SavesAndLoadsTheSame) {
  const TemporaryFolder folder;
  const Bpe bpe = trained();
  bpe.save(folder / "tokenizer.json");
  const Bpe loaded = Bpe::load(folder / "tokenizer.json");
  EXPECT_EQ(loaded.hash(), bpe.hash());
  EXPECT_EQ(loaded.merges(), bpe.merges());
  const auto json = nlohmann::json::parse(read_file(folder / "tokenizer.json"));
  EXPECT_EQ(json["added_tokens"][0]["content"], "<|endoftext|>");
  EXPECT_EQ(json["model"]["vocab"]["<|endoftext|>"], 0);
  EXPECT_EQ(json["model"]["vocab"]["Ġ"], Bpe::kFirstByte + ' ');  // GPT-2's name of the space
  EXPECT_EQ(json["model"]["vocab"]["Ċ"], Bpe::kFirstByte + '\n');
}

TEST(Bpe, RefusesDamagedFiles) {
  const TemporaryFolder folder;
  trained().save(folder / "good.json");
  const auto good = nlohmann::json::parse(read_file(folder / "good.json"));
  const auto refused = [&](const nlohmann::json& json) -> std::string {
    write_file_aside(folder / "bad.json", json.dump());
    try {
      Bpe::load(folder / "bad.json");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(refused(good), "");
  auto bad = good;
  bad["model"]["type"] = "WordPiece";
  EXPECT_NE(refused(bad).find("/model/type"), std::string::npos);
  bad = good;
  bad["model"]["merges"][5] = "no-such tokens-here";
  EXPECT_NE(refused(bad).find("/model/merges/5"), std::string::npos);
  bad = good;
  bad["model"]["merges"].push_back(bad["model"]["merges"][3]);
  EXPECT_NE(refused(bad).find("/model/merges"), std::string::npos);
  bad = good;
  bad["model"]["vocab"].erase("Ġ");
  EXPECT_NE(refused(bad), "");
  bad = good;
  bad["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(\\w+";
  EXPECT_NE(refused(bad).find("pattern"), std::string::npos);
  EXPECT_NE(refused(nlohmann::json::array()), "");
  EXPECT_THROW(Bpe::load(folder / "absent.json"), Error);
  EXPECT_THROW(Bpe::train({}, 400), Error);
  EXPECT_THROW(trained(100), Error);
  EXPECT_THROW(trained().decode(std::vector<int32_t>{-1}), Error);
}

}  // namespace
}  // namespace myriad
