// Writes and opens packed files of tokens. The writer streams tokens in blocks that it checksums,
// keeps the index in memory until the end, and replaces the blank header only when all else has
// been written; a file that was cut short has no valid header, and under its final name no
// unfinished file appears at all. The reader maps the file and checks all of it once, in an order
// in which no check relies on what is not yet checked: magic and version, the header's checksum,
// the sizes, the block checksums, the index. After that, a document's bounds need no check. Read
// layout_of first, then PackedFile::open.

#include "data/packed.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/error.h"

namespace myriad {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[8] = {'M', 'Y', 'R', 'P', 'A', 'C', 'K', '\n'};
constexpr uint32_t kVersion = 1;
constexpr size_t kBlockBytes = size_t{1} << 20;

struct Layout {
  uint64_t index, checksums, blocks, end;  // offsets, and the count of blocks
};

Layout layout_of(const PackedHeader& header) {
  Layout at;
  at.index = sizeof(PackedHeader) + (4 * header.tokens + 7) / 8 * 8;
  at.checksums = at.index + 16 * (header.documents + 1);
  at.blocks = (at.checksums - sizeof(PackedHeader) + kBlockBytes - 1) / kBlockBytes;
  at.end = at.checksums + 8 * at.blocks;
  return at;
}

uint64_t header_hash(const PackedHeader& header) {
  return XXH3_64bits(&header, offsetof(PackedHeader, header_hash));
}

[[noreturn]] void refuse(const std::filesystem::path& path, uint64_t offset, std::string what) {
  throw Damage(std::move(what), fmt::format("{}: offset {}", path.string(), offset),
               "delete it and pack the corpus again");
}

void check_header(const std::filesystem::path& path, const PackedHeader& header, uint64_t size) {
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) refuse(path, 0, "not a packed file");
  if (header.version != kVersion) {
    refuse(path, offsetof(PackedHeader, version),
           fmt::format("version {}; this program reads {}", header.version, kVersion));
  }
  if (header.header_hash != header_hash(header)) {
    refuse(path, offsetof(PackedHeader, header_hash),
           "damaged: the header's checksum does not match");
  }
  if (header.token_bytes != 4) {
    refuse(path, offsetof(PackedHeader, token_bytes),
           fmt::format("tokens of {} bytes; this program reads 4", header.token_bytes));
  }
  // This comes before the two are multiplied, because a product could wrap around.
  if (header.tokens > size / 4 || header.documents > size / 16) {
    refuse(path, size,
           fmt::format("cut short: {} bytes do not hold {} tokens of {} documents", size,
                       header.tokens, header.documents));
  }
  const Layout at = layout_of(header);
  if (size < at.end) refuse(path, size, fmt::format("cut short: {} of {} bytes", size, at.end));
  if (size > at.end) refuse(path, at.end, fmt::format("{} bytes too long", size - at.end));
}

void check_blocks(const std::filesystem::path& path, const PackedHeader& header, const char* file) {
  const Layout at = layout_of(header);
  if (XXH3_64bits(file + at.checksums, 8 * at.blocks) != header.checksums_hash) {
    refuse(path, at.checksums, "damaged: the checksum of the block checksums does not match");
  }
  for (uint64_t block = 0; block < at.blocks; ++block) {
    const uint64_t begin = sizeof(PackedHeader) + block * kBlockBytes;
    const uint64_t end = std::min<uint64_t>(begin + kBlockBytes, at.checksums);
    uint64_t told;
    std::memcpy(&told, file + at.checksums + 8 * block, 8);
    if (XXH3_64bits(file + begin, end - begin) != told) {
      refuse(path, begin,
             fmt::format("damaged: the checksum of the {} bytes from here does not match",
                         end - begin));
    }
  }
}

// Checksums that match do not prove the index sound: a faulty writer could have computed them from
// a wrong one.
void check_index(const std::filesystem::path& path, const PackedHeader& header,
                 std::span<const uint64_t> index) {
  const uint64_t offset = layout_of(header).index;
  if (index[0] != 0 || index[1] != 0)
    refuse(path, offset, "the first document does not begin at 0");
  for (uint64_t i = 0; i < header.documents; ++i) {
    if (index[2 * i + 2] <= index[2 * i] || index[2 * i + 3] < index[2 * i + 1]) {
      refuse(path, offset + 16 * (i + 1), fmt::format("document {} ends before it begins", i));
    }
  }
  if (index[2 * header.documents] != header.tokens ||
      index[2 * header.documents + 1] != header.text_bytes) {
    refuse(path, offset + 16 * header.documents, "the index does not end where the tokens do");
  }
}

}  // namespace

PackedWriter::PackedWriter(std::filesystem::path path, PackedTokenizer tokenizer)
    : path_(std::move(path)), aside_(path_.string() + ".part"), index_{0, 0} {
  if (tokenizer.end_of_text < 0) throw Error("the tokenizer has no end-of-text token", path_);
  std::memcpy(header_.magic, kMagic, sizeof kMagic);
  header_.version = kVersion;
  header_.token_bytes = 4;
  header_.tokenizer_hash = tokenizer.hash;
  header_.vocabulary = tokenizer.vocabulary;
  header_.end_of_text = tokenizer.end_of_text;
  block_.reserve(kBlockBytes);
  file_ = std::make_unique<NewFile>(env_, aside_);
  const PackedHeader blank{};  // the true one comes last: a file without it is no packed file
  write(&blank, sizeof blank);
}

PackedWriter::~PackedWriter() {
  if (!file_) return;
  std::error_code ignored;
  std::filesystem::remove(aside_, ignored);
}

void PackedWriter::write(const void* bytes, size_t size) {
  file_->write({static_cast<const std::byte*>(bytes), size});
  if (!file_->ok()) throw Failure(file_->finish().reason);
}

void PackedWriter::write_block() {
  checksums_.push_back(XXH3_64bits(block_.data(), block_.size()));
  write(block_.data(), block_.size());
  block_.clear();
}

void PackedWriter::put(const void* bytes, size_t size) {
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const size_t n = std::min(size, kBlockBytes - block_.size());
    block_.insert(block_.end(), next, next + n);
    next += n;
    size -= n;
    if (block_.size() == kBlockBytes) write_block();
  }
}

void PackedWriter::add(std::span<const int32_t> tokens, int64_t text_bytes) {
  for (const int32_t token : tokens) {
    CHECK(token >= 0 && token < header_.vocabulary, "token {} in document {}", token,
          header_.documents);
    if (token == header_.end_of_text) {
      throw Error(
          fmt::format(
              "document {}: the tokenizer gives plain text the token {}, which ends documents",
              header_.documents, token),
          path_);
    }
  }
  put(tokens.data(), tokens.size_bytes());
  put(&header_.end_of_text, 4);
  ++header_.documents;
  header_.tokens += tokens.size() + 1;
  header_.text_bytes += static_cast<uint64_t>(text_bytes);
  index_.push_back(header_.tokens);
  index_.push_back(header_.text_bytes);
}

void PackedWriter::finish() {
  const int32_t padding = 0;
  if (header_.tokens % 2 != 0) put(&padding, 4);
  put(index_.data(), 8 * index_.size());
  if (!block_.empty()) write_block();
  write(checksums_.data(), 8 * checksums_.size());
  header_.checksums_hash = XXH3_64bits(checksums_.data(), 8 * checksums_.size());
  header_.header_hash = header_hash(header_);
  file_->rewrite_start(std::as_bytes(std::span(&header_, 1)));
  Outcome o = file_->finish();
  if (o.ok()) o = env_.replace(aside_, path_);
  if (!o.ok()) throw Failure(o.reason);
  file_ = nullptr;
}

PackedFile PackedFile::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (fd < 0 || ::fstat(fd, &status) != 0) {
    const int reason = errno;
    if (fd >= 0) ::close(fd);
    throw Error(fmt::format("cannot be opened: {}", std::strerror(reason)), path);
  }
  const uint64_t size = static_cast<uint64_t>(status.st_size);
  if (!S_ISREG(status.st_mode) || size < sizeof(PackedHeader)) {
    ::close(fd);
    refuse(path, size,
           fmt::format("cut short: {} bytes, a header has {}", size, sizeof(PackedHeader)));
  }
  void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  const int reason = errno;
  ::close(fd);
  if (mapped == MAP_FAILED) {
    throw Error(fmt::format("cannot be mapped: {}", std::strerror(reason)), path);
  }
  PackedFile file;
  file.mapping_ = {static_cast<const char*>(mapped),
                   [mapped, size](const char*) { ::munmap(mapped, size); }};
  const char* bytes = file.mapping_.get();
  std::memcpy(&file.header_, bytes, sizeof file.header_);
  check_header(path, file.header_, size);
  check_blocks(path, file.header_, bytes);
  const Layout at = layout_of(file.header_);
  file.tokens_ = {reinterpret_cast<const int32_t*>(bytes + sizeof(PackedHeader)),
                  file.header_.tokens};
  file.index_ = {reinterpret_cast<const uint64_t*>(bytes + at.index),
                 2 * (file.header_.documents + 1)};
  check_index(path, file.header_, file.index_);
  return file;
}

}  // namespace myriad
