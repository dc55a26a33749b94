// gzip and zstd: compressed corpora, and sizes as the yardstick for a model's bits per byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace myriad {

// Bytes of `gzip -9` over this content (the name field of the header left out).
int64_t gzip9_bytes(std::string_view content);

// Bytes of `zstd -19` over this content.
int64_t zstd19_bytes(std::string_view content);

// What members or frames, one or more, hold. Checksums are compared. Throws Error naming `file` and
// the offset in it where it is damaged or ends too soon.
std::string gunzip(std::string_view compressed, const std::string& file);
std::string unzstd(std::string_view compressed, const std::string& file);

}  // namespace myriad
