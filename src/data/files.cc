#include "data/files.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/env.h"

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
  Env env;
  const std::filesystem::path aside = path.string() + ".part";
  NewFile file(env, aside);
  file.write(bytes);
  Outcome o = file.finish();
  if (o.ok()) o = env.replace(aside, path);
  if (o.ok()) return;
  std::error_code ignored;
  std::filesystem::remove(aside, ignored);
  throw Failure(o.reason);
}

}  // namespace myriad
