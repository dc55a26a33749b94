#include "ckpt/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

namespace myriad {
namespace {

namespace fs = std::filesystem;

class SafeTensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("safetensors_test.{}", ::getpid());
    fs::create_directories(folder_);
    path_ = folder_ / "t.safetensors";
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  // A file of this header and as many data bytes.
  void write(const std::string& header, size_t data) const {
    const uint64_t n = header.size();
    write(std::string(reinterpret_cast<const char*>(&n), 8) + header + std::string(data, '\1'));
  }

  std::string refusal() const {
    try {
      SafeTensors::open(path_);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(path_), std::string::npos);
      return e.what();
    }
    return "accepted";
  }

  fs::path folder_;
  std::string path_;
};

template <typename T>
std::span<const std::byte> raw(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}

TEST_F(SafeTensorsTest, WrittenIsReadBack) {
  const std::vector<double> f64 = {1.5, -0.0, 1e300};
  const std::vector<float> f32 = {0.1f, -2, 3, 4, 5, 6};
  const std::vector<uint16_t> bf16 = {0x3f80, 0xc000, 0x7f80},
                              f16 = {0x3c00, 0xc100, 0x0001, 0x7bff, 0xfc00};
  const std::vector<int64_t> i64 = {-100, INT64_MAX};
  const std::vector<int32_t> i32 = {7, -8};
  const std::vector<TensorEntry> entries = {
      {"h", Stored::bf16, {3}, raw(bf16)},  {"f", Stored::f16, {5, 1}, raw(f16)},
      {"a", Stored::f32, {2, 3}, raw(f32)}, {"d", Stored::f64, {3}, raw(f64)},
      {"i", Stored::i64, {2}, raw(i64)},    {"j", Stored::i32, {2}, raw(i32)},
      {"empty", Stored::f32, {0, 4}, {}},   {"one", Stored::f32, {}, raw(f32).first(4)}};
  ASSERT_TRUE(write_safetensors(path_, entries).ok());
  EXPECT_FALSE(fs::exists(path_ + ".part"));
  const SafeTensors file = SafeTensors::open(path_);
  EXPECT_EQ(file.names().size(), entries.size());
  EXPECT_EQ(file.doubles("d"), f64);
  EXPECT_EQ(file.doubles("a"), std::vector<double>(f32.begin(), f32.end()));
  EXPECT_EQ(file.doubles("h"), (std::vector<double>{1, -2, HUGE_VAL}));
  EXPECT_EQ(file.doubles("f"),
            (std::vector<double>{1, -2.5, std::ldexp(1, -24), 65504, -HUGE_VAL}));
  EXPECT_EQ(file.integers("i"), i64);
  EXPECT_EQ(file.integers("j"), (std::vector<int64_t>{7, -8}));
  EXPECT_TRUE(file.doubles("empty").empty());
  EXPECT_EQ(file.info("a").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file.info("one").elements(), 1);
  for (const std::string& name : file.names()) {
    EXPECT_EQ(file.info(name).begin % static_cast<uint64_t>(bytes_of(file.info(name).type)), 0u)
        << name;
  }
  float part[2];
  file.read("a", 8, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part[0], 3);
  EXPECT_EQ(part[1], 4);
  EXPECT_THROW(file.doubles("i"), Error);
  EXPECT_THROW(file.integers("a"), Error);
  EXPECT_THROW(file.info("b"), Error);
}

TEST_F(SafeTensorsTest, ReadsAGolden) {
  const SafeTensors file =
      SafeTensors::open(std::string(MYRIAD_SOURCE) + "/tests/golden/telechat2/batches.safetensors");
  EXPECT_EQ(file.names().size(), 16u);
  EXPECT_EQ(file.info("targets.3").shape, (std::vector<int64_t>{4, 24}));
  EXPECT_EQ(file.integers("targets.3").size(), 96u);
}

TEST_F(SafeTensorsTest, AFaultLeavesTheOldFile) {
  write("old");
  EXPECT_FALSE(write_safetensors((folder_ / "nowhere" / "t").string(), {}).ok());
  fs::create_directory(path_ + ".part");  // cannot be opened for writing
  const Outcome outcome = write_safetensors(path_, {});
  EXPECT_NE(outcome.reason.find(path_), std::string::npos);
  std::ifstream file(path_);
  std::string text;
  file >> text;
  EXPECT_EQ(text, "old");
}

TEST_F(SafeTensorsTest, ATruncatedFileIsSeenOnReading) {
  write(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4);
  const SafeTensors file = SafeTensors::open(path_);
  fs::resize_file(path_, fs::file_size(path_) - 1);
  EXPECT_THROW(file.bytes("a"), Error);
}

TEST_F(SafeTensorsTest, RefusesWhatIsNotWhole) {
  struct {
    const char* header;
    size_t data;
    const char* part;
  } cases[] = {
      {R"({})", 0, "accepted"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}   )", 4, "accepted"},
      {R"({"a":)", 0, "not JSON"},
      {"\xff\xfe", 0, "not JSON"},
      {R"([1])", 0, "not a JSON object"},
      {R"({"a":1})", 0, "is not an object"},
      {R"({"a":{"dtype":"U8","shape":[4]}})", 4, "data_offsets is missing"},
      {R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype \"F33\""},
      {R"({"a":{"dtype":3,"shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype 3"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "does not take the 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "holds -1"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "holds 1.0"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "does not take the 0 bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "not [begin, end]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "not [begin, end]"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4,
       "ends at offset 8 of 4 data bytes"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5, "belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5,
       "tensor \"a\": its data begins at offset"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
       5, "tensor \"b\""},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, "\"a\" stands twice"},
  };
  for (const auto& c : cases) {
    write(c.header, c.data);
    EXPECT_NE(refusal().find(c.part), std::string::npos) << c.header << "\n" << refusal();
  }
  write("short");
  EXPECT_NE(refusal().find("no safetensors"), std::string::npos);
  write(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10));
  EXPECT_NE(refusal().find("header is said"), std::string::npos);
  fs::remove(path_);
  EXPECT_NE(refusal().find("cannot be opened"), std::string::npos);
  fs::create_directory(path_);
  EXPECT_NE(refusal().find("not a regular file"), std::string::npos);
}

// Bytes changed, cut out, put in or repeated at random: every result is an Error or a file whose
// tensors can all be read.
TEST_F(SafeTensorsTest, MutatedFilesNeverCrash) {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> b = {1, 2};
  const std::vector<TensorEntry> entries = {{"layer.0.weight", Stored::f32, {2, 3}, raw(a)},
                                            {"ids", Stored::i64, {2}, raw(b)}};
  ASSERT_TRUE(write_safetensors(path_, entries).ok());
  std::string whole(fs::file_size(path_), '\0');
  std::ifstream(path_, std::ios::binary)
      .read(whole.data(), static_cast<std::streamsize>(whole.size()));
  std::mt19937 random(1);
  const std::string likely = "0123456789[]{}\",:-.eE \\u/BOFI";
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    std::string text = whole;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0 && !text.empty(); --edits) {
      const size_t at = random() % text.size();
      switch (random() % 5) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text[at] = likely[random() % likely.size()];
          break;
        case 2:
          text.erase(at, 1 + random() % 8);
          break;
        case 3:
          text.insert(at, 1, likely[random() % likely.size()]);
          break;
        case 4:
          text.insert(at, text.substr(random() % text.size(), random() % 60));
          break;
      }
      // Most changes of the length would be seen at the header's length alone.
      const uint64_t header = text.size() - std::min<size_t>(text.size(), 8 + 40);
      if (random() % 4 != 0 && text.size() > 8) std::memcpy(text.data(), &header, 8);
    }
    write(text);
    try {
      const SafeTensors file = SafeTensors::open(path_);
      for (const std::string& name : file.names())
        EXPECT_EQ(file.bytes(name).size(), file.info(name).bytes);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
  EXPECT_LT(refused, 600);
}

}  // namespace
}  // namespace myriad
