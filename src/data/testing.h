// For the tests of this folder: a folder of its own that goes away, and packed files made from
// token lists.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "data/packed.h"

namespace myriad {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "myriad-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Without the sync of write_file_aside, which tests that write many files need not wait for.
inline void put_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

using TokenLists = std::vector<std::vector<int32_t>>;

// Each token stands for three bytes of text.
inline PackedFile pack(const std::filesystem::path& path, const TokenLists& documents) {
  PackedWriter writer(path, {.hash = 7, .vocabulary = 100000, .end_of_text = 0});
  for (const auto& tokens : documents) writer.add(tokens, 3 * std::ssize(tokens));
  writer.finish();
  return PackedFile::open(path);
}

// Documents of 0 to `longest` tokens; all tokens of all documents differ, so that a token tells its
// place.
inline TokenLists numbered_documents(int count, int longest) {
  TokenLists documents(count);
  int32_t token = 1;
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < i * 7919 % (longest + 1); ++k) documents[i].push_back(token++);
  }
  return documents;
}

}  // namespace myriad
