#pragma once
// Encoded images to pixels: one function a format, each in a file of its own with its library
// behind it. Every size is checked by what the header says before memory for pixels is taken; a
// file that says one thing and holds another is a fault, never more memory than its header's. The
// first frame of animations; transparency over white; orientation tags are not looked at, colour
// profiles neither. Pure functions, any thread; at most one copy of the pixels, four bytes each.

#include <optional>
#include <span>
#include <string>

#include "codec/image/image.h"

namespace artery::codec::image {

enum class Format : std::uint8_t { kPng, kJpeg, kGif, kWebp };

// By the first bytes; nullopt: none of the four.
std::optional<Format> format_of(std::string_view bytes);

enum class Fault : std::uint8_t {
  kHeader,    // unreadable up to where the pixels begin
  kTooLarge,  // a side above `max_side`
  kPixels     // damaged, cut off, or no pixels at all
};

using Decoded = tl::expected<Pixels, Fault>;

// `max_side`: the longest width or height taken, in pixels.
Decoded decode_png(std::string_view bytes, int max_side);
Decoded decode_jpeg(std::string_view bytes, int max_side);
Decoded decode_gif(std::string_view bytes, int max_side);
Decoded decode_webp(std::string_view bytes, int max_side);

Decoded decode(Format format, std::string_view bytes, int max_side);

// Lossy WebP; sides at most 16,383. Empty when the library refuses (out of memory).
std::string encode_webp(const Pixels& pixels, float quality);

// For the decoders: kTooLarge, kHeader for an empty size.
std::optional<Fault> size_fault(std::int64_t width, std::int64_t height, int max_side);
// One channel over white.
std::uint8_t over_white(std::uint8_t value, std::uint8_t alpha);
// `rgba`: 4 bytes a pixel; becomes 3, over white, in place.
void flatten_over_white(std::vector<std::uint8_t>& rgba);

}  // namespace artery::codec::image
