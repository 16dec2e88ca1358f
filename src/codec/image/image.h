#pragma once
// Pixels, and what can be wrong with an image of a request. Values, any thread. The kinds and their
// words are those of deepseek-recipe 0.2.0 (../shared/golden/codec/images.jsonl).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace artery::codec::image {

// width * height * 3 bytes: R, G, B, rows from the top.
struct Pixels {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;
};

struct Size {
  int width = 0, height = 0;
  bool operator==(const Size&) const = default;
};

struct ImageError {
  enum class Kind : std::uint8_t {
    kUnsupportedMediaType,     // none of webp, png, jpeg, gif by its first bytes
    kImageDimensionsTooLarge,  // a side beyond the limit, as its header says
    kDecode,                   // no usable header
    kEmptyImage,               // no bytes, or pixels that cannot be read to their end
    kInvalidDataUrl,
    kInvalidUrl,
    kUrlTooLong,
    kDestinationRejected,  // the filter admits no address of the host
    kFetch,                // connection, time, redirects
    kFetchStatus,          // an answer other than 2xx
    kTooManyImages,
    kImageTooLarge,
    kTotalSizeTooLarge
  };
  Kind kind = Kind::kDecode;
  bool is_retryable = false;  // true: a server answers 500, else 400
  std::string message;
};

// "UnsupportedMediaType", ...
std::string_view kind_name(ImageError::Kind kind);

template <typename T>
using ImageResult = tl::expected<T, ImageError>;

}  // namespace artery::codec::image
