#include "codec/image/token_grid.h"

#include <algorithm>
#include <cmath>

namespace artery::codec::image {
namespace {

constexpr int kRoundsMax = 64;

int up_to_patch(int side) { return (side + kPatch - 1) / kPatch * kPatch; }
int cells(int side) { return (side + kCell - 1) / kCell; }

// The largest size of that aspect within kTokensMax.
Size shrunk(double width, double height) {
  const double aspect = height / width;
  const double columns = std::sqrt((kTokensMax - 2) / aspect + 0.25) - 0.5;
  const double rows = columns * aspect;
  if (columns < 1) return {kCell, (kTokensMax - 2) / 2 * kCell};
  if (rows < 1) return {(kTokensMax - 3) * kCell, kCell};
  const double scale =
      std::min(std::floor(columns) * kCell / width, std::floor(rows) * kCell / height);
  return {
      static_cast<int>(std::floor(width * scale / kPatch)) * kPatch,
      static_cast<int>(std::floor(height * scale / kPatch)) * kPatch
  };
}

Size fitted_once(Size size) {
  std::int64_t width = size.width, height = size.height;
  if (width * height < kAreaMin) {
    const double scale =
        std::sqrt(static_cast<double>(kAreaMin) / static_cast<double>(width * height));
    width =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(width) * scale));
    height =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(height) * scale));
  }
  const Size whole{up_to_patch(static_cast<int>(width)), up_to_patch(static_cast<int>(height))};
  if (tokens_of(whole) <= kTokensMax) return whole;
  return shrunk(static_cast<double>(width), static_cast<double>(height));
}

// Sides in proportion, whole patches.
Size within_webp(Size size) {
  const int longer = std::max(size.width, size.height);
  if (longer <= kStoredSideMax) return size;
  const auto side = [&](int pixels) {
    return up_to_patch(static_cast<int>(static_cast<std::int64_t>(pixels) * kStoredSideMax / longer)
    );
  };
  return {side(size.width), side(size.height)};
}

}  // namespace

int tokens_of(Size size) { return cells(size.height) * (cells(size.width) + 1) + 2; }

std::optional<Size> fitted_size(Size size) {
  // Beyond what any reader of images gives; keeps the products below in 64 bits.
  constexpr int kSideMax = 1 << 24;
  if (size.width <= 0 || size.height <= 0 || size.width > kSideMax || size.height > kSideMax)
    return std::nullopt;
  for (int round = 0; round < kRoundsMax; ++round) {
    const Size next = fitted_once(size);
    if (next == size) return size;
    size = next;
  }
  return std::nullopt;
}

std::optional<Size> stored_size(Size size) {
  auto fitted = fitted_size(size);
  for (int round = 0; fitted && round < kRoundsMax; ++round) {
    const Size stored = within_webp(*fitted);
    if (stored == *fitted) return stored;
    fitted = fitted_size(stored);
  }
  return std::nullopt;
}

Size low_detail_size(Size size, int long_side) {
  const int longer = std::max(size.width, size.height);
  const int wanted = std::max(long_side, 1);
  if (longer <= wanted) return size;
  const double scale = static_cast<double>(wanted) / longer;
  const auto side = [&](int pixels) {
    return std::max(1, static_cast<int>(std::floor(pixels * scale + 0.5)));
  };
  return {side(size.width), side(size.height)};
}

std::optional<int> token_adjustment(Size size) {
  const auto fitted = fitted_size(size);
  if (!fitted) return std::nullopt;
  return tokens_of(*fitted) - 1;
}

}  // namespace artery::codec::image
