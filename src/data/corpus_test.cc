#include "data/corpus.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/files.h"
#include "data/testing.h"

namespace myriad {
namespace {

std::string refusal(const std::filesystem::path& path) {
  try {
    read_corpus(path);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Corpus, ReadsLinesAndFolders) {
  const TemporaryFolder folder;
  write_file_aside(folder / "b.jsonl",
                   "{\"text\": \"\\u5e8a\\u524d\\n\", \"source\": \"tang\", \"lang\": \"zh\"}\n\n"
                   "{\"text\": \"\"}\r\n{\"lang\": null, \"text\": \"plain\"}");
  write_file_aside(folder / "a.txt", "whole file\n");
  write_file_aside(folder / "ignored.md", "no");
  const auto lines = read_corpus(folder / "b.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].text, "床前\n");
  EXPECT_EQ(lines[0].source, "tang");
  EXPECT_EQ(lines[0].lang, "zh");
  EXPECT_EQ(lines[1].text, "plain");
  EXPECT_EQ(lines[1].lang, "");
  const auto all = read_corpus(folder / "");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].text, "whole file\n");
  EXPECT_EQ(all[0].source, "a.txt");
}

TEST(Corpus, RefusalsNameFileLineAndKey) {
  const TemporaryFolder folder;
  write_file_aside(folder / "a.jsonl", "{\"text\": \"fine\"}\n{\"text\": \n");
  EXPECT_NE(refusal(folder / "a.jsonl").find("a.jsonl:2"), std::string::npos);
  write_file_aside(folder / "a.jsonl", "{\"text\": \"fine\"}\n{\"source\": \"x\"}\n");
  EXPECT_NE(refusal(folder / "a.jsonl").find("a.jsonl:2: key \"text\""), std::string::npos);
  write_file_aside(folder / "a.jsonl", "{\"text\": \"fine\", \"lang\": 3}\n");
  EXPECT_NE(refusal(folder / "a.jsonl").find("a.jsonl:1: key \"lang\""), std::string::npos);
  write_file_aside(folder / "a.jsonl", "{\"text\": \"\xff\"}\n");  // not UTF-8
  EXPECT_NE(refusal(folder / "a.jsonl").find("a.jsonl:1"), std::string::npos);
  write_file_aside(folder / "a.jsonl", "");
  EXPECT_NE(refusal(folder / "a.jsonl").find("no documents"), std::string::npos);
  EXPECT_NE(refusal(folder / "absent.jsonl").find("absent.jsonl"), std::string::npos);
  write_file_aside(folder / "a.md", "x");
  EXPECT_NE(refusal(folder / "a.md"), "");
}

TEST(Corpus, SplitsByContent) {
  std::vector<Document> documents;
  for (int i = 0; i < 5000; ++i) documents.push_back({"document " + std::to_string(i), "", ""});
  const CorpusSplit split = split_corpus(documents, 100);
  EXPECT_EQ(split.training.size() + split.held_out.size(), 5000u);
  EXPECT_NEAR(static_cast<double>(split.held_out.size()), 500, 100);  // 4.7 standard deviations
  for (const auto& document : split.held_out) EXPECT_TRUE(is_held_out(document.text, 100));
  for (const auto& document : split.training) EXPECT_FALSE(is_held_out(document.text, 100));
  for (const auto& document : split_corpus(documents, 50).held_out) {
    EXPECT_TRUE(is_held_out(document.text, 100));  // a larger share holds the smaller
  }
  EXPECT_TRUE(split_corpus(documents, 0).held_out.empty());
  EXPECT_TRUE(split_corpus(documents, 1000).training.empty());
  EXPECT_THROW(split_corpus(documents, 1001), Error);
}

TEST(Corpus, CommittedSampleReads) {
  const auto documents =
      read_corpus(std::filesystem::path(MYRIAD_SOURCE) / "data/sample/documents.jsonl");
  int64_t zh = 0, en = 0;
  for (const auto& document : documents)
    (document.lang == "zh" ? zh : en) += std::ssize(document.text);
  EXPECT_GT(zh, 100000);
  EXPECT_GT(en, 100000);
}

}  // namespace
}  // namespace myriad
