#include "codec/image/resolver.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "codec/api/data_url.h"
#include "codec/image/decoders.h"
#include "codec/image/token_grid.h"

namespace artery::codec::image {
namespace {

using api::ImageSource;
using Kind = ImageError::Kind;

constexpr std::size_t kFetchesAtOnce = 8;

tl::unexpected<ImageError> refused(Kind kind, std::string message, bool is_retryable = false) {
  return tl::unexpected(ImageError{kind, is_retryable, std::move(message)});
}

// "messages.0.content[1].image[0]": the path, and the place among the sources of that path.
std::vector<std::string> places_of(std::span<const ImageSource> sources) {
  std::map<std::string_view, std::size_t> seen;
  std::vector<std::string> places;
  places.reserve(sources.size());
  for (const ImageSource& source : sources) {
    const std::size_t nth = seen[source.path]++;
    places.push_back(fmt::format("{}{}image[{}]", source.path, source.path.empty() ? "" : ".", nth)
    );
  }
  return places;
}

std::uint64_t in_mb(std::size_t bytes) { return bytes >> 20; }

bool is_http_url(std::string_view url) {
  std::string scheme(url.substr(0, url.substr(0, 6).find(':') + 1));
  std::transform(scheme.begin(), scheme.end(), scheme.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return scheme == "http:" || scheme == "https:";
}

std::optional<ImageError> url_fault(const ImageSource& source, std::size_t bytes_max) {
  const std::string at = source.path.empty() ? "" : source.path + ": ";
  if (source.data.size() > bytes_max) {
    return ImageError{
        Kind::kUrlTooLong,
        false,
        fmt::format(
            "{}external link length {} too long, max link length {}",
            at,
            source.data.size(),
            bytes_max
        )
    };
  }
  if (is_http_url(source.data)) return std::nullopt;
  return ImageError{
      Kind::kInvalidUrl, false, fmt::format("{}invalid url: \"{}\"", at, source.data)
  };
}

ImageResult<std::string> bytes_of_data_url(const std::string& url, const std::string& place) {
  const auto read = api::read_data_url(url);
  if (!read) return refused(Kind::kInvalidDataUrl, unsupported_text(place));
  if (!read->is_image()) return refused(Kind::kUnsupportedMediaType, unsupported_text(place));
  auto bytes = read->decode();
  if (!bytes) return refused(Kind::kInvalidDataUrl, unsupported_text(place));
  return std::move(*bytes);
}

using Fetched = tl::expected<std::string, ImageFetcher::Failure>;

// Those of `sources` that are URLs; the others stay nullopt.
std::vector<std::optional<Fetched>> fetch_all(
    std::span<const ImageSource> sources, ImageFetcher& fetcher, const ImageLimits& limits
) {
  std::vector<std::optional<Fetched>> fetched(sources.size());
  std::vector<std::size_t> urls;
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (sources[i].kind == ImageSource::Kind::kUrl) urls.push_back(i);
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> total{0};
  std::atomic<bool> is_over{false};
  const auto work = [&] {
    for (std::size_t at = next++; at < urls.size(); at = next++) {
      if (is_over) return;  // the request is refused whatever else comes
      Fetched& one =
          fetched[urls[at]].emplace(fetcher.fetch(sources[urls[at]].data, limits.bytes_max));
      if (!one || (total += one->size()) > limits.total_bytes_max) is_over = true;
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < std::min(urls.size(), kFetchesAtOnce); ++i)
    threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return fetched;
}

ImageError told(
    const ImageFetcher::Failure& failure,
    const std::string& url,
    const std::string& place,
    std::size_t bytes_max
) {
  log_info("{}: {}", place, failure.reason);
  if (failure.kind == Kind::kImageTooLarge)
    return {
        failure.kind,
        false,
        fmt::format("{}: image file size exceeds limit {} MB", place, in_mb(bytes_max))
    };
  return {
      failure.kind,
      failure.is_retryable,
      fmt::format("{}: Failed to download image from {}", place, url)
  };
}

// The encoded bytes of one request's sources; those of kBytes stay where they are.
struct Encoded {
  std::vector<std::string> held;
  std::vector<std::string_view> views;
};

ImageResult<Encoded> load(
    std::span<const ImageSource> sources,
    const std::vector<std::string>& places,
    std::vector<std::optional<Fetched>> fetched,
    std::size_t bytes_max
) {
  Encoded encoded;
  encoded.held.resize(sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const ImageSource& source = sources[i];
    if (source.kind == ImageSource::Kind::kBytes) {
      encoded.views.push_back(source.data);
    } else if (source.kind == ImageSource::Kind::kDataUrl) {
      auto bytes = bytes_of_data_url(source.data, places[i]);
      if (!bytes) return tl::unexpected(std::move(bytes.error()));
      encoded.held[i] = std::move(*bytes);
      encoded.views.push_back(encoded.held[i]);
    } else if (!fetched[i]) {
      encoded.views.emplace_back();  // another one failed, or all are too large together
    } else if (!*fetched[i]) {
      return tl::unexpected(told(fetched[i]->error(), source.data, places[i], bytes_max));
    } else {
      encoded.held[i] = std::move(**fetched[i]);
      encoded.views.push_back(encoded.held[i]);
    }
    if (encoded.views.back().size() > bytes_max) {
      return refused(
          Kind::kImageTooLarge,
          fmt::format("{}: image file size exceeds limit {} MB", places[i], in_mb(bytes_max))
      );
    }
  }
  return encoded;
}

// The same image again, as agents send their screenshots, is made once.
class Preprocessor {
 public:
  explicit Preprocessor(PreprocessOptions options) : options_(options) {}

  ImageResult<Preprocessed> run(std::string_view bytes, api::ImageDetail detail) {
    const auto key = std::pair(sha256(std::as_bytes(std::span(bytes))), detail);
    if (const auto known = done_.find(key); known != done_.end()) return known->second;
    options_.detail = detail;
    auto made = preprocess(bytes, options_);
    if (made) done_.emplace(key, *made);
    return made;
  }

 private:
  PreprocessOptions options_;
  std::map<std::pair<Digest, api::ImageDetail>, Preprocessed> done_;
};

}  // namespace

ImageResult<ResolvedImages> ImageResolver::resolve(
    std::span<const ImageSource> sources, ImageQuota& quota
) {
  ImageQuota after{quota.images + sources.size(), quota.bytes};
  if (after.images > limits_.images_max) {
    return refused(
        Kind::kTooManyImages,
        fmt::format(
            "Too many images: max {} images per request, got {}", limits_.images_max, after.images
        )
    );
  }
  for (const ImageSource& source : sources) {
    if (source.kind != ImageSource::Kind::kUrl) continue;
    if (auto fault = url_fault(source, limits_.url_bytes_max))
      return tl::unexpected(std::move(*fault));
  }
  const auto places = places_of(sources);
  auto encoded = load(sources, places, fetch_all(sources, fetcher_, limits_), limits_.bytes_max);
  if (!encoded) return tl::unexpected(std::move(encoded.error()));
  for (const std::string_view bytes : encoded->views) after.bytes += bytes.size();
  if (after.bytes > limits_.total_bytes_max) {
    return refused(
        Kind::kTotalSizeTooLarge,
        fmt::format(
            "Total image size exceeds the limit: max {} MB per request, got {} MB",
            in_mb(limits_.total_bytes_max),
            in_mb(after.bytes)
        )
    );
  }
  PreprocessOptions options;
  options.side_max =
      after.images >= limits_.many_images ? limits_.side_max_of_many : limits_.side_max;
  options.low_detail_side_max = limits_.low_detail_side_max;
  Preprocessor preprocessor(options);
  ResolvedImages out;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    auto image = preprocessor.run(encoded->views[i], sources[i].detail);
    if (!image) return refused(image.error().kind, unsupported_text(places[i]));
    out.token_adjustment += token_adjustment({image->width, image->height}).value_or(0);
    out.images.push_back(std::move(*image));
  }
  quota = after;
  return out;
}

}  // namespace artery::codec::image
