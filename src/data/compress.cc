#include "data/compress.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace myriad {

int64_t gzip9_bytes(std::string_view content) {
  z_stream stream{};
  // Window bits 15 + 16: gzip framing. Memory level 9 gives blocks of 32 K symbols, as the gzip
  // program has.
  int status = deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY);
  CHECK(status == Z_OK, "deflateInit2 gave {}", status);
  std::vector<unsigned char> scratch(1 << 16);
  int64_t bytes = 0;
  do {
    const size_t n = std::min<size_t>(content.size(), 1 << 30);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
    stream.avail_in = static_cast<uInt>(n);
    content.remove_prefix(n);
    do {
      stream.next_out = scratch.data();
      stream.avail_out = static_cast<uInt>(scratch.size());
      status = deflate(&stream, content.empty() ? Z_FINISH : Z_NO_FLUSH);
      CHECK(status != Z_STREAM_ERROR, "deflate gave {}", status);
      bytes += static_cast<int64_t>(scratch.size()) - stream.avail_out;
    } while (stream.avail_out == 0);
  } while (status != Z_STREAM_END);
  deflateEnd(&stream);
  return bytes;
}

int64_t zstd19_bytes(std::string_view content) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  CHECK(context != nullptr, "out of memory");
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, 19);
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);  // as the program does
  std::vector<char> out(ZSTD_compressBound(content.size()));
  const size_t bytes =
      ZSTD_compress2(context, out.data(), out.size(), content.data(), content.size());
  ZSTD_freeCCtx(context);
  CHECK(!ZSTD_isError(bytes), "zstd: {}", ZSTD_getErrorName(bytes));
  return static_cast<int64_t>(bytes);
}

}  // namespace myriad
