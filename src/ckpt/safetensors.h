// The safetensors format (github.com/huggingface/safetensors, README "Format"): u64 header length,
// JSON header, data. The reader trusts nothing: a file that opens is whole. Reading is on demand
// and thread safe; the file stays open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace myriad {

enum class Stored : uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  count_
};

const char* name_of(Stored type);  // as in files: "F32"
int bytes_of(Stored type);         // of one element

struct TensorInfo {
  Stored type = Stored::f32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, bytes = 0;  // in the file
  int64_t elements() const { return static_cast<int64_t>(bytes) / bytes_of(type); }
};

class SafeTensors {
 public:
  // Throws Error naming file, tensor and offset where the file is not one: a header longer than the
  // file, not JSON, or with unknown dtypes; ranges that do not fit shape and dtype, overlap, leave
  // holes or pass the end; a name given twice.
  static SafeTensors open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<std::string>& names() const { return names_; }  // in the order of their data
  bool has(const std::string& name) const { return tensors_.contains(name); }
  const TensorInfo& info(const std::string& name) const;  // throws Error if there is none

  // Bytes [from, from + to.size()) of a tensor. Throws Error if the file has become shorter.
  void read(const std::string& name, uint64_t from, std::span<std::byte> to) const;
  std::vector<std::byte> bytes(const std::string& name) const;
  std::vector<double> doubles(
      const std::string& name) const;  // F64, F32, F16, BF16; else throws Error
  std::vector<int64_t> integers(const std::string& name) const;  // I64, I32; else throws Error

 private:
  struct File;
  std::string path_;
  std::shared_ptr<const File> file_;
  std::vector<std::string> names_;
  std::map<std::string, TensorInfo> tensors_;
};

struct TensorEntry {
  std::string name;
  Stored type = Stored::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // little-endian; CHECKed against type and shape
};

// Writes `<path>.part`, syncs it and renames it over `path`; on a fault (disk full, no permission)
// says so and leaves `path` as it was. Larger elements come first, so that each tensor is aligned;
// equal entries give equal bytes. Names are CHECKed to be unique.
Outcome write_safetensors(const std::string& path, std::span<const TensorEntry> entries);

// A tensor that is made when its turn comes, so that a file of any size is written with one tensor
// in memory.
struct TensorSource {
  std::string name;
  Stored type = Stored::f32;
  std::vector<int64_t> shape;
  std::function<std::vector<std::byte>()> bytes;  // as in TensorEntry
  uint64_t size() const;                          // bytes, by type and shape
};

class NewFile;
// The same bytes as write_safetensors of equal tensors. Faults stay in `to`.
void stream_safetensors(NewFile& to, std::span<const TensorSource> sources);

}  // namespace myriad
