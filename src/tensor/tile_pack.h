#pragma once
// From the bytes of a file to tiles of 16 interleaved rows (ops/tile_layout.h) and back. Pure
// functions over memory of the caller, any thread; private to weights.cc.

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace artery::tensor {

// Whether a tile of this type is interleaved; the others keep their file bytes row by row.
bool has_interleaved_tile(DType type);

// Bytes of one tile, a multiple of 64.
std::size_t tile_bytes_of(DType type, std::int64_t cols);

// `rows`: 1 to 16 rows back to back as in the file; the other rows of the tile become zeros.
void pack_tile(DType type, std::int64_t cols, std::span<const std::byte> rows, std::byte* tile);

// The file's bytes of blocks [first, first + count) of one row of an interleaved tile.
void gather_blocks(
    DType type,
    const std::byte* tile,
    int lane,
    std::size_t first,
    std::size_t count,
    std::byte* out
);

}  // namespace artery::tensor
