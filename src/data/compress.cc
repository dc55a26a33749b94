#include "data/compress.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"

namespace myriad {

namespace {

[[noreturn]] void refuse(const std::string& file, size_t offset, std::string what) {
  throw Damage(std::move(what), fmt::format("{}: offset {}", file, offset));
}

}  // namespace

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

std::string gunzip(std::string_view compressed, const std::string& file) {
  std::string out;
  std::vector<char> scratch(1 << 18);
  z_stream stream{};
  CHECK(inflateInit2(&stream, 15 + 16) == Z_OK, "inflateInit2");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  size_t taken = 0;
  bool whole = false;  // a member has just ended
  while (taken < compressed.size() || !whole) {
    const size_t n = std::min<size_t>(compressed.size() - taken, 1 << 30);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data() + taken));
    stream.avail_in = static_cast<uInt>(n);
    stream.next_out = reinterpret_cast<Bytef*>(scratch.data());
    stream.avail_out = static_cast<uInt>(scratch.size());
    if (whole) inflateReset(&stream);
    const int status = inflate(&stream, Z_NO_FLUSH);
    const size_t used = n - stream.avail_in, made = scratch.size() - stream.avail_out;
    taken += used;
    out.append(scratch.data(), made);
    whole = status == Z_STREAM_END;
    if (whole || status == Z_OK) continue;
    if (status == Z_BUF_ERROR && taken == compressed.size())
      refuse(file, taken, "the gzip file is cut short");
    refuse(file, taken,
           fmt::format("damaged gzip: {}", stream.msg ? stream.msg : "it makes no sense"));
  }
  return out;
}

std::string unzstd(std::string_view compressed, const std::string& file) {
  std::string out;
  std::vector<char> scratch(ZSTD_DStreamOutSize());
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(),
                                                                   ZSTD_freeDCtx);
  CHECK(context != nullptr, "out of memory");
  ZSTD_inBuffer in{compressed.data(), compressed.size(), 0};
  size_t left = 1;    // of the frame; 0: it has just ended
  bool full = false;  // there may be more to come without further input
  while (in.pos < in.size || full) {
    ZSTD_outBuffer made{scratch.data(), scratch.size(), 0};
    left = ZSTD_decompressStream(context.get(), &made, &in);
    if (ZSTD_isError(left))
      refuse(file, in.pos, fmt::format("damaged zstd: {}", ZSTD_getErrorName(left)));
    out.append(scratch.data(), made.pos);
    full = left != 0 && made.pos == made.size;
  }
  if (left != 0) refuse(file, in.pos, "the zstd file is cut short");
  return out;
}

}  // namespace myriad
