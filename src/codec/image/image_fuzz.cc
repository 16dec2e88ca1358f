// Any bytes as an image of each format: pixels of the size they say, or a fault; what can be read
// is brought to patches. The first byte chooses the format whatever the bytes look like.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "codec/image/decoders.h"
#include "codec/image/preprocess.h"
#include "codec/image/token_grid.h"

namespace {

using namespace artery::codec::image;

constexpr int kSideMax = 256;

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Decoded decoded = decode(static_cast<Format>(data[0] % 4), bytes, kSideMax);
  if (!decoded) return 0;
  require(decoded->width > 0 && decoded->width <= kSideMax);
  require(decoded->height > 0 && decoded->height <= kSideMax);
  const auto pixels =
      static_cast<std::size_t>(decoded->width) * static_cast<std::size_t>(decoded->height);
  require(decoded->rgb.size() == pixels * 3);
  const auto fitted = fitted_size({decoded->width, decoded->height});
  require(fitted && tokens_of(*fitted) <= kTokensMax);
  return 0;
}
