#pragma once
// Where things lie in a tile of 16 interleaved rows, for tile_pack.cc, which packs, and the
// kernels, which read. Values, any thread. No standard containers (included by objects with ISA
// flags).
//
// F32, F16: element k of the 16 rows back to back, k ascending. BF16: elements 2 p and 2 p + 1 of
// row 0, of row 1, ..., p ascending, zeros after an odd row length.
// Block types: the fields of a file block, each field cut into elements of 1, 2 or 4 bytes, the
// elements of the 16 rows back to back: element e of row i of a field lies at field + (16 e + i) *
// width. Narrow fields (half-precision scales, bytes) come first: `per_unit` blocks share one cache
// line of them, so that every other vector is aligned and a tile has the bytes of the file. The
// dword fields of each block follow. So byte 4 i + j of vector e of a field of quants is byte
// 4 e + j of row i.
// F8_E4M3: for each block of 128 the scales of the 16 rows, then element k of the 16 rows, k
// ascending.
// Two fields are changed on the way: Q8_0's bytes + 128, and the word of fifth bits of Q5_0 and
// Q5_1, whose bit 4 g + j becomes bit 8 j + g, so that the bits of values 4 g .. 4 g + 3 lie in the
// four bytes at the same place.

#include <cstddef>
#include <cstdint>

namespace artery::tensor::ops {

constexpr std::size_t kTileLine = 64;

struct TileFormat {
  struct Field {
    std::size_t file_at;
    std::size_t dwords;  // of a row
  };
  std::int64_t block_values;
  std::size_t block_bytes;  // in the file
  std::size_t per_unit;     // blocks that share one line of narrow fields
  std::size_t heads;        // narrow fields of a block
  std::size_t head_width;
  std::size_t head_file_at[2];
  Field fields[8];  // the unused ones are empty

  constexpr std::size_t body_bytes() const {
    std::size_t dwords = 0;
    for (const Field& field : fields) dwords += field.dwords;
    return kTileLine * dwords;
  }
  constexpr std::size_t unit_bytes() const { return kTileLine + per_unit * body_bytes(); }
  constexpr std::size_t head_at(std::size_t block, std::size_t head) const {
    return block / per_unit * unit_bytes() + (block % per_unit * heads + head) * 16 * head_width;
  }
  constexpr std::size_t body_at(std::size_t block) const {
    return block / per_unit * unit_bytes() + kTileLine + block % per_unit * body_bytes();
  }
  constexpr std::size_t tile_bytes(std::int64_t cols) const {
    const auto blocks = static_cast<std::size_t>(cols / block_values);
    const std::size_t rest = blocks % per_unit;
    return blocks / per_unit * unit_bytes() + (rest > 0 ? kTileLine + rest * body_bytes() : 0);
  }
};

constexpr TileFormat kQ4_0Tile = {32, 18, 2, 1, 2, {0, 0}, {{2, 4}}};
constexpr TileFormat kQ4_1Tile = {32, 20, 1, 2, 2, {0, 2}, {{4, 4}}};
constexpr TileFormat kQ5_0Tile = {32, 22, 2, 1, 2, {0, 0}, {{2, 1}, {6, 4}}};
constexpr TileFormat kQ5_1Tile = {32, 24, 1, 2, 2, {0, 2}, {{4, 1}, {8, 4}}};
constexpr TileFormat kQ8_0Tile = {32, 34, 2, 1, 2, {0, 0}, {{2, 8}}};
constexpr TileFormat kMXFP4Tile = {32, 17, 4, 1, 1, {0, 0}, {{1, 4}}};
constexpr TileFormat kQ4_KTile = {256, 144, 1, 2, 2, {0, 2}, {{4, 3}, {16, 32}}};
constexpr TileFormat kQ5_KTile = {256, 176, 1, 2, 2, {0, 2}, {{4, 3}, {16, 8}, {48, 32}}};
// In two halves, each in the order in which the kernels first read it.
constexpr TileFormat kQ6_KTile = {
    256,
    210,
    2,
    1,
    2,
    {208, 0},
    {{192, 2}, {0, 8}, {128, 8}, {32, 8}, {200, 2}, {64, 8}, {160, 8}, {96, 8}}
};
constexpr TileFormat kIQ4_XSTile = {256, 136, 1, 2, 2, {0, 2}, {{4, 1}, {8, 32}}};

constexpr std::int64_t kF8BlockValues = 128;
constexpr std::size_t kF8TileBlock = kTileLine + 16 * kF8BlockValues;

}  // namespace artery::tensor::ops
