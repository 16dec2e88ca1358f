#include "tensor/tile_pack.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tensor/ops/tile_layout.h"

namespace artery::tensor {
namespace {

using ops::TileFormat;

constexpr std::size_t kRows = 16;
constexpr std::uint32_t kOffsetBits = 0x80808080u;  // turns signed bytes into byte + 128 and back

const TileFormat* format_of(DType type) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return &ops::kQ4_0Tile;
    case DType::kQ4_1:
      return &ops::kQ4_1Tile;
    case DType::kQ5_0:
      return &ops::kQ5_0Tile;
    case DType::kQ5_1:
      return &ops::kQ5_1Tile;
    case DType::kQ8_0:
      return &ops::kQ8_0Tile;
    case DType::kMXFP4:
      return &ops::kMXFP4Tile;
    case DType::kQ4_K:
      return &ops::kQ4_KTile;
    case DType::kQ5_K:
      return &ops::kQ5_KTile;
    case DType::kQ6_K:
      return &ops::kQ6_KTile;
    case DType::kIQ4_XS:
      return &ops::kIQ4_XSTile;
    default:
      return nullptr;
  }
}

bool is_plain_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

std::uint32_t load_dword(const std::byte* p) {
  std::uint32_t x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

// Bit 4 g + j to bit 8 j + g.
std::uint32_t spread_bits(std::uint32_t file) {
  std::uint32_t out = 0;
  for (unsigned j = 0; j < 4; ++j) {
    std::uint32_t x = file >> j & 0x11111111u;
    x = (x | x >> 3) & 0x03030303u;
    x = (x | x >> 6) & 0x000F000Fu;
    out |= ((x | x >> 12) & 0xFFu) << (8 * j);
  }
  return out;
}

// The inverse.
std::uint32_t join_bits(std::uint32_t tile) {
  std::uint32_t out = 0;
  for (unsigned j = 0; j < 4; ++j) {
    std::uint32_t x = tile >> (8 * j) & 0xFFu;
    x = (x | x << 12) & 0x000F000Fu;
    x = (x | x << 6) & 0x03030303u;
    out |= ((x | x << 3) & 0x11111111u) << j;
  }
  return out;
}

bool has_fifth_bits(const TileFormat& format) {
  return &format == &ops::kQ5_0Tile || &format == &ops::kQ5_1Tile;
}

struct Sources {
  std::array<const std::byte*, kRows> row;
};

template <std::size_t kWidth>
void spread(const Sources& from, std::size_t file_at, std::byte* to) {
  for (std::size_t i = 0; i < kRows; ++i)
    std::memcpy(to + kWidth * i, from.row[i] + file_at, kWidth);
}

void spread_field(
    const Sources& from, const TileFormat::Field& field, std::uint32_t flip, std::byte* to
) {
  for (std::size_t e = 0; e < field.dwords; ++e, to += ops::kTileLine) {
    for (std::size_t i = 0; i < kRows; ++i) {
      const std::uint32_t x = load_dword(from.row[i] + field.file_at + 4 * e) ^ flip;
      std::memcpy(to + 4 * i, &x, sizeof x);
    }
  }
}

void pack_block(const TileFormat& format, const Sources& from, std::size_t block, std::byte* tile) {
  for (std::size_t h = 0; h < format.heads; ++h) {
    std::byte* to = tile + format.head_at(block, h);
    if (format.head_width == 1) {
      spread<1>(from, format.head_file_at[h], to);
    } else {
      spread<2>(from, format.head_file_at[h], to);
    }
  }
  std::byte* to = tile + format.body_at(block);
  const std::uint32_t flip = &format == &ops::kQ8_0Tile ? kOffsetBits : 0;
  std::size_t f = 0;
  if (has_fifth_bits(format)) {
    for (std::size_t i = 0; i < kRows; ++i) {
      const std::uint32_t x = spread_bits(load_dword(from.row[i] + format.fields[0].file_at));
      std::memcpy(to + 4 * i, &x, sizeof x);
    }
    to += ops::kTileLine;
    f = 1;
  }
  for (; f < std::size(format.fields); ++f) {
    spread_field(from, format.fields[f], flip, to);
    to += ops::kTileLine * format.fields[f].dwords;
  }
}

// Block by block, so that what is read and written stays in the first-level cache.
void pack_blocks(
    const TileFormat& format, std::int64_t cols, std::span<const std::byte> rows, std::byte* tile
) {
  static constexpr std::array<std::byte, 256> kZeros{};
  const auto blocks = static_cast<std::size_t>(cols / format.block_values);
  const std::size_t row_bytes = blocks * format.block_bytes;
  Sources from;
  std::array<std::size_t, kRows> step;
  for (std::size_t i = 0; i < kRows; ++i) {
    const bool there = i * row_bytes < rows.size();
    from.row[i] = there ? rows.data() + i * row_bytes : kZeros.data();
    step[i] = there ? format.block_bytes : 0;
  }
  for (std::size_t b = 0; b < blocks; ++b) {
    pack_block(format, from, b, tile);
    for (std::size_t i = 0; i < kRows; ++i) from.row[i] += step[i];
  }
}

std::size_t float_place(DType type, std::size_t k, std::size_t row) {
  return type == DType::kBF16 ? (k / 2 * kRows + row) * 2 + k % 2 : k * kRows + row;
}

template <typename T>
void pack_floats(DType type, std::int64_t cols, std::span<const std::byte> rows, std::byte* tile) {
  constexpr std::size_t kLineValues = ops::kTileLine / sizeof(T);
  const auto count = static_cast<std::size_t>(cols);
  const std::size_t present = rows.size() / (count * sizeof(T));
  for (std::size_t first = 0; first < count; first += kLineValues) {
    const std::size_t end = std::min(count, first + kLineValues);
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t k = first; k < end; ++k) {
        T x = 0;
        if (i < present) std::memcpy(&x, rows.data() + (i * count + k) * sizeof(T), sizeof(T));
        std::memcpy(tile + float_place(type, k, i) * sizeof(T), &x, sizeof(T));
      }
    }
  }
}

void pack_f8(std::int64_t cols, std::span<const std::byte> rows, std::byte* tile) {
  constexpr std::size_t kValues = ops::kF8BlockValues;
  constexpr std::size_t kBytes = kValues + sizeof(float);
  const auto blocks = static_cast<std::size_t>(cols) / kValues;
  const std::size_t present = rows.size() / (blocks * kBytes);
  for (std::size_t b = 0; b < blocks; ++b, tile += ops::kF8TileBlock) {
    for (std::size_t i = 0; i < present; ++i) {
      const std::byte* from = rows.data() + (i * blocks + b) * kBytes;
      std::memcpy(tile + i * sizeof(float), from + kValues, sizeof(float));
      for (std::size_t k = 0; k < kValues; ++k) tile[ops::kTileLine + k * kRows + i] = from[k];
    }
    for (std::size_t i = present; i < kRows; ++i) {
      std::memset(tile + i * sizeof(float), 0, sizeof(float));
      for (std::size_t k = 0; k < kValues; ++k) tile[ops::kTileLine + k * kRows + i] = {};
    }
  }
}

void gather_f8(const std::byte* tile, std::size_t lane, std::size_t block, std::byte* out) {
  constexpr std::size_t kValues = ops::kF8BlockValues;
  const std::byte* from = tile + block * ops::kF8TileBlock;
  std::memcpy(out + kValues, from + lane * sizeof(float), sizeof(float));
  for (std::size_t k = 0; k < kValues; ++k) out[k] = from[ops::kTileLine + k * kRows + lane];
}

void gather_block(
    const TileFormat& format,
    const std::byte* tile,
    std::size_t lane,
    std::size_t block,
    std::byte* out
) {
  for (std::size_t h = 0; h < format.heads; ++h) {
    const std::byte* from = tile + format.head_at(block, h) + format.head_width * lane;
    std::memcpy(out + format.head_file_at[h], from, format.head_width);
  }
  const std::byte* from = tile + format.body_at(block) + 4 * lane;
  const std::uint32_t flip = &format == &ops::kQ8_0Tile ? kOffsetBits : 0;
  for (std::size_t f = 0; f < std::size(format.fields); ++f) {
    for (std::size_t e = 0; e < format.fields[f].dwords; ++e, from += ops::kTileLine) {
      std::uint32_t x = load_dword(from) ^ flip;
      if (f == 0 && has_fifth_bits(format)) x = join_bits(x);
      std::memcpy(out + format.fields[f].file_at + 4 * e, &x, sizeof x);
    }
  }
}

}  // namespace

bool has_interleaved_tile(DType type) {
  return is_plain_float(type) || type == DType::kF8E4M3 || format_of(type) != nullptr;
}

std::size_t tile_bytes_of(DType type, std::int64_t cols) {
  if (const TileFormat* format = format_of(type)) return format->tile_bytes(cols);
  const std::int64_t stored = type == DType::kBF16 ? (cols + 1) / 2 * 2 : cols;
  const std::size_t bytes = static_cast<std::size_t>(row_bytes(type, stored)) * kRows;
  return (bytes + ops::kTileLine - 1) / ops::kTileLine * ops::kTileLine;
}

void pack_tile(DType type, std::int64_t cols, std::span<const std::byte> rows, std::byte* tile) {
  if (const TileFormat* format = format_of(type)) {
    pack_blocks(*format, cols, rows, tile);
  } else if (type == DType::kF32) {
    pack_floats<std::uint32_t>(type, cols, rows, tile);
  } else if (is_plain_float(type)) {
    pack_floats<std::uint16_t>(type, cols, rows, tile);
  } else if (type == DType::kF8E4M3) {
    pack_f8(cols, rows, tile);
  } else {
    std::memcpy(tile, rows.data(), rows.size());
  }
}

void gather_blocks(
    DType type,
    const std::byte* tile,
    int lane,
    std::size_t first,
    std::size_t count,
    std::byte* out
) {
  const auto row = static_cast<std::size_t>(lane);
  const auto bytes = static_cast<std::size_t>(traits(type).block_bytes);
  const TileFormat* format = format_of(type);
  for (std::size_t b = first; b < first + count; ++b, out += bytes) {
    if (format != nullptr) {
      gather_block(*format, tile, row, b, out);
    } else if (type == DType::kF8E4M3) {
      gather_f8(tile, row, b, out);
    } else {
      std::memcpy(out, tile + float_place(type, b, row) * bytes, bytes);
    }
  }
}

}  // namespace artery::tensor
