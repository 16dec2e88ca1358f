#include "tensor/weights.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "tensor/quant/decode.h"
#include "tensor/tile_pack.h"

namespace artery::tensor {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kLine = 64;

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

// Zeroed, in 2 MiB pages if `huge`; then `bytes` is rounded up to them.
Result<std::byte*> map_zeros(std::size_t bytes, bool huge) {
  const std::size_t mapped = round_up(bytes, huge ? kHugePage : kPage);
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
  if (!huge) return start;
  // Cut to 2 MiB boundaries: a huge page needs an aligned range.
  const std::size_t lead = round_up(reinterpret_cast<std::size_t>(start), kHugePage) -
                           reinterpret_cast<std::size_t>(start);
  if (lead > 0) munmap(start, lead);
  if (slack > lead) munmap(start + lead + mapped, slack - lead);
  start += lead;
  madvise(start, mapped, MADV_HUGEPAGE);  // advice: refusal costs speed only
  return start;
}

// The matrices of small models are smaller than a huge page, so they share them: pages of 4 KiB
// cost a tenth of the bandwidth and more. What a slab has not handed out is never touched.
constexpr std::size_t kSlab = std::size_t{32} << 20;
constexpr std::size_t kSmallest = std::size_t{32} << 10;  // norms and tests stay in small pages

struct Slab {
  Slab(std::byte* start, std::size_t bytes) : data(start), size(bytes) {}
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab() { munmap(data, size); }

  std::byte* data;
  std::size_t size;
  std::size_t used = 0;
};
std::mutex current_mutex;
std::weak_ptr<Slab> current_slab;  // alive as long as a buffer in it

}  // namespace

Result<HugeBuffer> HugeBuffer::make(std::size_t bytes) {
  HugeBuffer buffer;
  if (bytes == 0) return buffer;
  buffer.bytes_ = bytes;
  if (bytes >= kSmallest && bytes < kHugePage) {
    const std::lock_guard lock(current_mutex);
    std::shared_ptr<Slab> slab = current_slab.lock();
    const std::size_t taken = round_up(bytes, kLine);
    if (slab == nullptr || slab->size - slab->used < taken) {
      std::byte* start = TRY(map_zeros(kSlab, true));
      slab = std::make_shared<Slab>(start, kSlab);
      current_slab = slab;
    }
    std::byte* data = slab->data + slab->used;
    slab->used += taken;
    buffer.data_ = {data, Unmap{0, std::move(slab)}};
    return buffer;
  }
  const bool huge = bytes >= kHugePage;
  std::byte* start = TRY(map_zeros(bytes, huge));
  buffer.data_ = {start, Unmap{round_up(bytes, huge ? kHugePage : kPage), nullptr}};
  return buffer;
}

void HugeBuffer::Unmap::operator()(std::byte* data) const {
  if (slab == nullptr) munmap(data, bytes);
}

void ResidentBytes::add(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  const auto rounded = [&](std::size_t unit) {
    return static_cast<std::int64_t>(round_up(size, unit));
  };
  if (size < kSmallest || size >= kHugePage) {
    whole_ += rounded(size < kSmallest ? kPage : kHugePage);
    return;
  }
  const std::int64_t taken = rounded(kLine);
  if (slab_used_ + taken > static_cast<std::int64_t>(kSlab)) {
    whole_ += static_cast<std::int64_t>(round_up(static_cast<std::size_t>(slab_used_), kHugePage));
    slab_used_ = 0;
  }
  slab_used_ += taken;
}

std::int64_t ResidentBytes::total() const {
  return whole_ +
         static_cast<std::int64_t>(round_up(static_cast<std::size_t>(slab_used_), kHugePage));
}

std::int64_t WeightMatrix::packed_bytes(DType type, std::int64_t rows, std::int64_t cols) {
  const std::int64_t tiles = (rows + kLanes - 1) / kLanes;
  return tiles * static_cast<std::int64_t>(tile_bytes_of(type, cols));
}

bool WeightMatrix::is_interleaved(DType type) { return has_interleaved_tile(type); }

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
  matrix.tile_bytes_ = tile_bytes_of(type, cols);
  const std::size_t total = matrix.tile_bytes_ * static_cast<std::size_t>(matrix.tiles());
  matrix.buffer_ = TRY(HugeBuffer::make(total));
  std::byte* out = matrix.buffer_.data();
  const auto pack_tiles = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t count = std::min<std::int64_t>(kLanes, rows - t * kLanes);
      const auto first = static_cast<std::size_t>(t * kLanes * bytes);
      const auto part = raw.subspan(first, static_cast<std::size_t>(count * bytes));
      pack_tile(type, cols, part, out + static_cast<std::size_t>(t) * matrix.tile_bytes_);
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
  constexpr std::size_t kRunValues = 256;
  std::array<std::byte, kRunValues * 4> run;
  static_assert(kRunValues % 256 == 0, "the longest block of any type");
  for (std::size_t at = 0; at < out.size(); at += kRunValues) {
    const std::size_t n = std::min(kRunValues, out.size() - at);
    const std::size_t blocks = n / unit;
    gather_blocks(type_, from, static_cast<int>(lane), skipped + at / unit, blocks, run.data());
    quant::decode_row(type_, {run.data(), blocks * bytes}, out.subspan(at, n));
  }
}

}  // namespace artery::tensor
