// PNG by libpng. Its errors come by longjmp: what must be freed lives outside of the functions that
// setjmp, and those hold no objects with destructors.

#include <png.h>

#include <csetjmp>
#include <cstring>

#include "codec/image/decoders.h"

namespace artery::codec::image {
namespace {

// Text and profile chunks are kept by the library; none is needed.
constexpr png_alloc_size_t kChunkBytesMax = 8u << 20;

struct Reader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::string_view rest;
  std::vector<png_bytep> rows;
  Pixels pixels;
  bool has_alpha = false;

  Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
};

void on_error(png_structp png, png_const_charp) { png_longjmp(png, 1); }
void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep out, std::size_t size) {
  auto* const reader = static_cast<Reader*>(png_get_io_ptr(png));
  if (size > reader->rest.size()) png_longjmp(png, 1);
  std::memcpy(out, reader->rest.data(), size);
  reader->rest.remove_prefix(size);
}

// Up to the first IDAT.
bool read_header(Reader& reader) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_read_info(reader.png, reader.info);
  return true;
}

// Whatever the file holds becomes 8-bit RGB, or RGBA where something is transparent.
bool set_output(Reader& reader) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_set_expand(reader.png);
  png_set_strip_16(reader.png);
  png_set_gray_to_rgb(reader.png);
  png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  reader.has_alpha = png_get_channels(reader.png, reader.info) == 4;
  return true;
}

bool read_pixels(Reader& reader) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_read_image(reader.png, reader.rows.data());
  png_read_end(reader.png, nullptr);
  return true;
}

// Deflate makes at most 1,032 bytes of one, so a short file with a large size holds no such image.
bool can_hold_pixels(const Reader& reader, std::size_t file_bytes) {
  const std::size_t row_bits = static_cast<std::size_t>(reader.pixels.width) *
                               png_get_channels(reader.png, reader.info) *
                               png_get_bit_depth(reader.png, reader.info);
  return file_bytes * 1032 >= row_bits / 8 * static_cast<std::size_t>(reader.pixels.height);
}

void make_rows(Reader& reader) {
  const std::size_t stride =
      static_cast<std::size_t>(reader.pixels.width) * (reader.has_alpha ? 4 : 3);
  const auto height = static_cast<std::size_t>(reader.pixels.height);
  reader.pixels.rgb.resize(stride * height);
  reader.rows.resize(height);
  for (std::size_t y = 0; y < height; ++y) reader.rows[y] = reader.pixels.rgb.data() + y * stride;
}

}  // namespace

Decoded decode_png(std::string_view bytes, int max_side) {
  Reader reader;
  reader.rest = bytes;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, nullptr, on_error, on_warning);
  if (reader.png == nullptr) return tl::unexpected(Fault::kPixels);
  reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) return tl::unexpected(Fault::kPixels);
  png_set_read_fn(reader.png, &reader, on_read);
  // The format's own bound: what is above `max_side` is to be told from what is damaged.
  png_set_user_limits(reader.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  png_set_chunk_malloc_max(reader.png, kChunkBytesMax);
  if (!read_header(reader)) return tl::unexpected(Fault::kHeader);
  const std::int64_t width = png_get_image_width(reader.png, reader.info);
  const std::int64_t height = png_get_image_height(reader.png, reader.info);
  if (const auto fault = size_fault(width, height, max_side)) return tl::unexpected(*fault);
  reader.pixels.width = static_cast<int>(width);
  reader.pixels.height = static_cast<int>(height);
  if (!can_hold_pixels(reader, bytes.size())) return tl::unexpected(Fault::kPixels);
  if (!set_output(reader)) return tl::unexpected(Fault::kPixels);
  make_rows(reader);
  if (!read_pixels(reader)) return tl::unexpected(Fault::kPixels);
  if (reader.has_alpha) flatten_over_white(reader.pixels.rgb);
  return std::move(reader.pixels);
}

}  // namespace artery::codec::image
