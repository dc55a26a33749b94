#include "data/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace myriad {

std::string read_file(const std::filesystem::path& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) throw Error("is a folder, not a file", path);
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(fmt::format("cannot be opened: {}", std::strerror(errno)), path);
  std::string bytes(std::filesystem::file_size(path), '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (in.gcount() != static_cast<std::streamsize>(bytes.size())) {
    throw Error(fmt::format("read {} of {} bytes", in.gcount(), bytes.size()), path);
  }
  return bytes;
}

void write_file_aside(const std::filesystem::path& path, std::string_view bytes) {
  const std::filesystem::path aside = path.string() + ".part";
  const int fd = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool ok = fd >= 0;
  while (ok && !bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    ok = n >= 0;
    if (ok) bytes.remove_prefix(static_cast<size_t>(n));
  }
  ok = ok && ::fsync(fd) == 0;
  ok = ok && ::rename(aside.c_str(), path.c_str()) == 0;
  const int reason = errno;
  if (fd >= 0) ::close(fd);
  if (!ok) {
    if (fd >= 0) ::unlink(aside.c_str());
    throw Failure(fmt::format("{}: cannot be written: {}", path.string(), std::strerror(reason)));
  }
}

}  // namespace myriad
