// Reading of safetensors files that may be damaged or hostile. Opening parses and checks the header
// only; data is read on demand with pread, which has no shared position, so several threads may
// read one file. Nothing in the header is used before it is checked: its length is bounded before
// memory is allocated for it, products of dimensions cannot overflow, and each range must be as
// long as type and shape say. The tensors, sorted by offset, must then follow each other without
// gap or overlap to the end of the file, so that every byte belongs to exactly one tensor. Read
// SafeTensors::open first, then parse_tensor.

#include "ckpt/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

namespace myriad {

namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr uint64_t kMostHeader = 100'000'000;  // the limit of the reference implementation
constexpr uint64_t kPrefix = 8;

struct StoredInfo {
  Stored type;
  const char* name;
  int bytes;
};
constexpr StoredInfo kStored[] = {
    {Stored::f64, "F64", 8},   {Stored::f32, "F32", 4},         {Stored::f16, "F16", 2},
    {Stored::bf16, "BF16", 2}, {Stored::f8_e4m3, "F8_E4M3", 1}, {Stored::f8_e5m2, "F8_E5M2", 1},
    {Stored::i64, "I64", 8},   {Stored::i32, "I32", 4},         {Stored::i16, "I16", 2},
    {Stored::i8, "I8", 1},     {Stored::u64, "U64", 8},         {Stored::u32, "U32", 4},
    {Stored::u16, "U16", 2},   {Stored::u8, "U8", 1},           {Stored::boolean, "BOOL", 1},
};
static_assert(std::size(kStored) == static_cast<size_t>(Stored::count_), "each type has an entry");

std::optional<Stored> stored_named(std::string_view name) {
  for (const StoredInfo& s : kStored) {
    if (name == s.name) return s.type;
  }
  return std::nullopt;
}

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

// The bytes that elements of this type and shape take, or nullopt if they are more than 2^63 - 1.
std::optional<uint64_t> bytes_needed(Stored type, std::span<const int64_t> shape) {
  int64_t n = bytes_of(type);
  for (int64_t d : shape) {
    if (d == 0) return 0;
  }
  for (int64_t d : shape) {
    if (__builtin_mul_overflow(n, d, &n)) return std::nullopt;
  }
  return static_cast<uint64_t>(n);
}

// The JSON parser keeps the last of two equal names without a word; here they are refused.
json parse_header(const std::string& text, const std::string& path) {
  std::vector<std::set<std::string>> open;
  std::string twice;
  auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key &&
        !open.back().insert(parsed.get<std::string>()).second) {
      twice = shown(parsed);
    }
    return true;
  };
  json header;
  try {
    header = json::parse(text, watch);
  } catch (const json::exception& e) {
    throw Damage(fmt::format("the header ({} bytes from offset {}) is not JSON: {}", text.size(),
                             kPrefix, e.what()),
                 path);
  }
  if (!twice.empty()) throw Damage(fmt::format("{} stands twice in the header", twice), path);
  if (!header.is_object()) throw Damage("the header is not a JSON object", path);
  return header;
}

std::vector<int64_t> parse_integers(const json& j, const std::string& what,
                                    const std::string& path) {
  if (!j.is_array()) throw Damage(fmt::format("{} is {}, not an array", what, shown(j)), path);
  std::vector<int64_t> out;
  for (const json& d : j) {
    const bool fits =
        d.is_number_unsigned() && d.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
    if (!fits)
      throw Damage(fmt::format("{} holds {}, not an integer from 0 to 2^63 - 1", what, shown(d)),
                   path);
    out.push_back(d.get<int64_t>());
  }
  return out;
}

// `data` is the offset in the file at which the tensors' data begins, `end` the file's length.
TensorInfo parse_tensor(const std::string& name, const json& j, uint64_t data, uint64_t end,
                        const std::string& path) {
  const std::string tensor = fmt::format("tensor {}", shown(json(name)));
  if (!j.is_object()) throw Damage(fmt::format("{}: {} is not an object", tensor, shown(j)), path);
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!j.contains(key)) throw Damage(fmt::format("{}: {} is missing", tensor, key), path);
  }
  const json& dtype = j["dtype"];
  const std::optional<Stored> type =
      dtype.is_string() ? stored_named(dtype.get<std::string>()) : std::nullopt;
  if (!type) throw Damage(fmt::format("{}: unknown dtype {}", tensor, shown(dtype)), path);
  TensorInfo info{.type = *type, .shape = parse_integers(j["shape"], tensor + ": shape", path)};
  const std::vector<int64_t> offsets =
      parse_integers(j["data_offsets"], tensor + ": data_offsets", path);
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    throw Damage(
        fmt::format("{}: data_offsets is {}, not [begin, end]", tensor, shown(j["data_offsets"])),
        path);
  }
  const auto begin = static_cast<uint64_t>(offsets[0]), stop = static_cast<uint64_t>(offsets[1]);
  if (stop > end - data) {
    throw Damage(
        fmt::format("{}: its data ends at offset {} of {} data bytes", tensor, stop, end - data),
        path);
  }
  const std::optional<uint64_t> needed = bytes_needed(*type, info.shape);
  if (needed != stop - begin) {
    throw Damage(
        fmt::format(
            "{}: {} of shape {} does not take the {} bytes of data_offsets {}, from offset {} "
            "of the file",
            tensor, name_of(*type), shown(j["shape"]), stop - begin, shown(j["data_offsets"]),
            data + begin),
        path);
  }
  info.begin = data + begin;
  info.bytes = stop - begin;
  return info;
}

double half_to_double(uint16_t h) {
  const int exponent = h >> 10 & 31;
  const double fraction = h & 1023;
  double x;
  if (exponent == 31) {
    x = fraction == 0 ? HUGE_VAL : NAN;
  } else {
    x = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  }
  return h >> 15 ? -x : x;
}

template <typename T>
T element(const std::byte* from) {
  T x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

double to_double(Stored type, const std::byte* from) {
  switch (type) {
    case Stored::f64:
      return element<double>(from);
    case Stored::f32:
      return element<float>(from);
    case Stored::f16:
      return half_to_double(element<uint16_t>(from));
    case Stored::bf16:
      return std::bit_cast<float>(static_cast<uint32_t>(element<uint16_t>(from)) << 16);
    default:
      CHECK(false, "{}", name_of(type));
  }
}

}  // namespace

const char* name_of(Stored type) {
  const StoredInfo& s = kStored[static_cast<int>(type)];
  CHECK(s.type == type, "table out of order at {}", s.name);
  return s.name;
}

int bytes_of(Stored type) { return kStored[static_cast<int>(type)].bytes; }

struct SafeTensors::File {
  explicit File(int descriptor) : descriptor(descriptor) {}
  ~File() { ::close(descriptor); }
  File(const File&) = delete;
  const int descriptor;

  // Returns false if the file ends too early, and errno is then 0, or if the system refuses, and
  // errno is then its reason.
  bool read(uint64_t offset, std::span<std::byte> to) const {
    while (!to.empty()) {
      errno = 0;
      const ssize_t n = ::pread(descriptor, to.data(), to.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      to = to.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    return true;
  }
};

SafeTensors SafeTensors::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw Error(fmt::format("cannot be opened: {}", std::strerror(errno)), path);
  SafeTensors s;
  s.path_ = path;
  s.file_ = std::make_shared<const File>(descriptor);
  struct stat status;
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))
    throw Error("not a regular file", path);
  const auto end = static_cast<uint64_t>(status.st_size);
  uint64_t length = 0;
  if (end < kPrefix || !s.file_->read(0, std::as_writable_bytes(std::span(&length, 1)))) {
    throw Damage(fmt::format("{} bytes are no safetensors file", end), path);
  }
  if (length > end - kPrefix || length > kMostHeader) {
    throw Damage(fmt::format("offset 0: the header is said to have {} bytes, in a file of {}; at "
                             "most {} are allowed",
                             length, end, kMostHeader),
                 path);
  }
  std::string text(length, ' ');
  if (!s.file_->read(kPrefix, std::as_writable_bytes(std::span(text))))
    throw Error("cannot be read", path);
  const json header = parse_header(text, path);
  std::vector<std::pair<uint64_t, std::string>> order;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const TensorInfo& info = s.tensors_[name] =
        parse_tensor(name, tensor, kPrefix + length, end, path);
    order.emplace_back(info.begin, name);
  }
  // Empty tensors before what begins at the same place.
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    return std::tuple(a.first, s.tensors_[a.second].bytes, a.second) <
           std::tuple(b.first, s.tensors_[b.second].bytes, b.second);
  });
  uint64_t at = kPrefix + length;
  for (const auto& [begin, name] : order) {
    if (begin != at) {
      throw Damage(
          fmt::format(
              "tensor {}: its data begins at offset {} of the file; {} before it ends at {}",
              shown(json(name)), begin, begin < at ? "the overlapping tensor" : "what lies", at),
          path);
    }
    at += s.tensors_[name].bytes;
    s.names_.push_back(name);
  }
  if (at != end)
    throw Damage(fmt::format("{} bytes from offset {} belong to no tensor", end - at, at), path);
  return s;
}

const TensorInfo& SafeTensors::info(const std::string& name) const {
  const auto at = tensors_.find(name);
  if (at == tensors_.end())
    throw Error(fmt::format("no tensor {} among {}", name, tensors_.size()), path_);
  return at->second;
}

void SafeTensors::read(const std::string& name, uint64_t from, std::span<std::byte> to) const {
  const TensorInfo& t = info(name);
  CHECK(from <= t.bytes && to.size() <= t.bytes - from, "bytes {} + {} of {}, {}", from, to.size(),
        t.bytes, name);
  if (!file_->read(t.begin + from, to)) {
    const char* reason =
        errno == 0 ? "the file is shorter than when it was opened" : std::strerror(errno);
    throw Error(
        fmt::format("tensor {} cannot be read at offset {}: {}", name, t.begin + from, reason),
        path_);
  }
}

std::vector<std::byte> SafeTensors::bytes(const std::string& name) const {
  std::vector<std::byte> out(info(name).bytes);
  read(name, 0, out);
  return out;
}

std::vector<double> SafeTensors::doubles(const std::string& name) const {
  const TensorInfo& t = info(name);
  static constexpr Stored kReal[] = {Stored::f64, Stored::f32, Stored::f16, Stored::bf16};
  if (std::find(std::begin(kReal), std::end(kReal), t.type) == std::end(kReal)) {
    throw Error(
        fmt::format("tensor {} is {}; F64, F32, F16 or BF16 is wanted", name, name_of(t.type)),
        path_);
  }
  const std::vector<std::byte> raw = bytes(name);
  std::vector<double> out(static_cast<size_t>(t.elements()));
  const auto step = static_cast<size_t>(bytes_of(t.type));
  for (size_t i = 0; i < out.size(); ++i) out[i] = to_double(t.type, raw.data() + i * step);
  return out;
}

std::vector<int64_t> SafeTensors::integers(const std::string& name) const {
  const TensorInfo& t = info(name);
  if (t.type != Stored::i64 && t.type != Stored::i32) {
    throw Error(fmt::format("tensor {} is {}; I64 or I32 is wanted", name, name_of(t.type)), path_);
  }
  const std::vector<std::byte> raw = bytes(name);
  std::vector<int64_t> out(static_cast<size_t>(t.elements()));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = t.type == Stored::i64 ? element<int64_t>(raw.data() + 8 * i)
                                   : element<int32_t>(raw.data() + 4 * i);
  }
  return out;
}

}  // namespace myriad
