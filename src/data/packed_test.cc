#include "data/packed.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/files.h"
#include "data/testing.h"

namespace myriad {
namespace {

std::string refusal(const std::filesystem::path& path) {
  try {
    PackedFile::open(path);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Packed, GivesBackWhatWasWritten) {
  const TemporaryFolder folder;
  const TokenLists documents = numbered_documents(50, 40);
  const PackedFile file = pack(folder / "a.pack", documents);
  ASSERT_EQ(file.documents(), 50);
  int64_t tokens = 0, bytes = 0;
  for (int i = 0; i < 50; ++i) {
    std::vector<int32_t> want = documents[i];
    want.push_back(0);
    const auto got = file.document(i);
    EXPECT_EQ(std::vector<int32_t>(got.begin(), got.end()), want);
    EXPECT_EQ(file.document_begin(i), tokens);
    EXPECT_EQ(file.document_text_bytes(i), 3 * std::ssize(documents[i]));
    tokens += std::ssize(want);
    bytes += 3 * std::ssize(documents[i]);
  }
  EXPECT_EQ(file.tokens(), tokens);
  EXPECT_EQ(std::ssize(file.all_tokens()), tokens);
  EXPECT_EQ(file.text_bytes(), bytes);
  EXPECT_EQ(file.tokenizer().hash, 7u);
  EXPECT_EQ(file.tokenizer().end_of_text, 0);
  const PackedFile copy = file;  // shares the mapping
  EXPECT_EQ(copy.document(3).data(), file.document(3).data());
}

TEST(Packed, HoldsNoDocumentsAtAll) {
  const TemporaryFolder folder;
  EXPECT_EQ(pack(folder / "empty.pack", {}).documents(), 0);
}

TEST(Packed, ManyBlocks) {
  const TemporaryFolder folder;
  const TokenLists documents(3, std::vector<int32_t>(300000, 99999));
  const PackedFile file = pack(folder / "a.pack", documents);  // 3.6 MB: four blocks
  EXPECT_EQ(file.tokens(), 900003);
  std::string bytes = read_file(folder / "a.pack");
  bytes[sizeof(PackedHeader) + (2 << 20) + 12345] ^= 1;
  put_bytes(folder / "b.pack", bytes);
  EXPECT_NE(refusal(folder / "b.pack")
                .find(fmt::format("b.pack: offset {}", sizeof(PackedHeader) + (2 << 20))),
            std::string::npos);
}

TEST(Packed, RefusesEveryFlippedByte) {
  const TemporaryFolder folder;
  pack(folder / "a.pack", numbered_documents(6, 9));
  const std::string good = read_file(folder / "a.pack");
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 0x10;
    put_bytes(folder / "b.pack", bad);
    const std::string text = refusal(folder / "b.pack");
    EXPECT_NE(text.find("b.pack: offset "), std::string::npos) << "byte " << i << ": " << text;
  }
}

TEST(Packed, RefusesEveryOtherLength) {
  const TemporaryFolder folder;
  pack(folder / "a.pack", numbered_documents(6, 9));
  const std::string good = read_file(folder / "a.pack");
  for (size_t size = 0; size < good.size(); ++size) {
    put_bytes(folder / "b.pack", std::string_view(good).substr(0, size));
    EXPECT_NE(refusal(folder / "b.pack").find(fmt::format("b.pack: offset {}: cut short", size)),
              std::string::npos);
  }
  put_bytes(folder / "b.pack", good + "x");
  EXPECT_NE(
      refusal(folder / "b.pack").find(fmt::format("offset {}: 1 bytes too long", good.size())),
      std::string::npos);
  EXPECT_NE(refusal(folder / "absent.pack").find("absent.pack"), std::string::npos);
}

TEST(Packed, UnfinishedWriterLeavesTheOldFile) {
  const TemporaryFolder folder;
  pack(folder / "a.pack", {{1, 2, 3}});
  {
    PackedWriter writer(folder / "a.pack", {.hash = 1, .vocabulary = 10, .end_of_text = 0});
    writer.add(std::vector<int32_t>{4}, 1);
  }
  EXPECT_EQ(PackedFile::open(folder / "a.pack").tokens(), 4);
  EXPECT_FALSE(std::filesystem::exists(folder / "a.pack.part"));
  EXPECT_THROW(PackedWriter(folder / "no/such/a.pack", {}), Failure);
}

}  // namespace
}  // namespace myriad
