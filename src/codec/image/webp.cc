// WebP by libwebp and, for the first frame of animations, libwebpdemux.

#include <webp/decode.h>
#include <webp/demux.h>
#include <webp/encode.h>

#include <memory>
#include <utility>

#include "codec/image/decoders.h"

namespace artery::codec::image {
namespace {

// Less is no image for the official package, whatever it holds.
constexpr std::size_t kBytesMin = 32;

const std::uint8_t* data_of(std::string_view bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

struct AnimationDeleter {
  void operator()(WebPAnimDecoder* decoder) const { WebPAnimDecoderDelete(decoder); }
};

Decoded decode_animation(std::string_view bytes, Pixels pixels) {
  WebPAnimDecoderOptions options;
  if (WebPAnimDecoderOptionsInit(&options) == 0) return tl::unexpected(Fault::kPixels);
  options.color_mode = MODE_RGBA;
  options.use_threads = 0;
  const WebPData data{data_of(bytes), bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, AnimationDeleter> decoder(
      WebPAnimDecoderNew(&data, &options)
  );
  if (!decoder) return tl::unexpected(Fault::kPixels);
  std::uint8_t* frame = nullptr;
  int time_ms = 0;
  if (WebPAnimDecoderGetNext(decoder.get(), &frame, &time_ms) == 0)
    return tl::unexpected(Fault::kPixels);
  const auto count =
      static_cast<std::size_t>(pixels.width) * static_cast<std::size_t>(pixels.height);
  pixels.rgb.assign(frame, frame + count * 4);
  flatten_over_white(pixels.rgb);
  return pixels;
}

Decoded decode_still(std::string_view bytes, bool has_alpha, Pixels pixels) {
  const int channels = has_alpha ? 4 : 3;
  const int stride = pixels.width * channels;
  pixels.rgb.resize(static_cast<std::size_t>(stride) * static_cast<std::size_t>(pixels.height));
  auto* const into = has_alpha ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  if (into(data_of(bytes), bytes.size(), pixels.rgb.data(), pixels.rgb.size(), stride) == nullptr)
    return tl::unexpected(Fault::kPixels);
  if (has_alpha) flatten_over_white(pixels.rgb);
  return pixels;
}

}  // namespace

Decoded decode_webp(std::string_view bytes, int max_side) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data_of(bytes), bytes.size(), &features) != VP8_STATUS_OK)
    return tl::unexpected(Fault::kHeader);
  if (bytes.size() < kBytesMin) return tl::unexpected(Fault::kPixels);
  if (const auto fault = size_fault(features.width, features.height, max_side))
    return tl::unexpected(*fault);
  Pixels pixels{features.width, features.height, {}};
  if (features.has_animation != 0) return decode_animation(bytes, std::move(pixels));
  return decode_still(bytes, features.has_alpha != 0, std::move(pixels));
}

std::string encode_webp(const Pixels& pixels, float quality) {
  std::uint8_t* bytes = nullptr;
  const std::size_t size = WebPEncodeRGB(
      pixels.rgb.data(), pixels.width, pixels.height, pixels.width * 3, quality, &bytes
  );
  std::string out(reinterpret_cast<const char*>(bytes), size);
  WebPFree(bytes);
  return out;
}

}  // namespace artery::codec::image
