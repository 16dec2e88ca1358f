#include "tensor/weights.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "tensor/ops/tile_layout.h"
#include "tensor/quant/decode.h"

namespace artery::tensor {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kLine = 64;
constexpr std::int64_t kBlockValues = 32;  // of Q4_0, Q4_1, Q8_0
constexpr std::size_t kOffsetBit = 0x80;   // turns a signed byte into byte + 128 and back

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

const ops::BlockLayout* block_layout(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return &ops::kQ4_0Layout;
    case DType::kQ4_1:
      return &ops::kQ4_1Layout;
    case DType::kQ8_0:
      return &ops::kQ8_0Layout;
    default:
      return nullptr;
  }
}

bool is_plain_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

std::size_t tile_size(DType type, std::int64_t cols) {
  if (const ops::BlockLayout* layout = block_layout(type)) {
    const std::int64_t blocks = cols / kBlockValues;
    const auto units = static_cast<std::size_t>(blocks / layout->blocks_per_unit);
    const bool part_unit = blocks % layout->blocks_per_unit != 0;
    return units * layout->unit_bytes +
           (part_unit ? ops::kScaleLine + layout->quant_bytes : std::size_t{0});
  }
  const std::int64_t stored = type == DType::kBF16 ? (cols + 1) / 2 * 2 : cols;
  return round_up(static_cast<std::size_t>(row_bytes(type, stored)) * kLanes, kLine);
}

// One block of the file to or from its places in a tile.
template <bool kPack>
void move_bytes(std::byte* tile, std::byte* file, std::size_t n) {
  std::memcpy(kPack ? tile : file, kPack ? file : tile, n);
}

template <bool kPack>
void move_block(
    const ops::BlockLayout& layout, std::byte* tile, std::int64_t block, int lane, std::byte* file
) {
  const ops::BlockPlace at = ops::place_of(layout, block);
  const auto row = static_cast<std::size_t>(lane);
  move_bytes<kPack>(tile + at.scale + 2 * row, file, 2);
  file += 2;
  if (layout.has_min) {
    move_bytes<kPack>(tile + at.min + 2 * row, file, 2);
    file += 2;
  }
  for (std::size_t group = 0; group < layout.quant_bytes / 64; ++group) {
    move_bytes<kPack>(tile + at.quants + 64 * group + 4 * row, file + 4 * group, 4);
  }
}

void flip_offset(std::byte* quants, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) quants[i] ^= std::byte{kOffsetBit};
}

std::size_t float_place(DType type, std::size_t k, std::size_t row) {
  return type == DType::kBF16 ? (k / 2 * kLanes + row) * 2 + k % 2 : k * kLanes + row;
}

void pack_row(DType type, std::int64_t cols, const std::byte* raw, int lane, std::byte* tile) {
  const auto row = static_cast<std::size_t>(lane);
  if (const ops::BlockLayout* layout = block_layout(type)) {
    const auto bytes = static_cast<std::size_t>(traits(type).block_bytes);
    for (std::int64_t b = 0; b < cols / kBlockValues; ++b, raw += bytes) {
      std::array<std::byte, 64> block;
      std::memcpy(block.data(), raw, bytes);
      if (type == DType::kQ8_0) flip_offset(block.data() + 2, kBlockValues);
      move_block<true>(*layout, tile, b, lane, block.data());
    }
  } else if (is_plain_float(type)) {
    const auto size = static_cast<std::size_t>(traits(type).block_bytes);
    for (std::size_t k = 0; k < static_cast<std::size_t>(cols); ++k) {
      std::memcpy(tile + float_place(type, k, row) * size, raw + k * size, size);
    }
  } else {
    const auto bytes = static_cast<std::size_t>(row_bytes(type, cols));
    std::memcpy(tile + row * bytes, raw, bytes);
  }
}

}  // namespace

Result<HugeBuffer> HugeBuffer::make(std::size_t bytes) {
  HugeBuffer buffer;
  if (bytes == 0) return buffer;
  // Small buffers (norms, tests) stay in ordinary pages.
  const bool huge = bytes >= kHugePage;
  const std::size_t unit = huge ? kHugePage : std::size_t{4096};
  const std::size_t mapped = round_up(bytes, unit);
  const std::size_t slack = huge ? kHugePage : 0;
  void* address =
      mapped < bytes
          ? MAP_FAILED
          : mmap(
                nullptr, mapped + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0
            );
  if (address == MAP_FAILED) {
    return fail(
        Code::kOutOfMemory,
        "no memory for {} bytes of weights: use a smaller model or quantization",
        bytes
    );
  }
  auto* start = static_cast<std::byte*>(address);
  if (huge) {
    // Cut to 2 MiB boundaries: a huge page needs an aligned range.
    const std::size_t lead = round_up(reinterpret_cast<std::size_t>(start), kHugePage) -
                             reinterpret_cast<std::size_t>(start);
    if (lead > 0) munmap(start, lead);
    if (slack > lead) munmap(start + lead + mapped, slack - lead);
    start += lead;
    madvise(start, mapped, MADV_HUGEPAGE);  // advice: refusal costs speed only
  }
  buffer.data_ = std::unique_ptr<std::byte, Unmap>(start, Unmap{mapped});
  buffer.bytes_ = bytes;
  return buffer;
}

void HugeBuffer::Unmap::operator()(std::byte* data) const { munmap(data, bytes); }

bool WeightMatrix::is_interleaved(DType type) {
  return is_plain_float(type) || block_layout(type) != nullptr;
}

Result<WeightMatrix> WeightMatrix::pack(
    DType type,
    std::int64_t rows,
    std::int64_t cols,
    std::span<const std::byte> raw,
    ComputePool& pool
) {
  if (!traits(type).is_weight) {
    return fail(Code::kUnsupported, "tensors of type {} cannot be used as weights", name(type));
  }
  if (rows < 0 || cols <= 0 || cols % traits(type).block_values != 0) {
    return fail(
        Code::kBadFile,
        "a {} matrix of {} x {}: the row length must be a positive multiple of {}",
        name(type),
        rows,
        cols,
        traits(type).block_values
    );
  }
  const std::int64_t bytes = row_bytes(type, cols);
  CHECK(raw.size() == static_cast<std::size_t>(rows * bytes), "{} bytes of {}", raw.size(), rows);
  WeightMatrix matrix;
  matrix.type_ = type;
  matrix.rows_ = rows;
  matrix.cols_ = cols;
  matrix.tile_bytes_ = tile_size(type, cols);
  const std::size_t total = matrix.tile_bytes_ * static_cast<std::size_t>(matrix.tiles());
  matrix.buffer_ = TRY(HugeBuffer::make(total));
  std::byte* out = matrix.buffer_.data();
  const auto pack_tiles = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin * kLanes; row < std::min(rows, end * kLanes); ++row) {
      std::byte* tile = out + static_cast<std::size_t>(row / kLanes) * matrix.tile_bytes_;
      pack_row(type, cols, raw.data() + row * bytes, static_cast<int>(row % kLanes), tile);
    }
  };
  const auto grain = static_cast<std::int64_t>((std::size_t{1} << 20) / matrix.tile_bytes_);
  pool.parallel_for(matrix.tiles(), std::max<std::int64_t>(1, grain), std::ref(pack_tiles));
  return matrix;
}

std::span<const std::byte> WeightMatrix::raw_row(std::int64_t row) const {
  CHECK(!interleaved() && row >= 0 && row < rows_, "row {}", row);
  const auto bytes = static_cast<std::size_t>(row_bytes(type_, cols_));
  return {tile(row / kLanes) + static_cast<std::size_t>(row % kLanes) * bytes, bytes};
}

void WeightMatrix::decode_row(std::int64_t row, std::span<float> out) const {
  CHECK(out.size() == static_cast<std::size_t>(cols_), "{} of {} columns", out.size(), cols_);
  decode_part(row, 0, out);
}

void WeightMatrix::decode_part(std::int64_t row, std::int64_t first, std::span<float> out) const {
  const TypeTraits& type = traits(type_);
  const auto unit = static_cast<std::size_t>(type.block_values);
  const auto bytes = static_cast<std::size_t>(type.block_bytes);
  CHECK(row >= 0 && row < rows_, "row {} of {}", row, rows_);
  CHECK(
      first >= 0 && first % type.block_values == 0 && out.size() % unit == 0 &&
          first + std::ssize(out) <= cols_,
      "{} columns from {} of {}",
      out.size(),
      first,
      cols_
  );
  const auto lane = static_cast<std::size_t>(row % kLanes);
  const std::byte* from = tile(row / kLanes);
  const auto skipped = static_cast<std::size_t>(first) / unit;
  if (!interleaved()) {
    const std::size_t count = out.size() / unit * bytes;
    quant::decode_row(type_, raw_row(row).subspan(skipped * bytes, count), out);
    return;
  }
  // Gathered into a run of the file's own bytes, then decoded by the one exact decoder.
  constexpr std::size_t kRunValues = 64;
  constexpr std::size_t kWidest = 2 * 34;  // bytes of two Q8_0 blocks
  std::array<std::byte, kRunValues * 4> run;
  static_assert(kWidest <= run.size());
  const ops::BlockLayout* layout = block_layout(type_);
  for (std::size_t at = 0; at < out.size(); at += kRunValues) {
    const std::size_t n = std::min(kRunValues, out.size() - at);
    for (std::size_t b = 0; b < n / unit; ++b) {
      const std::size_t block = skipped + at / unit + b;
      std::byte* to = run.data() + b * bytes;
      if (layout == nullptr) {
        std::memcpy(to, from + float_place(type_, block, lane) * bytes, bytes);
        continue;
      }
      // Only read: move_block writes the side it moves to.
      move_block<false>(
          *layout,
          const_cast<std::byte*>(from),
          static_cast<std::int64_t>(block),
          static_cast<int>(lane),
          to
      );
      if (type_ == DType::kQ8_0) flip_offset(to + 2, kBlockValues);
    }
    quant::decode_row(type_, {run.data(), n / unit * bytes}, out.subspan(at, n));
  }
}

}  // namespace artery::tensor
