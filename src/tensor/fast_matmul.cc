// Matrix products of the fast backend: which kernel, how the tiles are dealt to the threads.

#include "tensor/fast_backend.h"
#include "tensor/quant/integers.h"

namespace artery::tensor {
namespace {

constexpr std::int64_t kChunkBytes = 1 << 20;  // of weights, handed to a thread at a time

constexpr std::int32_t kRowOffset = 128;   // of integers unpacked row by row
constexpr std::int32_t kRowMinOffset = 1;  // and of those with minimums
// Blocks of 32 [first, first + count) of the rows of two tiles from row `begin` on, as integers.
// Rows after the last are zeros.
void unpack_rows(
    const WeightMatrix& w, std::int64_t begin, std::int64_t first, std::int64_t count, RowPanel& to
) {
  const TypeTraits& type = traits(w.type());
  const auto values = static_cast<std::size_t>(count * ops::kQuantBlock);
  const std::size_t subs = values / quant::kScaleValues;
  const auto at = static_cast<std::size_t>(first * ops::kQuantBlock / type.block_values);
  const std::size_t bytes = values / static_cast<std::size_t>(type.block_values);
  const auto block_bytes = static_cast<std::size_t>(type.block_bytes);
  for (std::int64_t i = 0; i < kPanelRows; ++i) {
    const std::span q(to.q[i], values);
    const std::span scale(to.scale[i], subs);
    const std::span min(to.min[i], subs);
    if (begin + i >= w.rows()) {
      std::ranges::fill(q, std::int8_t{0});
      std::ranges::fill(scale, 0.0f);
      std::ranges::fill(min, 0.0f);
      continue;
    }
    const auto part = w.raw_row(begin + i).subspan(at * block_bytes, bytes * block_bytes);
    quant::decode_integers(w.type(), part, q, scale, min);
  }
}

}  // namespace

MatmulPlan FastBackend::plan_of(DType type) const {
  switch (type) {
    case DType::kF32:
      return {k_.matmul_f32, false, 0};
    case DType::kF16:
      return {k_.matmul_f16, false, 0};
    case DType::kBF16:
      return {k_.bf16.matmul, false, 0};
    case DType::kF8E4M3:
      return {k_.matmul_f8, false, 0};
    case DType::kQ4_0:
      return {k_.matmul_q4_0, true, 8};
    case DType::kQ4_1:
      return {k_.matmul_q4_1, true, 0};
    case DType::kQ5_0:
      return {k_.matmul_q5_0, true, 16};
    case DType::kQ5_1:
      return {k_.matmul_q5_1, true, 0};
    case DType::kQ8_0:
      return {k_.matmul_q8_0, true, 128};
    case DType::kQ4_K:
      return {k_.matmul_q4_k, true, 0};
    case DType::kQ5_K:
      return {k_.matmul_q5_k, true, 0};
    case DType::kQ6_K:
      return {k_.matmul_q6_k, true, 32};
    case DType::kIQ4_NL:
      return {k_.matmul_iq4_nl, true, 128};
    case DType::kIQ4_XS:
      return {k_.matmul_iq4_xs, true, 128};
    case DType::kMXFP4:
      return {k_.matmul_mxfp4, true, 12};
    default:
      CHECK(quant::has_integers(type), "{}", name(type));
      return {nullptr, true, quant::has_minimums(type) ? kRowMinOffset : kRowOffset};
  }
}

// Of `bytes` in `tiles`. Pairs of tiles, which share loaded activations. About kChunkBytes, so that
// each thread reads one long stream; smaller where there would be too few chunks for the threads to
// finish together; everything at once where waking them costs more.
std::int64_t FastBackend::tiles_per_chunk(
    std::int64_t tiles, std::int64_t bytes, std::int64_t x_rows
) const {
  if (bytes * x_rows < (32 << 10)) return tiles;
  const std::int64_t chunks = pool_.threads() * (x_rows <= 4 ? 2 : 8);
  const std::int64_t chunk = std::min(kChunkBytes * tiles / bytes, tiles / chunks);
  return std::max<std::int64_t>(1, x_rows == 1 ? chunk : (chunk + 1) / 2 * 2);
}

void FastBackend::run_units(
    std::int64_t units,
    std::int64_t bytes,
    std::int64_t x_rows,
    const std::function<void(std::int64_t, std::int64_t, int)>& body
) {
  if (units == 0) return;
  const std::int64_t grain = tiles_per_chunk(units, bytes, x_rows);
  // Down to some 64 KiB of weights for one row, to a pair of tiles for many.
  const std::int64_t few = std::max<std::int64_t>(1, (64 << 10) * units / bytes);
  const std::int64_t unit = x_rows > 4 ? 2 : few;
  pool_.parallel_for(units, (grain + unit - 1) / unit * unit, body, unit);
}

// Two tiles' rows, a stretch at a time: integers by plain code, a panel, its product with all rows.
// Row args.n_begin of the weights is the first of args.out.
void FastBackend::matmul_row_pair(
    const WeightMatrix& w, const MatmulArgs& args, std::int64_t pair, RowPanel& own
) {
  const bool minimums = quant::has_minimums(w.type());
  const std::int64_t blocks = w.cols() / ops::kQuantBlock;
  const std::int64_t begin = pair * kPanelRows;
  ops::PanelArgs p = {};
  p.panel = own.panel[0];
  p.tile_stride = sizeof own.panel[0];
  p.tiles = static_cast<int>(std::min<std::int64_t>(ops::kPanelTiles, w.tiles() - 2 * pair));
  p.act_stride = blocks;
  p.x_rows = args.x_rows;
  p.lanes = w.rows() - begin;
  p.bias = args.bias == nullptr ? nullptr : args.bias + begin - args.n_begin;
  p.out = args.out + begin - args.n_begin;
  p.out_stride = args.out_stride;
  for (std::int64_t b = 0; b < blocks; b += ops::kPanelBlocks) {
    p.blocks = std::min(ops::kPanelBlocks, blocks - b);
    p.act = args.act + b;
    p.first = b == 0;
    p.last = b + p.blocks == blocks;
    unpack_rows(w, begin, b, p.blocks, own);
    for (int t = 0; t < p.tiles; ++t) {
      const auto* q = reinterpret_cast<const std::uint8_t*>(own.q[t * kLanes]);
      const std::uint32_t flip = minimums ? 0u : 0x80808080u;
      const ops::RowIntegers rows = {q, own.scale[t * kLanes], own.min[t * kLanes], flip};
      (minimums ? k_.panel_of_rows_min : k_.panel_of_rows)(rows, p.blocks, own.panel[t]);
    }
    (minimums ? k_.panel_product_min : k_.panel_product)(p);
  }
}

void FastBackend::matmul_by_rows(const WeightMatrix& w, const MatmulArgs& args) {
  RowPanel* own = row_panels_.get(static_cast<std::size_t>(pool_.threads()));
  const auto body = [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t pair = begin; pair < end; ++pair) {
      matmul_row_pair(w, args, pair, own[thread]);
    }
  };
  const std::int64_t pairs = (w.tiles() + ops::kPanelTiles - 1) / ops::kPanelTiles;
  const std::int64_t grain = std::max<std::int64_t>(1, pairs / (8 * pool_.threads()));
  pool_.parallel_for(pairs, grain, std::ref(body));
}

}  // namespace artery::tensor
