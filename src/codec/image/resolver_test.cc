// What the resolver does with a fetcher: limits, order, places. The record has the rest
// (tests/codec/recipe_images_test.cc).

#include "codec/image/resolver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "codec/image/decoders.h"

namespace artery::codec::image {
namespace {

using api::ImageSource;
using Kind = ImageError::Kind;

std::string small_image() {
  return encode_webp(Pixels{8, 8, std::vector<std::uint8_t>(192, 50)}, 90);
}

// "http://h/ok", "/404", "/500", "/inside", "/large", "/mib": a body of 1 MiB, no image.
class FakeFetcher final : public ImageFetcher {
 public:
  tl::expected<std::string, Failure> fetch(const std::string& url, std::size_t) override {
    const int now = ++running;
    most = std::max(most.load(), now);
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    --running;
    if (url.ends_with("/404")) return tl::unexpected(Failure{Kind::kFetchStatus, false, "404"});
    if (url.ends_with("/500")) return tl::unexpected(Failure{Kind::kFetchStatus, true, "500"});
    if (url.ends_with("/inside"))
      return tl::unexpected(Failure{Kind::kDestinationRejected, false, "10.0.0.1"});
    if (url.ends_with("/large"))
      return tl::unexpected(Failure{Kind::kImageTooLarge, false, "large"});
    if (url.ends_with("/mib")) return std::string(1u << 20, 'x');
    return small_image();
  }
  std::atomic<int> running{0}, most{0}, calls{0};
};

ImageSource url(const std::string& path, const std::string& at = "m") {
  return {ImageSource::Kind::kUrl, api::ImageDetail::kHigh, "http://h/" + path, at};
}

TEST(ImageResolver, FetchesEightAtOnce) {
  FakeFetcher fetcher;
  ImageQuota quota;
  const std::vector<ImageSource> sources(40, url("ok"));
  const auto resolved = ImageResolver(fetcher).resolve(sources, quota);
  ASSERT_TRUE(resolved) << resolved.error().message;
  EXPECT_EQ(resolved->images.size(), 40U);
  EXPECT_EQ(resolved->token_adjustment, 40 * 183);
  EXPECT_EQ(fetcher.calls, 40);
  EXPECT_LE(fetcher.most, 8);
  EXPECT_GT(fetcher.most, 1);
  EXPECT_EQ(quota, (ImageQuota{40, 40 * small_image().size()}));
}

TEST(ImageResolver, SaysWhichImageAndNothingOfTheNetwork) {
  struct Case {
    std::string path;
    Kind kind;
    bool is_retryable;
    std::string message;
  };
  const std::string download = "b.image[1]: Failed to download image from http://h/";
  for (const Case& one :
       {Case{"404", Kind::kFetchStatus, false, download + "404"},
        Case{"500", Kind::kFetchStatus, true, download + "500"},
        Case{"inside", Kind::kDestinationRejected, false, download + "inside"},
        Case{
            "large", Kind::kImageTooLarge, false, "b.image[1]: image file size exceeds limit 32 MB"
        },
        Case{"mib", Kind::kUnsupportedMediaType, false, unsupported_text("b.image[1]")}}) {
    FakeFetcher fetcher;
    ImageQuota quota{3, 4};
    const std::vector<ImageSource> sources = {url("ok", "a"), url("ok", "b"), url(one.path, "b")};
    const auto resolved = ImageResolver(fetcher).resolve(sources, quota);
    ASSERT_FALSE(resolved) << one.path;
    EXPECT_EQ(resolved.error().kind, one.kind) << one.path;
    EXPECT_EQ(resolved.error().is_retryable, one.is_retryable) << one.path;
    EXPECT_EQ(resolved.error().message, one.message);
    EXPECT_EQ(quota, (ImageQuota{3, 4}));
  }
}

TEST(ImageResolver, StopsFetchingWhenItIsTooMuch) {
  FakeFetcher fetcher;
  ImageLimits limits;
  limits.total_bytes_max = 4u << 20;
  ImageQuota quota;
  const std::vector<ImageSource> sources(200, url("mib"));
  const auto resolved = ImageResolver(fetcher, limits).resolve(sources, quota);
  ASSERT_FALSE(resolved);
  EXPECT_EQ(resolved.error().kind, Kind::kTotalSizeTooLarge);
  EXPECT_LE(fetcher.calls, 4 + 8);
}

TEST(ImageResolver, FetchesNothingForARequestThatIsWrong) {
  FakeFetcher fetcher;
  ImageQuota quota;
  const std::vector<ImageSource> sources = {
      url("ok"), {ImageSource::Kind::kUrl, api::ImageDetail::kHigh, "ftp://h/x", "a"}
  };
  const auto resolved = ImageResolver(fetcher).resolve(sources, quota);
  ASSERT_FALSE(resolved);
  EXPECT_EQ(resolved.error().message, "a: invalid url: \"ftp://h/x\"");
  EXPECT_EQ(fetcher.calls, 0);
}

}  // namespace
}  // namespace artery::codec::image
