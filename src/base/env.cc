// Changes to the disk, each through Env::before, and checksums of what is written. A test's Env can
// refuse a change or end the process there, and thereby reach every state that a crash can leave;
// this is why removal asks for each entry, the inner ones first, and why NewFile asks for each
// piece of at most 1 MiB. NewFile keeps its first fault and ignores later calls, so that callers
// write without checks and ask once, in finish(). Short writes and interrupted calls are repeated.
// Read Env::rename for the pattern, then NewFile::write.

#include "base/env.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace myriad {

namespace fs = std::filesystem;

namespace {

constexpr size_t kPiece = 1 << 20;

Outcome refused(const fs::path& path, const char* what, const std::string& reason) {
  return {fmt::format("{}: cannot be {}: {}", path.string(), what, reason)};
}
Outcome refused(const fs::path& path, const char* what) {
  return refused(path, what, std::strerror(errno));
}

}  // namespace

Outcome Env::make_folder(const fs::path& path) {
  if (fs::is_directory(path)) return {};
  if (Outcome o = before(DiskCall::make_folder, path); !o.ok())
    return refused(path, "made", o.reason);
  std::error_code code;
  fs::create_directory(path, code);
  return code ? refused(path, "made", code.message()) : Outcome{};
}

Outcome Env::flush(const fs::path& path) {
  if (Outcome o = before(DiskCall::flush, path); !o.ok()) return refused(path, "flushed", o.reason);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return refused(path, "opened");
  const bool ok = ::fsync(descriptor) == 0;
  const Outcome outcome = ok ? Outcome{} : refused(path, "flushed");
  ::close(descriptor);
  return outcome;
}

Outcome Env::rename(const fs::path& from, const fs::path& to) {
  if (Outcome o = before(DiskCall::rename, from); !o.ok())
    return refused(from, "renamed", o.reason);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  // Some file systems do not know the flag.
  if (errno == EINVAL && !fs::exists(to) && ::rename(from.c_str(), to.c_str()) == 0) return {};
  return refused(from, "renamed");
}

Outcome Env::replace(const fs::path& from, const fs::path& to) {
  if (Outcome o = before(DiskCall::rename, from); !o.ok())
    return refused(from, "renamed", o.reason);
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  return refused(from, "renamed");
}

Outcome Env::exchange(const fs::path& from, const fs::path& to) {
  if (Outcome o = before(DiskCall::rename, from); !o.ok())
    return refused(from, "renamed", o.reason);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return {};
  return refused(from, "exchanged");
}

Outcome Env::remove(const fs::path& path) {
  std::error_code code;
  if (!fs::exists(fs::symlink_status(path, code))) return {};
  std::vector<fs::path> inner;
  if (fs::is_directory(fs::symlink_status(path, code))) {
    for (const auto& entry : fs::directory_iterator(path, code)) inner.push_back(entry.path());
  }
  for (const fs::path& p : inner) {
    if (Outcome o = remove(p); !o.ok()) return o;
  }
  if (Outcome o = before(DiskCall::remove, path); !o.ok())
    return refused(path, "removed", o.reason);
  fs::remove(path, code);
  return code ? refused(path, "removed", code.message()) : Outcome{};
}

struct Checksum::State {
  XXH3_state_t hash;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->hash); }
Checksum::~Checksum() = default;
void Checksum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->hash, bytes.data(), bytes.size());
}
std::string Checksum::hex() const {
  return fmt::format("{:016x}", XXH3_64bits_digest(&state_->hash));
}

std::string checksum_of(std::string_view bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

std::string checksum_of_file(const fs::path& path, uint64_t& bytes) {
  std::ifstream in(path, std::ios::binary);
  if (!in || fs::is_directory(path))
    throw Error(fmt::format("cannot be opened: {}", std::strerror(errno)), path);
  Checksum sum;
  std::vector<char> piece(kPiece);
  bytes = 0;
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0) {
    const auto n = static_cast<size_t>(in.gcount());
    sum.add(std::as_bytes(std::span(piece.data(), n)));
    bytes += n;
  }
  if (in.bad()) throw Error(fmt::format("cannot be read at offset {}", bytes), path);
  return sum.hex();
}

NewFile::NewFile(Env& env, fs::path path) : env_(env), path_(std::move(path)) {
  if (Outcome o = env_.before(DiskCall::create, path_); !o.ok()) {
    fault_ = refused(path_, "made", o.reason);
    return;
  }
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("made");
}

NewFile::~NewFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void NewFile::fail(const char* what) {
  if (fault_.ok()) fault_ = refused(path_, what);
}

void NewFile::write(std::span<const std::byte> bytes) {
  checksum_.add(bytes);
  bytes_ += bytes.size();
  while (fault_.ok() && !bytes.empty()) {
    if (Outcome o = env_.before(DiskCall::write, path_); !o.ok()) {
      fault_ = refused(path_, "written", o.reason);
      return;
    }
    std::span<const std::byte> piece = bytes.first(std::min(bytes.size(), kPiece));
    bytes = bytes.subspan(piece.size());
    while (!piece.empty()) {
      const ssize_t n = ::write(descriptor_, piece.data(), piece.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail("written");
      piece = piece.subspan(static_cast<size_t>(n));
    }
  }
}

void NewFile::rewrite_start(std::span<const std::byte> bytes) {
  if (!fault_.ok()) return;
  if (Outcome o = env_.before(DiskCall::write, path_); !o.ok()) {
    fault_ = refused(path_, "written", o.reason);
    return;
  }
  off_t at = 0;
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(descriptor_, bytes.data(), bytes.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail("written");
    bytes = bytes.subspan(static_cast<size_t>(n));
    at += n;
  }
}

Outcome NewFile::finish() {
  if (!fault_.ok()) return fault_;
  if (Outcome o = env_.before(DiskCall::flush, path_); !o.ok()) {
    fault_ = refused(path_, "flushed", o.reason);
    return fault_;
  }
  if (::fsync(descriptor_) != 0) fail("flushed");
  if (::close(descriptor_) != 0) fail("closed");
  descriptor_ = -1;
  return fault_;
}

}  // namespace myriad
