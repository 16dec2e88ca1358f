#include "cli/image_case.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/hash.h"
#include "cli/base64.h"
#include "codec/api/json_out.h"
#include "codec/image/decoders.h"
#include "codec/image/token_grid.h"

namespace artery::cli {
namespace {

using codec::api::ImageDetail;
using codec::api::ImageSource;
using codec::api::Json;
using codec::api::put_json_int;
using codec::api::put_json_string;
using codec::image::ImageError;
using codec::image::Size;

constexpr std::size_t kShownBytesMax = 1500;  // of data_base64
constexpr std::size_t kShownSizesMax = 20;    // of a resolve's sizes
constexpr std::uint64_t kRepeatBytesMax = 256u << 20;
constexpr std::uint64_t kTimesMax = 100000;

std::string digest_of(std::string_view bytes) {
  return hex(sha256(std::as_bytes(std::span(bytes))));
}

Result<std::string> text_of(const Json& object, std::string_view name, std::string_view fallback) {
  const Json* const value = object.find(name);
  if (value == nullptr || value->is_null()) return std::string(fallback);
  if (!value->is_string()) return fail_field(std::string(name), "{}: not a string", name);
  return std::string(value->text());
}

Result<std::uint64_t> count_of(
    const Json& object, std::string_view name, std::uint64_t fallback, std::uint64_t max
) {
  const Json* const value = object.find(name);
  if (value == nullptr || value->is_null()) return fallback;
  if (value->kind() != Json::Kind::kWhole || value->whole() > max)
    return fail_field(std::string(name), "{}: not a whole number from 0 to {}", name, max);
  return value->whole();
}

Result<ImageDetail> detail_of(const Json& object) {
  const std::string detail = TRY(text_of(object, "detail", "high"));
  constexpr std::array<std::string_view, 4> kNames = {"low", "high", "original", "auto"};
  const auto* const found = std::find(kNames.begin(), kNames.end(), detail);
  if (found == kNames.end())
    return fail_field("detail", "detail: '{}' is none of low, high, original, auto", detail);
  return static_cast<ImageDetail>(found - kNames.begin());
}

Result<Size> size_of(const Json& value) {
  constexpr std::uint64_t kMax = 1u << 24;
  const auto items = value.is_array() ? value.items() : std::span<const Json>();
  if (items.size() != 2 || items[0].kind() != Json::Kind::kWhole ||
      items[1].kind() != Json::Kind::kWhole || items[0].whole() > kMax || items[1].whole() > kMax)
    return fail_field("sizes", "sizes: each is [width, height], whole numbers up to {}", kMax);
  return Size{static_cast<int>(items[0].whole()), static_cast<int>(items[1].whole())};
}

void put_size(std::string& out, Size size) {
  out += '[';
  put_json_int(out, size.width);
  out += ',';
  put_json_int(out, size.height);
  out += ']';
}

std::string error_text(const ImageError& error) {
  std::string out = R"("error":{"kind":)";
  put_json_string(out, codec::image::kind_name(error.kind));
  out += R"(,"is_retryable":)";
  codec::api::put_json_bool(out, error.is_retryable);
  out += R"(,"message":)";
  put_json_string(out, error.message);
  return out + '}';
}

// A grid of 4 x 4: the edges, the quarter, the half.
std::string samples_of(const codec::image::Pixels& pixels) {
  const auto places = [](int side) { return std::array{0, side / 4, side / 2, side - 1}; };
  std::string out = "[";
  for (const int y : places(pixels.height)) {
    for (const int x : places(pixels.width)) {
      if (out.size() > 1) out += ',';
      out += '[';
      put_json_int(out, x);
      out += ',';
      put_json_int(out, y);
      const auto at = (static_cast<std::size_t>(y) * static_cast<std::size_t>(pixels.width) +
                       static_cast<std::size_t>(x)) *
                      3;
      for (std::size_t c = 0; c < 3; ++c) {
        out += ',';
        put_json_int(out, pixels.rgb[at + c]);
      }
      out += ']';
    }
  }
  return out + ']';
}

std::string result_text(const codec::image::Preprocessed& image) {
  const Size size{image.width, image.height};
  std::string out = R"("result":{"width":)";
  put_json_int(out, size.width);
  out += R"(,"height":)";
  put_json_int(out, size.height);
  out += R"(,"bytes":)";
  put_json_int(out, static_cast<std::int64_t>(image.webp.size()));
  out += R"(,"sha256":")" + digest_of(image.webp) + R"(","format":"WEBP","stored_size":)";
  put_size(out, size);
  const auto pixels = codec::image::decode_webp(image.webp, codec::image::kStoredSideMax);
  if (pixels) out += R"(,"samples":)" + samples_of(*pixels);
  if (image.webp.size() <= kShownBytesMax)
    out += R"(,"data_base64":")" + base64_encode(image.webp) + '"';
  out += R"(,"image_token_adjustment":)";
  put_json_int(out, codec::image::token_adjustment(size).value_or(0));
  return out + '}';
}

std::string result_text(const codec::image::ResolvedImages& resolved, bool is_more) {
  std::string out = R"("result":{)";
  if (!is_more) {
    out += R"("sizes":[)";
    for (std::size_t i = 0; i < std::min(resolved.images.size(), kShownSizesMax); ++i) {
      if (i > 0) out += ',';
      put_size(out, {resolved.images[i].width, resolved.images[i].height});
    }
    out += "],";
  }
  out += R"("images":)";
  put_json_int(out, static_cast<std::int64_t>(resolved.images.size()));
  if (!is_more) {
    out += R"(,"image_token_adjustment":)";
    put_json_int(out, resolved.token_adjustment);
  }
  return out + '}';
}

}  // namespace

Result<std::string> ImageCases::known(std::string_view sha256) const {
  const auto found = inputs_.find(sha256);
  if (found == inputs_.end())
    return fail_field("sha256", "no input before this line has the SHA-256 '{}'", sha256);
  return found->second;
}

Result<std::string> ImageCases::input_of(const Json& line) {
  const std::string digest = TRY(text_of(line, "input_sha256", ""));
  if (!digest.empty()) return known(digest);
  const Json* const given = line.find("input_base64");
  if (given == nullptr || !given->is_string())
    return fail_field("input_base64", "input_base64 or input_sha256: the image is missing");
  std::string bytes = TRY(base64_decode(given->text()));
  inputs_.emplace(digest_of(bytes), bytes);
  return bytes;
}

Result<std::string> ImageCases::preprocess(const Json& line) {
  constexpr std::uint64_t kSideMax = 1u << 30;
  const std::string bytes = TRY(input_of(line));
  codec::image::PreprocessOptions options;
  options.detail = TRY(detail_of(line));
  options.side_max = static_cast<int>(TRY(count_of(line, "max_dimension_px", 8192, kSideMax)));
  options.low_detail_side_max =
      static_cast<int>(TRY(count_of(line, "low_detail_max_dimension_px", 512, kSideMax)));
  const auto image = codec::image::preprocess(bytes, options);
  return image ? result_text(*image) : error_text(image.error());
}

Result<std::string> ImageCases::token_adjustment(const Json& line) const {
  const Json* const sizes = line.find("sizes");
  if (sizes == nullptr || !sizes->is_array())
    return fail_field("sizes", "sizes: [[width, height], ...] is missing");
  std::int64_t sum = 0;
  for (const Json& item : sizes->items()) {
    const Size size = TRY(size_of(item));
    const auto tokens = codec::image::token_adjustment(size);
    if (!tokens)
      return fail_field("sizes", "sizes: {} x {} has no fitting size", size.width, size.height);
    sum += *tokens;
  }
  std::string out = R"("result":{"image_token_adjustment":)";
  put_json_int(out, sum);
  return out + '}';
}

Result<std::string> ImageCases::data_of(const Json& source, bool is_bytes) const {
  if (const Json* const value = source.find("value"); value != nullptr && value->is_string()) {
    if (is_bytes) return base64_decode(value->text());
    return std::string(value->text());
  }
  const Json* const repeat = source.find("repeat");
  if (repeat == nullptr) return known(TRY(text_of(source, "sha256", "")));
  const auto items = repeat->is_array() ? repeat->items() : std::span<const Json>();
  if (items.size() != 2 || !items[0].is_string() || items[1].kind() != Json::Kind::kWhole ||
      items[1].whole() > kRepeatBytesMax / std::max<std::size_t>(items[0].text().size(), 1))
    return fail_field("repeat", "repeat: [text, count] of at most {} bytes", kRepeatBytesMax);
  std::string out;
  out.reserve(items[0].text().size() * items[1].whole());
  for (std::uint64_t i = 0; i < items[1].whole(); ++i) out += items[0].text();
  return out;
}

Result<std::vector<ImageSource>> ImageCases::sources_of(const Json& line) const {
  const Json* const given = line.find("sources");
  if (given == nullptr || !given->is_array())
    return fail_field("sources", "sources: a list is missing");
  std::vector<ImageSource> sources;
  for (const Json& item : given->items()) {
    ImageSource source;
    const std::string kind = TRY(text_of(item, "kind", ""));
    constexpr std::array<std::string_view, 3> kKinds = {"data_url", "url", "bytes"};
    const auto* const found = std::find(kKinds.begin(), kKinds.end(), kind);
    if (found == kKinds.end())
      return fail_field("kind", "sources: kind '{}' is none of data_url, url, bytes", kind);
    source.kind = static_cast<ImageSource::Kind>(found - kKinds.begin());
    source.detail = TRY(detail_of(item));
    source.path = TRY(text_of(item, "path", ""));
    source.data = TRY(data_of(item, source.kind == ImageSource::Kind::kBytes));
    sources.insert(sources.end(), TRY(count_of(item, "times", 1, kTimesMax)), source);
  }
  return sources;
}

Result<std::string> ImageCases::resolve(const Json& line, bool is_more) {
  const auto sources = TRY(sources_of(line));
  codec::image::ImageQuota own;
  codec::image::ImageQuota& quota = is_more ? more_ : own;
  const auto resolved = codec::image::ImageResolver(fetcher_).resolve(sources, quota);
  std::string out = resolved ? result_text(*resolved, is_more) : error_text(resolved.error());
  out += R"(,"quota_after":[)";
  put_json_int(out, static_cast<std::int64_t>(quota.images));
  out += ',';
  put_json_int(out, static_cast<std::int64_t>(quota.bytes));
  return out + ']';
}

Result<std::string> ImageCases::answer(const Json& line) {
  const std::string op = TRY(text_of(line, "op", "preprocess"));
  if (op == "preprocess") return preprocess(line);
  if (op == "token_adjustment") return token_adjustment(line);
  if (op == "resolve" || op == "resolve_more") return resolve(line, op == "resolve_more");
  return fail_field(
      "op", "op: '{}' is none of preprocess, token_adjustment, resolve, resolve_more", op
  );
}

}  // namespace artery::cli
