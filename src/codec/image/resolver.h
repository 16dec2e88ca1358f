#pragma once
// The images of a request, from wherever they come, within the request's limits: data URLs, bytes,
// and http(s) URLs through an ImageFetcher. Behaviour and words of deepseek-recipe 0.2.0. Fetches
// run on up to 8 threads that end before resolve() returns; everything else on the caller's thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codec/api/conversation.h"
#include "codec/image/preprocess.h"

namespace artery::codec::image {

// Gets what an http(s) URL names. Implementations decide which addresses may be asked.
class ImageFetcher {
 public:
  // `kind`: kDestinationRejected, kFetch, kFetchStatus or kImageTooLarge.
  struct Failure {
    ImageError::Kind kind = ImageError::Kind::kFetch;
    bool is_retryable = false;
    std::string reason;  // for the log; clients do not see it: it would tell of inner networks
  };
  virtual ~ImageFetcher() = default;
  // The body, at most `bytes_max`. Blocks; called from several threads at once.
  virtual tl::expected<std::string, Failure> fetch(
      const std::string& url, std::size_t bytes_max
  ) = 0;
};

struct ImageLimits {
  std::size_t images_max = 600;             // a request
  std::size_t bytes_max = 32u << 20;        // an image, encoded
  std::size_t total_bytes_max = 64u << 20;  // a request, encoded
  std::size_t url_bytes_max = 8192;
  int side_max = 8192;           // pixels
  std::size_t many_images = 15;  // from so many on a call's sides are at most
  int side_max_of_many = 4096;
  int low_detail_side_max = 512;
};

// What the finished calls of one request have used.
struct ImageQuota {
  std::size_t images = 0, bytes = 0;
  bool operator==(const ImageQuota&) const = default;
};

struct ResolvedImages {
  std::vector<Preprocessed> images;   // in the order of the sources
  std::int64_t token_adjustment = 0;  // tokens beyond one per image
};

class ImageResolver {
 public:
  // `fetcher` must outlive the resolver.
  explicit ImageResolver(ImageFetcher& fetcher, const ImageLimits& limits = {})
      : fetcher_(fetcher), limits_(limits) {}

  // All or nothing: a failed call leaves `quota` as it was. The first source that is at fault is
  // named by its path and its place among those of that path.
  ImageResult<ResolvedImages> resolve(std::span<const api::ImageSource> sources, ImageQuota& quota);

 private:
  ImageFetcher& fetcher_;
  ImageLimits limits_;
};

}  // namespace artery::codec::image
