#pragma once
// Where things lie in a tile of 16 interleaved rows, for weights.cc, which packs, and the kernels,
// which read. Values, any thread. No standard containers (included by objects with ISA flags).
//
// F32, F16: element k of the 16 rows back to back, k ascending. BF16: elements 2 p and 2 p + 1 of
// row 0, of row 1, ..., p ascending, zeros after an odd row length.
// Q4_0, Q4_1, Q8_0: per block of 32 values, 16 f16 scales (Q4_1: then 16 f16 minimums) and the
// quants. Quants come in vectors of 64 bytes: byte 4 i + j of vector g is value 4 g + j of row i.
// Q8_0 has vectors 0 .. 7, each byte + 128. Q4 has four vectors; vector p holds value 4 p + j in
// the low and value 16 + 4 p + j in the high nibble, which is the order of the file's own bytes.
// Scales of Q4_0 and Q8_0 fill half a cache line, so two blocks share one line in front of the
// quants of both.

#include <cstddef>
#include <cstdint>

namespace artery::tensor::ops {

struct BlockLayout {
  std::int64_t blocks_per_unit;  // blocks that share one line of scales
  std::size_t unit_bytes;
  std::size_t quant_bytes;  // of one block
  bool has_min;
};
constexpr std::size_t kScaleLine = 64;
constexpr BlockLayout kQ4_0Layout = {2, kScaleLine + 2 * 256, 256, false};
constexpr BlockLayout kQ4_1Layout = {1, kScaleLine + 256, 256, true};
constexpr BlockLayout kQ8_0Layout = {2, kScaleLine + 2 * 512, 512, false};

struct BlockPlace {
  std::size_t scale;  // 16 f16
  std::size_t min;    // 16 f16, only with has_min
  std::size_t quants;
};
static constexpr BlockPlace place_of(const BlockLayout& layout, std::int64_t block) {
  const auto unit = static_cast<std::size_t>(block / layout.blocks_per_unit);
  const auto part = static_cast<std::size_t>(block % layout.blocks_per_unit);
  const std::size_t start = unit * layout.unit_bytes;
  return {
      start + part * (kScaleLine / 2),
      start + kScaleLine / 2,
      start + kScaleLine + part * layout.quant_bytes
  };
}

}  // namespace artery::tensor::ops
