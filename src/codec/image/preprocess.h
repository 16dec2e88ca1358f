#pragma once
// An image of a request to what V4.1 is given of it, as deepseek-recipe 0.2.0 makes it (the record:
// ../shared/golden/codec/images.jsonl): decoded, brought to a size of whole patches on grey, stored
// as lossy WebP; and from there to the numbers the vision tower reads. Pure functions, any thread.
// Memory: the decoded pixels (4 bytes each), the result's, no more.

#include <span>
#include <string>
#include <vector>

#include "codec/api/conversation.h"
#include "codec/image/image.h"

namespace artery::codec::image {

struct PreprocessOptions {
  api::ImageDetail detail = api::ImageDetail::kHigh;
  int side_max = 8192;            // pixels; a longer side is kImageDimensionsTooLarge
  int low_detail_side_max = 512;  // with low detail the longer side is first shrunk to this
};

struct Preprocessed {
  int width = 0, height = 0;  // pixels, multiples of 14
  std::string webp;           // quality 90
};

// The kinds of what can be wrong: kUnsupportedMediaType, kImageDimensionsTooLarge, kDecode,
// kEmptyImage. Messages begin with "image[0]: "; the resolver puts the image's own place there.
ImageResult<Preprocessed> preprocess(std::string_view bytes, const PreprocessOptions& options);

// What the client is told of an image that is not taken: one text for all reasons.
std::string unsupported_text(std::string_view place);

// Rows of the patch grid by `width` / 14 columns; each patch is 588 floats in [-1, 1]: channel,
// row, column. Sizes: rows * columns * 588.
struct Patches {
  int rows = 0, columns = 0;
  std::vector<float> values;
};

// Any pixels: brought to fitted_size by Pillow's bicubic where they are not, padded with grey 127,
// then (v / 255 - 0.5) / 0.5. kDecode when there are no pixels.
ImageResult<Patches> patches(const Pixels& pixels);

}  // namespace artery::codec::image
