#include "data/compress.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "data/files.h"
#include "data/testing.h"

namespace myriad {
namespace {

std::string prose(size_t size) {
  std::string text;
  for (uint64_t i = 1; text.size() < size; i = i * 6364136223846793005u + 1442695040888963407u) {
    static const char* words[] = {"the ", "of ",   "月光", "model ", "and\n",
                                  "，",   "train", "ing ", "42 ",    "。\n"};
    text += words[(i >> 33) % 10];
  }
  return text;
}

// Bytes that a shell command writes, or -1 if it cannot be run.
int64_t tool_bytes(const std::string& command) {
  FILE* pipe = popen((command + " 2>/dev/null | wc -c").c_str(), "r");
  int64_t bytes = -1;
  if (pipe == nullptr || std::fscanf(pipe, "%ld", &bytes) != 1) bytes = -1;
  if (pipe != nullptr) pclose(pipe);
  return bytes > 0 ? bytes : -1;
}

TEST(Compress, EqualsTheTools) {
  const TemporaryFolder folder;
  for (const size_t size : {0u, 1000u, 700000u}) {
    const std::string text = prose(size);
    write_file_aside(folder / "text", text);
    const std::string file = (folder / "text").string();
    const int64_t gzip = tool_bytes("gzip -9 -n -c " + file),
                  zstd = tool_bytes("zstd -19 -q -c " + file);
    // zlib and gzip end their blocks at other places: 0.2 % and a header's worth.
    if (gzip > 0) {
      EXPECT_NEAR(gzip9_bytes(text), gzip, 20 + 0.002 * static_cast<double>(gzip)) << size;
    }
    if (zstd > 0) {
      EXPECT_NEAR(zstd19_bytes(text), zstd, 20 + 0.002 * static_cast<double>(zstd)) << size;
    }
    EXPECT_GE(gzip9_bytes(text), 20);  // header and trailer
  }
}

TEST(Compress, LiesBetweenKnownBounds) {
  const std::string text = prose(200000), zeros(200000, '\0');
  // Ten words drawn evenly: log2(10) bits each, which no compressor can beat.
  const double words = 200000 / 4.2, bound = words * 3.3219 / 8;
  EXPECT_GT(static_cast<double>(zstd19_bytes(text)), bound);
  EXPECT_LT(static_cast<double>(zstd19_bytes(text)), 1.6 * bound);
  EXPECT_GT(static_cast<double>(gzip9_bytes(text)), bound);
  EXPECT_LT(static_cast<double>(gzip9_bytes(text)), 1.9 * bound);
  EXPECT_LT(gzip9_bytes(zeros), 300);
  EXPECT_LT(zstd19_bytes(zeros), 100);
}

}  // namespace
}  // namespace myriad
