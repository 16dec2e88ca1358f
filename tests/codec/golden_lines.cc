#include "golden_lines.h"

#include <zstd.h>

#include <fstream>
#include <iterator>
#include <memory>

namespace artery::codec {

std::vector<std::string> read_zst_lines(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string packed{std::istreambuf_iterator<char>(file), {}};
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(
      ZSTD_createDCtx(), ZSTD_freeDCtx
  );
  std::vector<char> chunk(ZSTD_DStreamOutSize());
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  std::vector<std::string> lines;
  std::string line;
  while (in.pos < in.size) {
    ZSTD_outBuffer out{chunk.data(), chunk.size(), 0};
    if (ZSTD_isError(ZSTD_decompressStream(context.get(), &out, &in)) != 0) return {};
    for (std::size_t i = 0; i < out.pos; ++i) {
      if (chunk[i] != '\n') {
        line += chunk[i];
        continue;
      }
      lines.push_back(std::move(line));
      line.clear();
    }
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace artery::codec
