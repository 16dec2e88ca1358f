#include "codec/image/decoders.h"

namespace artery::codec::image {

std::string_view kind_name(ImageError::Kind kind) {
  using Kind = ImageError::Kind;
  switch (kind) {
    case Kind::kUnsupportedMediaType:
      return "UnsupportedMediaType";
    case Kind::kImageDimensionsTooLarge:
      return "ImageDimensionsTooLarge";
    case Kind::kDecode:
      return "Decode";
    case Kind::kEmptyImage:
      return "EmptyImage";
    case Kind::kInvalidDataUrl:
      return "InvalidDataUrl";
    case Kind::kInvalidUrl:
      return "InvalidUrl";
    case Kind::kUrlTooLong:
      return "UrlTooLong";
    case Kind::kDestinationRejected:
      return "DestinationRejected";
    case Kind::kFetch:
      return "Fetch";
    case Kind::kFetchStatus:
      return "FetchStatus";
    case Kind::kTooManyImages:
      return "TooManyImages";
    case Kind::kImageTooLarge:
      return "ImageTooLarge";
    case Kind::kTotalSizeTooLarge:
      return "TotalSizeTooLarge";
  }
  return "Decode";
}

std::optional<Format> format_of(std::string_view bytes) {
  if (bytes.starts_with("\x89PNG")) return Format::kPng;
  if (bytes.starts_with("\xFF\xD8\xFF")) return Format::kJpeg;
  if (bytes.starts_with("GIF8")) return Format::kGif;
  if (bytes.starts_with("RIFF") && bytes.size() >= 12 && bytes.substr(8, 4) == "WEBP")
    return Format::kWebp;
  return std::nullopt;
}

Decoded decode(Format format, std::string_view bytes, int max_side) {
  switch (format) {
    case Format::kPng:
      return decode_png(bytes, max_side);
    case Format::kJpeg:
      return decode_jpeg(bytes, max_side);
    case Format::kGif:
      return decode_gif(bytes, max_side);
    case Format::kWebp:
      return decode_webp(bytes, max_side);
  }
  return tl::unexpected(Fault::kHeader);
}

std::optional<Fault> size_fault(std::int64_t width, std::int64_t height, int max_side) {
  if (width > max_side || height > max_side) return Fault::kTooLarge;
  if (width <= 0 || height <= 0) return Fault::kHeader;
  return std::nullopt;
}

std::uint8_t over_white(std::uint8_t value, std::uint8_t alpha) {
  return static_cast<std::uint8_t>((value * alpha + 255 * (255 - alpha) + 127) / 255);
}

void flatten_over_white(std::vector<std::uint8_t>& rgba) {
  const std::size_t count = rgba.size() / 4;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t alpha = rgba[4 * i + 3];
    // The pixel written never lies behind the one read.
    for (std::size_t c = 0; c < 3; ++c) rgba[3 * i + c] = over_white(rgba[4 * i + c], alpha);
  }
  rgba.resize(3 * count);
}

}  // namespace artery::codec::image
