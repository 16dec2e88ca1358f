#include <zstd.h>

#include <algorithm>
#include <memory>

#include "base/file_system.h"
#include "bench/trace_reader.h"

namespace artery::bench {
namespace {

constexpr std::string_view kMagic("\x28\xb5\x2f\xfd", 4);

struct FreeStream {
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

Result<std::string> unpack(std::string_view packed, const std::string& path, std::size_t most) {
  const std::unique_ptr<ZSTD_DStream, FreeStream> stream(ZSTD_createDStream());
  if (stream == nullptr) return fail(Code::kOutOfMemory, "{}: no memory to unpack", path);
  constexpr int kWindowLogMax = 27;  // 128 MiB, what `zstd --long=27` packs with
  ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax, kWindowLogMax);
  std::string out;
  ZSTD_inBuffer in = {packed.data(), packed.size(), 0};
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  std::size_t state = 1;
  for (bool full = false; in.pos < in.size || full;) {
    const std::size_t at = out.size();
    if (at >= most) return fail(Code::kTooLarge, "{}: unpacks to over {} bytes", path, most);
    out.resize(at + kPiece);
    ZSTD_outBuffer piece = {out.data() + at, kPiece, 0};
    state = ZSTD_decompressStream(stream.get(), &piece, &in);
    out.resize(at + piece.pos);
    if (ZSTD_isError(state))
      return fail(Code::kBadFile, "{}: not whole zstd ({})", path, ZSTD_getErrorName(state));
    full = piece.pos == kPiece;  // more may wait inside
  }
  if (state != 0) return fail(Code::kBadFile, "{}: the zstd file is cut off", path);
  return out;
}

}  // namespace

Result<std::string> read_packed(const std::string& path, std::size_t bytes_max) {
  std::string bytes = TRY(system_file_system().read(path, bytes_max));
  if (!std::string_view(bytes).starts_with(kMagic)) return bytes;
  return unpack(bytes, path, bytes_max);
}

}  // namespace artery::bench
