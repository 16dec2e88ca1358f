// Matrix products of the fast backend: which kernel, how the tiles are dealt to the threads.

#include "tensor/fast_backend.h"
#include "tensor/quant/decode.h"

namespace artery::tensor {
namespace {

constexpr std::int64_t kDecodePanel = 256;     // values of a row decoded at once
constexpr std::int64_t kChunkBytes = 1 << 20;  // of weights, handed to a thread at a time

}  // namespace

MatmulPlan FastBackend::plan_of(DType type) const {
  switch (type) {
    case DType::kF32:
      return {k_.matmul_f32, false, 0};
    case DType::kF16:
      return {k_.matmul_f16, false, 0};
    case DType::kBF16:
      return {k_.bf16.matmul, false, 0};
    case DType::kQ4_0:
      return {k_.matmul_q4_0, true, 8};
    case DType::kQ4_1:
      return {k_.matmul_q4_1, true, 0};
    case DType::kQ8_0:
      return {k_.matmul_q8_0, true, 128};
    default:
      return {};
  }
}

// About kChunkBytes, so that each thread reads one long stream; smaller where there would be too
// few chunks for the threads to finish together; everything at once where waking them costs more.
std::int64_t FastBackend::tiles_per_chunk(const WeightMatrix& w, std::int64_t x_rows) const {
  const auto tile_bytes = static_cast<std::int64_t>(w.tile_bytes());
  if (w.tiles() * tile_bytes * x_rows < (32 << 10)) return w.tiles();
  const std::int64_t chunks = pool_.threads() * (x_rows <= 4 ? 2 : 8);
  return std::max<std::int64_t>(1, std::min(kChunkBytes / tile_bytes, w.tiles() / chunks));
}

const ops::ActBlock* FastBackend::quantize(const Rows& x, std::int32_t offset) {
  const std::int64_t blocks = x.cols / ops::kQuantBlock;
  ops::ActBlock* act = act_.get(static_cast<std::size_t>(x.rows * blocks));
  for_rows(x, [&](std::int64_t r) { k_.quantize(row_of(x, r), blocks, offset, act + r * blocks); });
  return act;
}

const float* FastBackend::pack_bf16(const Rows& x) {
  const ops::Bf16Kernels& bf16 = k_.bf16;
  float* out = groups_x_.get(static_cast<std::size_t>(bf16.group_floats(x.cols, x.rows)));
  const std::int64_t most = bf16.group_rows;
  const auto body = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t g = begin; g < end; ++g) {
      const std::int64_t first = g * most;
      const int count = static_cast<int>(std::min(most, x.rows - first));
      bf16.pack(row_of(x, first), x.cols, x.cols, count, out + bf16.group_floats(x.cols, first));
    }
  };
  const std::int64_t grain =
      std::max<std::int64_t>(1, kSerialValues / std::max<std::int64_t>(1, most * x.cols));
  pool_.parallel_for((x.rows + most - 1) / most, grain, std::ref(body));
  return out;
}

// The 16 rows of a tile as float32, interleaved as an F32 tile is.
void FastBackend::decode_tile(const WeightMatrix& w, std::int64_t tile, float* panel, float* out)
    const {
  const std::int64_t first = tile * kLanes;
  const auto rows = std::min<std::int64_t>(kLanes, w.rows() - first);
  std::fill(panel, panel + kLanes * kDecodePanel, 0.0f);
  for (std::int64_t k = 0; k < w.cols(); k += kDecodePanel) {
    const std::int64_t n = std::min(kDecodePanel, w.cols() - k);
    for (std::int64_t i = 0; i < rows; ++i) {
      w.decode_part(first + i, k, {panel + i * kDecodePanel, static_cast<std::size_t>(n)});
    }
    k_.interleave(panel, kDecodePanel, n, out + k * kLanes);
  }
}

void FastBackend::matmul_decoded(
    const WeightMatrix& w, const MatmulArgs& args, std::int64_t grain
) {
  static_assert(kDecodePanel % 256 == 0, "the longest block of any type");
  const std::int64_t stride = kLanes * (w.cols() + kDecodePanel);
  float* scratch = per_thread_.get(static_cast<std::size_t>(pool_.threads() * stride));
  const auto body = [&](std::int64_t begin, std::int64_t end, int thread) {
    float* panel = scratch + thread * stride;
    float* tile = panel + kLanes * kDecodePanel;
    MatmulArgs one = args;
    one.tiles = reinterpret_cast<const std::byte*>(tile);
    one.tile_bytes = static_cast<std::size_t>(kLanes * w.cols()) * sizeof(float);
    one.tile_count = 1;
    for (std::int64_t t = begin; t < end; ++t) {
      decode_tile(w, t, panel, tile);
      one.n_begin = t * kLanes;
      k_.matmul_f32(one);
    }
  };
  pool_.parallel_for(w.tiles(), grain, std::ref(body));
}

void FastBackend::matmul(Rows x, const WeightMatrix& w, std::span<const float> bias, Rows out) {
  ops::check_matmul(x, w, bias, out);
  if (x.rows == 0 || w.rows() == 0) return;
  const MatmulPlan plan = plan_of(w.type());
  MatmulArgs args = {};
  args.tile_bytes = w.tile_bytes();
  args.n_end = w.rows();
  args.cols = w.cols();
  args.x = floats(x);
  args.x_rows = x.rows;
  args.bias = bias.empty() ? nullptr : bias.data();
  args.out = floats(out);
  args.out_stride = out.cols;
  const std::int64_t grain = tiles_per_chunk(w, x.rows);
  if (plan.kernel == nullptr) return matmul_decoded(w, args, grain);
  if (w.type() == DType::kBF16) args.group_x = pack_bf16(x);
  if (plan.int8) args.act = quantize(x, plan.offset);
  const auto body = [&](std::int64_t begin, std::int64_t end, int) {
    MatmulArgs part = args;
    part.tiles = w.tile(begin);
    part.tile_count = end - begin;
    part.n_begin = begin * kLanes;
    plan.kernel(part);
  };
  pool_.parallel_for(w.tiles(), grain, std::ref(body));
}

}  // namespace artery::tensor
