// How the disk is changed: the one seam through which a test can refuse or kill at any moment.
// Every call returns the system's reason with the path, and throws nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace myriad {

enum class DiskCall : uint8_t { make_folder, create, write, flush, rename, remove };

class Env {
 public:
  virtual ~Env() = default;
  // Asked before each change; where it is not ok the change is not made and counts as refused.
  virtual Outcome before(DiskCall, const std::filesystem::path&) { return {}; }

  Outcome make_folder(const std::filesystem::path& path);  // its parent exists; fine if it is there
  Outcome flush(const std::filesystem::path& path);        // a folder's names, or a file's bytes
  // Durable after flush() of the parent. rename refuses a name that is taken, replace takes it;
  // exchange lets two change places at once.
  Outcome rename(const std::filesystem::path& from, const std::filesystem::path& to);
  Outcome replace(const std::filesystem::path& from, const std::filesystem::path& to);
  Outcome exchange(const std::filesystem::path& from, const std::filesystem::path& to);
  Outcome remove(const std::filesystem::path& path);  // with all below it; fine if it is not there
};

// xxh3 (64 bits) of bytes that come in pieces, as 16 hex digits.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void add(std::span<const std::byte> bytes);
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
std::string checksum_of(std::string_view bytes);
// Of a whole file; throws Error if it cannot be read. `bytes`: its length.
std::string checksum_of_file(const std::filesystem::path& path, uint64_t& bytes);

// A file being written in pieces of at most 1 MiB. The first fault is kept, what follows it does
// nothing. One thread.
class NewFile {
 public:
  NewFile(Env& env, std::filesystem::path path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Over the first bytes, which have been written; checksum() stays that of what was written first.
  void rewrite_start(std::span<const std::byte> bytes);
  Outcome finish();  // flushed to the disk and closed, or the first fault
  bool ok() const { return fault_.ok(); }
  uint64_t bytes() const { return bytes_; }
  std::string checksum() const { return checksum_.hex(); }

 private:
  void fail(const char* what);
  Env& env_;
  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t bytes_ = 0;
  Checksum checksum_;
  Outcome fault_;
};

}  // namespace myriad
