#include "codec/image/preprocess.h"

#include "codec/image/decoders.h"
#include "codec/image/resize.h"
#include "codec/image/token_grid.h"

namespace artery::codec::image {
namespace {

using Kind = ImageError::Kind;

constexpr float kQuality = 90;

tl::unexpected<ImageError> refused(Kind kind) {
  return tl::unexpected(ImageError{kind, false, unsupported_text("image[0]")});
}

Kind kind_of(Fault fault) {
  switch (fault) {
    case Fault::kTooLarge:
      return Kind::kImageDimensionsTooLarge;
    case Fault::kPixels:
      return Kind::kEmptyImage;
    case Fault::kHeader:
      break;
  }
  return Kind::kDecode;
}

}  // namespace

std::string unsupported_text(std::string_view place) {
  return std::string(place) +
         ": You have uploaded an unsupported image. Please make sure your image is valid and has "
         "one of the following formats: webp, png, jpeg, and gif.";
}

ImageResult<Preprocessed> preprocess(std::string_view bytes, const PreprocessOptions& options) {
  if (bytes.empty()) return refused(Kind::kEmptyImage);
  const auto format = format_of(bytes);
  if (!format) return refused(Kind::kUnsupportedMediaType);
  Decoded decoded = decode(*format, bytes, options.side_max);
  if (!decoded) return refused(kind_of(decoded.error()));
  const Size whole{decoded->width, decoded->height};
  const Size size = options.detail == api::ImageDetail::kLow
                        ? low_detail_size(whole, options.low_detail_side_max)
                        : whole;
  const auto stored = stored_size(size);
  if (!stored) return refused(Kind::kDecode);
  if (size != whole) *decoded = shrink_area(*decoded, size);
  const Pixels padded = pad(*decoded, size, *stored, resize_cubic);
  Preprocessed out{stored->width, stored->height, encode_webp(padded, kQuality)};
  if (out.webp.empty()) return refused(Kind::kDecode);
  return out;
}

ImageResult<Patches> patches(const Pixels& pixels) {
  const Size size{pixels.width, pixels.height};
  const auto fitted = fitted_size(size);
  if (!fitted) return refused(Kind::kDecode);
  const Pixels padded = pad(pixels, size, *fitted, resize_antialiased);
  Patches out{fitted->height / kPatch, fitted->width / kPatch, {}};
  out.values.reserve(padded.rgb.size());
  const auto width = static_cast<std::size_t>(padded.width);
  for (int row = 0; row < out.rows; ++row) {
    for (int column = 0; column < out.columns; ++column) {
      for (std::size_t channel = 0; channel < 3; ++channel) {
        for (int y = row * kPatch; y < (row + 1) * kPatch; ++y) {
          for (int x = column * kPatch; x < (column + 1) * kPatch; ++x) {
            const auto at = static_cast<std::size_t>(y) * width + static_cast<std::size_t>(x);
            out.values.push_back(
                (static_cast<float>(padded.rgb[at * 3 + channel]) / 255.F - 0.5F) / 0.5F
            );
          }
        }
      }
    }
  }
  return out;
}

}  // namespace artery::codec::image
