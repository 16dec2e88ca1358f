// JPEG by libjpeg-turbo. Its errors come by longjmp: what must be freed lives outside of the
// functions that setjmp, and those hold no objects with destructors.

#include <cstddef>
#include <cstdio>
// libjpeg's header needs the two above.
#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>

#include "codec/image/decoders.h"

namespace artery::codec::image {
namespace {

// A small file can have the library go over a large image again and again.
constexpr int kScansMax = 500;

struct Reader {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::jmp_buf failed{};
  Pixels pixels;
  std::vector<std::uint8_t> row;

  Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { jpeg_destroy_decompress(&jpeg); }
};

[[noreturn]] void give_up(j_common_ptr jpeg) {
  std::longjmp(static_cast<Reader*>(jpeg->client_data)->failed, 1);
}
void on_message(j_common_ptr) {}
void on_warning(j_common_ptr, int) {}
void on_source(j_decompress_ptr) {}
// All of the file was there from the beginning: it is cut off.
boolean on_end_of_input(j_decompress_ptr) { return FALSE; }

void on_skip(j_decompress_ptr jpeg, long count) {
  if (count <= 0) return;
  const std::size_t size = std::min(static_cast<std::size_t>(count), jpeg->src->bytes_in_buffer);
  jpeg->src->next_input_byte += size;
  jpeg->src->bytes_in_buffer -= size;
}

void on_progress(j_common_ptr jpeg) {
  if (jpeg->is_decompressor &&
      reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number > kScansMax)
    give_up(jpeg);
}

bool open(Reader& reader, std::string_view bytes) {
  jpeg_std_error(&reader.errors);
  reader.errors.error_exit = give_up;
  reader.errors.output_message = on_message;
  reader.errors.emit_message = on_warning;
  reader.jpeg.err = &reader.errors;
  reader.jpeg.client_data = &reader;
  if (setjmp(reader.failed) != 0) return false;
  jpeg_create_decompress(&reader.jpeg);
  reader.source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
  reader.source.bytes_in_buffer = bytes.size();
  reader.source.init_source = on_source;
  reader.source.fill_input_buffer = on_end_of_input;
  reader.source.skip_input_data = on_skip;
  reader.source.resync_to_restart = jpeg_resync_to_restart;
  reader.source.term_source = on_source;
  reader.jpeg.src = &reader.source;
  reader.progress.progress_monitor = on_progress;
  reader.jpeg.progress = &reader.progress;
  return jpeg_read_header(&reader.jpeg, TRUE) == JPEG_HEADER_OK;
}

// Adobe's inverted inks: each times black.
void cmyk_row(const std::uint8_t* in, std::uint8_t* out, std::size_t width) {
  for (std::size_t x = 0; x < width; ++x, in += 4, out += 3) {
    const int black = in[3];
    for (int c = 0; c < 3; ++c)
      out[c] = static_cast<std::uint8_t>(black - (((255 - in[c]) * black) >> 8));
  }
}

bool read_rows(Reader& reader) {
  if (setjmp(reader.failed) != 0) return false;
  const bool is_cmyk =
      reader.jpeg.jpeg_color_space == JCS_CMYK || reader.jpeg.jpeg_color_space == JCS_YCCK;
  reader.jpeg.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
  if (jpeg_start_decompress(&reader.jpeg) == FALSE) return false;
  const std::size_t width = static_cast<std::size_t>(reader.pixels.width);
  while (reader.jpeg.output_scanline < reader.jpeg.output_height) {
    std::uint8_t* const out = reader.pixels.rgb.data() + reader.jpeg.output_scanline * width * 3;
    JSAMPROW row = is_cmyk ? reader.row.data() : out;
    if (jpeg_read_scanlines(&reader.jpeg, &row, 1) != 1) return false;
    if (is_cmyk) cmyk_row(row, out, width);
  }
  return jpeg_finish_decompress(&reader.jpeg) == TRUE;
}

}  // namespace

Decoded decode_jpeg(std::string_view bytes, int max_side) {
  Reader reader;
  if (!open(reader, bytes)) return tl::unexpected(Fault::kHeader);
  const std::int64_t width = reader.jpeg.image_width, height = reader.jpeg.image_height;
  if (const auto fault = size_fault(width, height, max_side)) return tl::unexpected(*fault);
  reader.pixels.width = static_cast<int>(width);
  reader.pixels.height = static_cast<int>(height);
  reader.pixels.rgb.resize(static_cast<std::size_t>(width * height) * 3);
  reader.row.resize(static_cast<std::size_t>(width) * 4);
  if (!read_rows(reader)) return tl::unexpected(Fault::kPixels);
  return std::move(reader.pixels);
}

}  // namespace artery::codec::image
