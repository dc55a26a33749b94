// Sizes under general-purpose compressors: the yardstick for a model's bits per byte.
#pragma once

#include <cstdint>
#include <string_view>

namespace myriad {

// Bytes of `gzip -9` over this content (the name field of the header left out).
int64_t gzip9_bytes(std::string_view content);

// Bytes of `zstd -19` over this content.
int64_t zstd19_bytes(std::string_view content);

}  // namespace myriad
