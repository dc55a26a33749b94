// Writing of safetensors files. The header needs only names, types and shapes, so every offset is
// known before any data is there: the same header serves tensors in memory (write_safetensors) and
// tensors that are made one at a time (stream_safetensors), and equal tensors give equal bytes
// either way. Sorting by element size, largest first, after a header padded to 8 bytes keeps each
// tensor aligned without gaps, which the format forbids. write_safetensors writes under another
// name, syncs and renames, so a reader finds the old file or the whole new one. Read header_of
// first.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/env.h"
#include "ckpt/safetensors.h"

namespace myriad {

namespace {

template <typename T>
using Order = std::vector<const T*>;

uint64_t bytes_for(Stored type, const std::vector<int64_t>& shape) {
  int64_t n = bytes_of(type);
  for (int64_t d : shape) n *= d;
  return static_cast<uint64_t>(n);
}

template <typename T>
Order<T> in_file_order(std::span<const T> entries) {
  Order<T> order;
  for (const T& e : entries) order.push_back(&e);
  std::sort(order.begin(), order.end(), [](const T* a, const T* b) {
    return std::pair(-bytes_of(a->type), a->name) < std::pair(-bytes_of(b->type), b->name);
  });
  return order;
}

// The header's text, padded with spaces so that the data begins at a multiple of 8.
template <typename T>
std::string header_of(const Order<T>& order) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};  // Transformers asks for it
  uint64_t at = 0;
  for (const T* e : order) {
    CHECK(!header.contains(e->name), "tensor {} twice", e->name);
    const uint64_t end = at + bytes_for(e->type, e->shape);
    header[e->name] = {
        {"dtype", name_of(e->type)}, {"shape", e->shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

bool write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

bool sync_folder(const std::filesystem::path& folder) {
  const int descriptor =
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool ok = ::fsync(descriptor) == 0;
  ::close(descriptor);
  return ok;
}

}  // namespace

Outcome write_safetensors(const std::string& path, std::span<const TensorEntry> entries) {
  for (const TensorEntry& e : entries) {
    CHECK(bytes_for(e.type, e.shape) == e.bytes.size(), "{}: {} bytes for shape [{}] of {}", e.name,
          e.bytes.size(), fmt::join(e.shape, ", "), name_of(e.type));
  }
  const Order<TensorEntry> order = in_file_order(entries);
  const std::string header = header_of(order), part = path + ".part";
  const uint64_t length = header.size();
  const int descriptor = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return {fmt::format("{}: cannot be written: {}", part, std::strerror(errno))};
  bool ok = write_all(descriptor, std::as_bytes(std::span(&length, 1))) &&
            write_all(descriptor, std::as_bytes(std::span(header)));
  for (const TensorEntry* e : order) ok = ok && write_all(descriptor, e->bytes);
  ok = ok && ::fsync(descriptor) == 0;
  int reason = ok ? 0 : errno;
  if (::close(descriptor) != 0 && ok) {
    ok = false;
    reason = errno;
  }
  if (ok && (std::rename(part.c_str(), path.c_str()) != 0 ||
             !sync_folder(std::filesystem::path(path).parent_path()))) {
    ok = false;
    reason = errno;
  }
  if (ok) return {};
  ::unlink(part.c_str());
  return {fmt::format("{}: cannot be written: {}", path, std::strerror(reason))};
}

uint64_t TensorSource::size() const { return bytes_for(type, shape); }

void stream_safetensors(NewFile& to, std::span<const TensorSource> sources) {
  const Order<TensorSource> order = in_file_order(sources);
  const std::string header = header_of(order);
  const uint64_t length = header.size();
  to.write(std::as_bytes(std::span(&length, 1)));
  to.write(header);
  for (const TensorSource* s : order) {
    if (!to.ok()) return;
    const std::vector<std::byte> bytes = s->bytes();
    CHECK(bytes.size() == s->size(), "{}: {} bytes, not {}", s->name, bytes.size(), s->size());
    to.write(bytes);
  }
}

}  // namespace myriad
