#include "data/corpus.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "base/error.h"
#include "data/files.h"
#include "data/testing.h"

namespace myriad {
namespace {

std::string gzipped(std::string_view text) {
  std::string out(text.size() + 100, '\0');
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstandard(std::string_view text) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

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

TEST(Corpus, ReadsCompressedFilesAndFoldersBelow) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "in/deep");
  put_bytes(folder / "in/b.jsonl.gz",
            gzipped("{\"text\": \"one\"}\n") + gzipped("{\"text\": \"two\"}\n"));
  put_bytes(folder / "in/c.txt.zst", zstandard("three") + zstandard(" and more"));
  put_bytes(folder / "in/deep/a.txt", "four");
  const auto documents = read_corpus(folder / "in");
  ASSERT_EQ(documents.size(), 4u);
  EXPECT_EQ(documents[0].text, "one");
  EXPECT_EQ(documents[1].text, "two");
  EXPECT_EQ(documents[2].text, "three and more");
  EXPECT_EQ(documents[2].source, "c.txt.zst");
  EXPECT_EQ(documents[3].source, "deep/a.txt");
}

// Every cut and every flipped byte of a compressed file: refused, or the same text.
TEST(Corpus, DamagedCompressedFilesAreRefusedWithTheirOffset) {
  const TemporaryFolder folder;
  const std::string text = "{\"text\": \"Damage is found where it stands, not later.\"}\n";
  for (const auto& [name, whole] :
       {std::pair("a.jsonl.gz", gzipped(text)), {"a.jsonl.zst", zstandard(text)}}) {
    for (size_t i = 0; i < whole.size(); ++i) {
      put_bytes(folder / name, whole.substr(0, i));
      EXPECT_NE(refusal(folder / name).find(fmt::format("{}: offset {}", name, i)),
                std::string::npos)
          << name << " cut at " << i << ": " << refusal(folder / name);
      std::string flipped = whole;
      flipped[i] ^= 0x10;
      put_bytes(folder / name, flipped);
      if (const std::string found = refusal(folder / name); !found.empty()) {
        EXPECT_NE(found.find(fmt::format("{}: offset ", name)), std::string::npos) << found;
      } else {
        EXPECT_EQ(read_corpus(folder / name)[0].text, "Damage is found where it stands, not later.")
            << i;
      }
    }
  }
}

TEST(Corpus, RefusalsNameFileLineAndKey) {
  const TemporaryFolder folder;
  write_file_aside(folder / "a.jsonl", "{\"text\": \"fine\"}\n{\"text\": \n");
  EXPECT_NE(refusal(folder / "a.jsonl").find("a.jsonl:2"), std::string::npos);
  write_file_aside(folder / "a.jsonl", "{\"text\": \"fine\"}\n{\"source\": \"x\"}\n");
  EXPECT_NE(refusal(folder / "a.jsonl").find("a.jsonl:2: key \"text\""), std::string::npos);
  write_file_aside(folder / "a.jsonl", "{\"text\": \"fine\", \"lang\": 3}\n");
  EXPECT_NE(refusal(folder / "a.jsonl").find("a.jsonl:1: key \"lang\""), std::string::npos);
  write_file_aside(folder / "a.jsonl", "{\"text\": \"\"}\n{\"text\": \"\xff\"}\n");  // not UTF-8
  EXPECT_NE(refusal(folder / "a.jsonl")
                .find("a.jsonl:2: not a JSON object: at byte 11 of the line (offset 23)"),
            std::string::npos)
      << refusal(folder / "a.jsonl");
  write_file_aside(folder / "a.txt", "caf\xe9 noir");
  EXPECT_NE(refusal(folder / "a.txt").find("a.txt: not UTF-8: byte 0xe9 at offset 3"),
            std::string::npos);
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
