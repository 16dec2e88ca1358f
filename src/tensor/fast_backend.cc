// The fast backend: float32 activations, kernels by run-time dispatch. What each kernel computes,
// and in which order, is in ops/kernel_table.h; here are shapes, scratch and the split over
// threads, none of which changes a bit.

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "base/check.h"
#include "tensor/backend.h"
#include "tensor/ops/arena.h"
#include "tensor/ops/checks.h"
#include "tensor/ops/kernel_table.h"
#include "tensor/quant/decode.h"

namespace artery::tensor {
namespace {

using ops::KernelTable;
using ops::MatmulArgs;
using Range = std::pair<std::int64_t, std::int64_t>;

static_assert(ops::kLaneCount == kLanes && kLanes == kPageTokens);
static_assert(ops::kQuantBlock % ops::kActBlock == 0);

constexpr std::int64_t kDecodePanel = 256;  // values of a row decoded at once
constexpr std::int64_t kSerialValues = 16
                                       << 10;  // element-wise work below this stays on one thread
constexpr std::int64_t kChunkBytes = 1 << 20;  // of weights, handed to a thread at a time
constexpr int kAttentionVectors = 32;          // query vectors that share loaded pages

const KernelTable& kernels_of(Isa isa) {
  CHECK(supported(isa), "{} is not supported here", name(isa));
#if defined(ARTERY_X86_KERNELS)
  if (isa == Isa::kAvx512) return ops::avx512::kTable;
  if (isa == Isa::kAvx2) return ops::avx2::kTable;
#endif
  return ops::scalar::kTable;
}

float* floats(const Rows& x) { return static_cast<float*>(x.data); }
float* row_of(const Rows& x, std::int64_t r) { return floats(x) + r * x.cols; }

using MatmulKernel = void (*)(const MatmulArgs&);

struct MatmulPlan {
  MatmulKernel kernel = nullptr;
  bool int8 = false;
  std::int32_t offset = 0;  // what unsigned weights carry, ActBlock::bias
};

class FastBackend final : public Backend {
 public:
  FastBackend(ComputePool& pool, Isa isa) : pool_(pool), isa_(isa), k_(kernels_of(isa)) {}

  std::string numerics_class() const override { return "fast-1"; }
  Isa isa() const override { return isa_; }
  ComputePool& pool() override { return pool_; }

  Rows alloc(std::int64_t rows, std::int64_t cols) override {
    CHECK(rows >= 0 && cols >= 0, "{}x{}", rows, cols);
    return {arena_.alloc(static_cast<std::size_t>(rows * cols) * sizeof(float)), rows, cols};
  }
  void reset() override { arena_.reset(); }

  void embed(const WeightMatrix& table, std::span<const TokenId> tokens, Rows out) override {
    CHECK(static_cast<std::size_t>(out.rows) == tokens.size() && out.cols == table.cols());
    for_rows(out, [&](std::int64_t r) {
      table.decode_row(
          tokens[static_cast<std::size_t>(r)], {row_of(out, r), static_cast<std::size_t>(out.cols)}
      );
    });
  }

  void load(std::span<const float> values, Rows out) override {
    CHECK(values.size() == static_cast<std::size_t>(out.rows * out.cols), "{}", values.size());
    if (!values.empty()) std::memcpy(out.data, values.data(), values.size_bytes());
  }

  void store(Rows x, std::span<float> out) override {
    CHECK(out.size() == static_cast<std::size_t>(x.rows * x.cols), "{}", out.size());
    if (!out.empty()) std::memcpy(out.data(), x.data, out.size_bytes());
  }

  void gather(Rows x, std::span<const std::int32_t> rows, Rows out) override {
    CHECK(out.cols == x.cols && static_cast<std::size_t>(out.rows) == rows.size());
    for (std::int64_t r = 0; r < out.rows; ++r) {
      const std::int32_t from = rows[static_cast<std::size_t>(r)];
      CHECK(from >= 0 && from < x.rows, "row {} of {}", from, x.rows);
      std::memcpy(row_of(out, r), row_of(x, from), row_size(x));
    }
  }

  void copy(Rows x, Rows out) override {
    ops::check_same_shape(x, out);
    if (x.rows * x.cols > 0 && x.data != out.data) {
      std::memcpy(out.data, x.data, row_size(x) * static_cast<std::size_t>(x.rows));
    }
  }

  void rms_norm(Rows x, std::span<const float> weight, float eps, Rows out) override {
    ops::check_same_shape(x, out);
    CHECK(weight.size() == static_cast<std::size_t>(x.cols), "{} of {}", weight.size(), x.cols);
    for_rows(x, [&](std::int64_t r) {
      k_.rms_norm(row_of(x, r), weight.data(), eps, x.cols, row_of(out, r));
    });
  }

  void rms_norm_heads(Rows x, int head_dim, std::span<const float> weight, float eps) override {
    CHECK(head_dim > 0 && x.cols % head_dim == 0, "{} columns, heads of {}", x.cols, head_dim);
    CHECK(weight.size() == static_cast<std::size_t>(head_dim), "{}", weight.size());
    for_rows(x, [&](std::int64_t r) {
      for (float* head = row_of(x, r); head != row_of(x, r + 1); head += head_dim) {
        k_.rms_norm(head, weight.data(), eps, head_dim, head);
      }
    });
  }

  void matmul(Rows x, const WeightMatrix& w, std::span<const float> bias, Rows out) override;
  void rope(Rows x, int head_dim, std::span<const Position> positions, const RopeTable& table)
      override;
  void kv_write(Rows k, Rows v, const KvPages& kv, int layer, const AttentionBatch& batch) override;
  void attention(
      Rows q, const KvPages& kv, int layer, const AttentionBatch& batch, float scale, Rows out
  ) override;

  void swiglu(Rows gate, Rows up, Rows out) override {
    ops::check_same_shape(gate, up);
    ops::check_same_shape(gate, out);
    const auto body = [&](std::int64_t begin, std::int64_t end, int) {
      k_.swiglu(floats(gate) + begin, floats(up) + begin, end - begin, floats(out) + begin);
    };
    pool_.parallel_for(gate.rows * gate.cols, kSerialValues, std::ref(body));
  }

  void add(Rows x, Rows y) override {
    ops::check_same_shape(x, y);
    const auto body = [&](std::int64_t begin, std::int64_t end, int) {
      k_.add(floats(x) + begin, floats(y) + begin, end - begin);
    };
    pool_.parallel_for(x.rows * x.cols, kSerialValues, std::ref(body));
  }

 private:
  static std::size_t row_size(const Rows& x) {
    return static_cast<std::size_t>(x.cols) * sizeof(float);
  }

  // body(row) for every row of x, several rows a thread at a time.
  template <typename Body>
  void for_rows(const Rows& x, const Body& body) {
    const auto chunk = [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t r = begin; r < end; ++r) body(r);
    };
    const std::int64_t grain = kSerialValues / std::max<std::int64_t>(1, x.cols);
    pool_.parallel_for(x.rows, std::max<std::int64_t>(1, grain), std::ref(chunk));
  }

  MatmulPlan plan_of(DType type) const;
  std::int64_t tiles_per_chunk(const WeightMatrix& w, std::int64_t x_rows) const;
  const ops::ActBlock* quantize(const Rows& x, std::int32_t offset);
  void decode_tile(const WeightMatrix& w, std::int64_t tile, float* panel, float* out) const;
  void matmul_decoded(const WeightMatrix& w, const MatmulArgs& args, std::int64_t grain);
  ops::KvArgs kv_args(const KvPages& kv, int layer, int head) const;
  void split_rows(const AttentionBatch& batch, int group);

  ComputePool& pool_;
  Isa isa_;
  const KernelTable& k_;
  ops::Arena arena_;
  ops::Scratch<ops::ActBlock> act_;
  ops::Scratch<float> per_thread_;
  struct RowGroup {
    std::int32_t sequence;
    std::int32_t first;
    std::int32_t rows;
  };
  std::vector<RowGroup> groups_;
};

MatmulPlan FastBackend::plan_of(DType type) const {
  switch (type) {
    case DType::kF32:
      return {k_.matmul_f32, false, 0};
    case DType::kF16:
      return {k_.matmul_f16, false, 0};
    case DType::kBF16:
      return {k_.matmul_bf16, false, 0};
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

void FastBackend::rope(
    Rows x, int head_dim, std::span<const Position> positions, const RopeTable& table
) {
  ops::check_rope(x, head_dim, positions, table);
  const int dims = table.rotary_dims;
  const int half = dims / 2;
  const bool halves = table.style == RopeStyle::kHalves;
  const std::int64_t stride = std::int64_t{2} * dims;
  float* scratch = per_thread_.get(static_cast<std::size_t>(pool_.threads() * stride));
  const auto body = [&](std::int64_t begin, std::int64_t end, int thread) {
    float* c = scratch + thread * stride;
    float* s = c + dims;
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t at = std::int64_t{positions[static_cast<std::size_t>(r)]} * half;
      for (int i = 0; i < half; ++i) {
        const int first = halves ? i : 2 * i;
        const int second = halves ? i + half : 2 * i + 1;
        c[first] = c[second] = static_cast<float>(table.cos[static_cast<std::size_t>(at + i)]);
        s[second] = static_cast<float>(table.sin[static_cast<std::size_t>(at + i)]);
        s[first] = -s[second];
      }
      for (float* head = row_of(x, r); head != row_of(x, r + 1); head += head_dim) {
        k_.rope({head, c, s, dims, halves});
      }
    }
  };
  const std::int64_t grain =
      std::max<std::int64_t>(1, kSerialValues / std::max<std::int64_t>(1, x.cols));
  pool_.parallel_for(x.rows, grain, std::ref(body));
}

ops::KvArgs FastBackend::kv_args(const KvPages& kv, int layer, int head) const {
  const KvGeometry& g = kv.geometry;
  const std::int64_t head_bytes = std::int64_t{g.head_dim} * kPageTokens * kv_type_bytes(g.type);
  const std::int64_t start = layer * g.layer_bytes();
  return {
      kv.base,
      g.page_bytes(),
      start + head * head_bytes,
      start + (g.kv_heads + head) * head_bytes,
      g.head_dim
  };
}

void FastBackend::kv_write(
    Rows k, Rows v, const KvPages& kv, int layer, const AttentionBatch& batch
) {
  ops::check_same_shape(k, v);
  if (k.rows == 0) return;
  ops::check_kv(kv, layer);
  ops::check_attention_batch(batch, k.rows);
  const KvGeometry& g = kv.geometry;
  CHECK(k.cols == std::int64_t{g.kv_heads} * g.head_dim, "{} columns", k.cols);
  CHECK(g.type != KvType::kF64, "float64 KV needs --numerics reference");
  const auto write = g.type == KvType::kF16 ? k_.kv_write_f16 : k_.kv_write_f32;
  const auto body = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const auto after = std::upper_bound(batch.offsets.begin(), batch.offsets.end(), r);
      const std::int64_t sequence = after - batch.offsets.begin() - 1;
      const Position position = batch.positions[static_cast<std::size_t>(r)];
      const PageId page = batch.page_table[static_cast<std::size_t>(
          sequence * batch.pages_max + position / kPageTokens
      )];
      for (int h = 0; h < g.kv_heads; ++h) {
        const std::int64_t at = std::int64_t{h} * g.head_dim;
        write(
            kv_args(kv, layer, h),
            page,
            position % kPageTokens,
            row_of(k, r) + at,
            row_of(v, r) + at
        );
      }
    }
  };
  const std::int64_t grain = std::max<std::int64_t>(1, kSerialValues / k.cols);
  pool_.parallel_for(k.rows, grain, std::ref(body));
}

// Rows of one sequence that go through its pages together.
void FastBackend::split_rows(const AttentionBatch& batch, int group) {
  const std::int32_t most = std::max(1, kAttentionVectors / group);
  groups_.clear();
  for (std::size_t s = 0; s + 1 < batch.offsets.size(); ++s) {
    for (std::int32_t r = batch.offsets[s]; r < batch.offsets[s + 1]; r += most) {
      const std::int32_t rows = std::min(most, batch.offsets[s + 1] - r);
      groups_.push_back({static_cast<std::int32_t>(s), r, rows});
    }
  }
}

void FastBackend::attention(
    Rows q, const KvPages& kv, int layer, const AttentionBatch& batch, float scale, Rows out
) {
  ops::check_same_shape(q, out);
  if (q.rows == 0) return;
  ops::check_kv(kv, layer);
  ops::check_attention_batch(batch, q.rows);
  const KvGeometry& g = kv.geometry;
  CHECK(q.cols % (std::int64_t{g.kv_heads} * g.head_dim) == 0, "{} columns", q.cols);
  CHECK(g.type != KvType::kF64, "float64 KV needs --numerics reference");
  const int group = static_cast<int>(q.cols / g.head_dim / g.kv_heads);
  const auto attend = g.type == KvType::kF16 ? k_.attention_f16 : k_.attention_f32;
  split_rows(batch, group);
  const int most_rows = std::max(1, kAttentionVectors / group);
  const std::int64_t stride = ops::attention_scratch_floats(most_rows, group, g.head_dim);
  float* scratch = per_thread_.get(static_cast<std::size_t>(pool_.threads() * stride));
  const auto body = [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t item = begin; item < end; ++item) {
      const RowGroup& rows = groups_[static_cast<std::size_t>(item / g.kv_heads)];
      const int head = static_cast<int>(item % g.kv_heads);
      const std::int64_t at = std::int64_t{head} * group * g.head_dim;
      ops::AttentionArgs args = {};
      args.kv = kv_args(kv, layer, head);
      args.page_table = batch.page_table.data() + rows.sequence * batch.pages_max;
      args.q = row_of(q, rows.first) + at;
      args.out = row_of(out, rows.first) + at;
      args.stride = q.cols;
      args.group = group;
      args.rows = rows.rows;
      args.position = batch.positions[static_cast<std::size_t>(rows.first)];
      args.scale = scale;
      args.scratch = scratch + thread * stride;
      attend(args);
    }
  };
  pool_.parallel_for(std::ssize(groups_) * g.kv_heads, 1, std::ref(body));
}

}  // namespace

std::int64_t kv_type_bytes(KvType type) {
  switch (type) {
    case KvType::kF16:
      return 2;
    case KvType::kF32:
      return 4;
    case KvType::kF64:
      return 8;
  }
  return 0;
}

std::unique_ptr<Backend> make_fast_backend(ComputePool& pool, Isa isa) {
  return std::make_unique<FastBackend>(pool, isa);
}

}  // namespace artery::tensor
