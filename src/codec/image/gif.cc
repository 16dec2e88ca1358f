// GIF by giflib: the first frame on the logical screen. Read record by record, so that the frames
// behind it are never looked at.

#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "codec/image/decoders.h"

namespace artery::codec::image {
namespace {

struct Closer {
  void operator()(GifFileType* file) const {
    int ignored = 0;
    DGifCloseFile(file, &ignored);
  }
};
using File = std::unique_ptr<GifFileType, Closer>;

int on_read(GifFileType* file, GifByteType* out, int size) {
  auto& rest = *static_cast<std::string_view*>(file->UserData);
  const std::size_t count = std::min(rest.size(), static_cast<std::size_t>(std::max(size, 0)));
  std::memcpy(out, rest.data(), count);
  rest.remove_prefix(count);
  return static_cast<int>(count);
}

// Reads an extension; remembers which colour is transparent.
bool read_extension(GifFileType* file, int& transparent) {
  int code = 0;
  GifByteType* block = nullptr;
  if (DGifGetExtension(file, &code, &block) != GIF_OK) return false;
  while (block != nullptr) {
    if (code == GRAPHICS_EXT_FUNC_CODE && block[0] == 4)
      transparent = (block[1] & 1) != 0 ? block[4] : NO_TRANSPARENT_COLOR;
    if (DGifGetExtensionNext(file, &block) != GIF_OK) return false;
  }
  return true;
}

// To the first image's descriptor; false: there is none.
bool find_frame(GifFileType* file, int& transparent) {
  for (;;) {
    GifRecordType record = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(file, &record) != GIF_OK) return false;
    if (record == IMAGE_DESC_RECORD_TYPE) return DGifGetImageHeader(file) == GIF_OK;
    if (record != EXTENSION_RECORD_TYPE || !read_extension(file, transparent)) return false;
  }
}

struct Palette {
  std::array<std::array<std::uint8_t, 3>, 256> colors{};
};

Palette palette_of(const ColorMapObject& map) {
  Palette palette;
  for (int i = 0; i < std::min(map.ColorCount, 256); ++i)
    palette.colors[static_cast<std::size_t>(i)] = {
        map.Colors[i].Red, map.Colors[i].Green, map.Colors[i].Blue
    };
  return palette;
}

// The rows of an interlaced frame come in four passes.
std::vector<int> row_order(int height, bool is_interlaced) {
  std::vector<int> rows;
  rows.reserve(static_cast<std::size_t>(height));
  if (!is_interlaced) {
    for (int y = 0; y < height; ++y) rows.push_back(y);
    return rows;
  }
  constexpr std::array<int, 4> kStarts = {0, 4, 2, 1}, kSteps = {8, 8, 4, 2};
  for (std::size_t pass = 0; pass < kStarts.size(); ++pass)
    for (int y = kStarts[pass]; y < height; y += kSteps[pass]) rows.push_back(y);
  return rows;
}

// What of the frame lies outside of the screen is not shown.
void put_row(
    const GifImageDesc& frame,
    int y,
    const std::vector<GifPixelType>& line,
    const Palette& palette,
    int transparent,
    Pixels& screen
) {
  const int row = frame.Top + y;
  if (row < 0 || row >= screen.height) return;
  for (int x = 0; x < frame.Width; ++x) {
    const int column = frame.Left + x, color = line[static_cast<std::size_t>(x)];
    if (column < 0 || column >= screen.width || color == transparent) continue;
    const auto at = (static_cast<std::size_t>(row) * static_cast<std::size_t>(screen.width) +
                     static_cast<std::size_t>(column)) *
                    3;
    const auto& rgb = palette.colors[static_cast<std::size_t>(color)];
    std::copy(rgb.begin(), rgb.end(), screen.rgb.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

}  // namespace

Decoded decode_gif(std::string_view bytes, int max_side) {
  if (!bytes.starts_with("GIF87a") && !bytes.starts_with("GIF89a"))
    return tl::unexpected(Fault::kHeader);
  int error = 0;
  const File file(DGifOpen(&bytes, on_read, &error));
  if (!file) return tl::unexpected(Fault::kHeader);
  if (const auto fault = size_fault(file->SWidth, file->SHeight, max_side))
    return tl::unexpected(*fault == Fault::kHeader ? Fault::kPixels : *fault);
  int transparent = NO_TRANSPARENT_COLOR;
  if (!find_frame(file.get(), transparent)) return tl::unexpected(Fault::kHeader);
  const GifImageDesc& frame = file->Image;
  const ColorMapObject* const map = frame.ColorMap != nullptr ? frame.ColorMap : file->SColorMap;
  if (map == nullptr || size_fault(frame.Width, frame.Height, max_side))
    return tl::unexpected(Fault::kHeader);
  const Palette palette = palette_of(*map);
  Pixels screen{file->SWidth, file->SHeight, {}};
  screen.rgb.assign(
      static_cast<std::size_t>(screen.width) * static_cast<std::size_t>(screen.height) * 3, 255
  );
  std::vector<GifPixelType> line(static_cast<std::size_t>(frame.Width));
  for (const int y : row_order(frame.Height, frame.Interlace)) {
    if (DGifGetLine(file.get(), line.data(), frame.Width) != GIF_OK)
      return tl::unexpected(Fault::kHeader);
    put_row(frame, y, line, palette, transparent, screen);
  }
  return screen;
}

}  // namespace artery::codec::image
