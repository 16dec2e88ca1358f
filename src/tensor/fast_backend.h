#pragma once
// The fast backend: float32 activations, kernels by run-time dispatch. What each kernel computes,
// and in which order, is in ops/kernel_table.h; here are shapes, scratch and the split over
// threads, none of which changes a bit. Private to fast_*.cc: others use make_fast_backend.

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tensor/backend.h"
#include "tensor/fast_mixture.h"
#include "tensor/ops/arena.h"
#include "tensor/ops/checks.h"
#include "tensor/ops/kernel_table.h"

namespace artery::tensor {

using ops::KernelTable;
using ops::MatmulArgs;

constexpr std::int64_t kSerialValues = 16 << 10;  // element-wise work below stays on one thread

inline float* floats(const Rows& x) { return static_cast<float*>(x.data); }
inline float* row_of(const Rows& x, std::int64_t r) { return floats(x) + r * x.cols; }

using MatmulKernel = void (*)(const MatmulArgs&);
using GatedKernel = decltype(KernelTable::swiglu);

struct MatmulPlan {
  MatmulKernel kernel = nullptr;
  bool int8 = false;
  std::int32_t offset = 0;  // what unsigned weights carry, ActBlock::bias
};

constexpr std::int64_t kPanelRows = std::int64_t{ops::kPanelTiles} * kLanes;

// What one thread unpacks rows of weights into.
struct RowPanel {
  alignas(64) std::uint8_t panel[ops::kPanelTiles][ops::kPanelBlocks * ops::kRowMinPanelBytes];
  std::int8_t q[kPanelRows][ops::kPanelValues];
  float scale[kPanelRows][ops::kPanelSubs];
  float min[kPanelRows][ops::kPanelSubs];
};

class FastBackend final : public Backend {
 public:
  FastBackend(ComputePool& pool, Isa isa);

  std::string numerics_class() const override { return "fast-2"; }
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
  void matmuls(Rows x, std::span<const Product> products) override;
  void norm_matmuls(
      Rows x,
      Rows addend,
      std::span<const float> weight,
      float eps,
      Rows normed,
      std::span<const Product> products
  ) override;
  void gated_matmuls(Gating gating, Rows gate, Rows up, std::span<const Product> products) override;
  void rope(Rows x, int head_dim, std::span<const Position> positions, const RopeTable& table)
      override;
  void kv_write(Rows k, Rows v, const KvPages& kv, int layer, const AttentionBatch& batch) override;
  void attention(
      Rows q,
      const KvPages& kv,
      int layer,
      const AttentionBatch& batch,
      const AttentionShape& shape,
      Rows out
  ) override;

  void gated(Gating gating, Rows gate, Rows up, Rows out) override {
    ops::check_same_shape(gate, up);
    ops::check_same_shape(gate, out);
    const GatedKernel kernel = gated_kernel(gating);
    const auto body = [&](std::int64_t begin, std::int64_t end, int) {
      kernel(floats(gate) + begin, floats(up) + begin, end - begin, floats(out) + begin);
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

  void scale(Rows x, float factor) override {
    const auto body = [&](std::int64_t begin, std::int64_t end, int) {
      k_.scale(floats(x) + begin, factor, end - begin);
    };
    pool_.parallel_for(x.rows * x.cols, kSerialValues, std::ref(body));
  }

  void gate_rows(Rows gate, Rows x) override {
    CHECK(gate.rows == x.rows && gate.cols == 1, "{}x{} gates", gate.rows, gate.cols);
    for_rows(x, [&](std::int64_t r) {
      float value = -*row_of(gate, r);
      k_.exp(&value, 1, &value);
      k_.scale(row_of(x, r), 1.0f / (1.0f + value), x.cols);
    });
  }

  Routing route(Rows logits, const RouterShape& shape) override;
  void experts(Rows x, const Routing& routing, const Experts& experts, Rows out) override;

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

  GatedKernel gated_kernel(Gating gating) const {
    switch (gating) {
      case Gating::kSilu:
        return k_.swiglu;
      case Gating::kGeluTanh:
        return k_.geglu;
      case Gating::kClamped:
        break;
    }
    return k_.clamped_glu;
  }
  MatmulPlan plan_of(DType type) const;
  // Of `bytes` in `tiles` tiles, multiplied with x_rows rows.
  std::int64_t tiles_per_chunk(std::int64_t tiles, std::int64_t bytes, std::int64_t x_rows) const;
  // `units` equal parts of products with `bytes` of weights and x_rows rows as one loop.
  void run_units(
      std::int64_t units,
      std::int64_t bytes,
      std::int64_t x_rows,
      const std::function<void(std::int64_t, std::int64_t, int)>& body
  );
  MatmulArgs matmul_args(const Rows& x, const Product& product) const;
  void plan_jobs(const Rows& x, std::span<const Product> products);
  void round_rows(const Rows& x, std::int64_t begin, std::int64_t end);
  template <typename Make>
  void multiply(const Rows& x, std::span<const Product> products, const Make& make);
  void run_jobs(std::int64_t x_rows);
  void matmul_row_pair(
      const WeightMatrix& w, const MatmulArgs& args, std::int64_t pair, RowPanel& own
  );
  void matmul_by_rows(const WeightMatrix& w, const MatmulArgs& args);
  // fast_experts.cc
  void sort_by_expert(const Routing& routing, std::size_t experts);
  void prepare_inputs(const Rows& x, const Experts& experts);
  void round_slots(const Rows& x);
  void gather_slots(const Rows& x, bool packs);
  MatmulArgs input_args(const Rows& x, const Mixture::Part& part, DType type) const;
  MatmulArgs hidden_args(std::int64_t hidden, const Mixture::Part& part, DType type) const;
  void multiply_tiles(
      const WeightMatrix& w, MatmulArgs args, std::int64_t begin, std::int64_t end, int thread
  );
  void run_hidden(const Rows& x, const Experts& experts);
  struct Stretch;
  void hidden_stretch(const Rows& x, const Experts& experts, const Stretch& at);
  void keep_hidden(const WeightMatrix& down, const Stretch& at, float* rows);
  void run_down(const Experts& experts, std::int64_t first, std::int64_t last);
  void mix(const Routing& routing, std::int64_t first, std::int64_t last, Rows out);
  ops::KvArgs kv_args(const KvPages& kv, int layer, int head) const;
  void split_rows(const AttentionBatch& batch, const KvGeometry& g, int group, int window);
  void split_blocks(const KvGeometry& g, int group);

  ComputePool& pool_;
  Isa isa_;
  const KernelTable k_;
  ops::Arena arena_;
  ops::Scratch<ops::ActBlock> act_;
  ops::Scratch<float> groups_x_;
  // Of the products under way.
  struct Job {
    MatmulPlan plan;
    const WeightMatrix* weight;
    MatmulArgs args;
    std::int64_t first_tile = 0;  // in the loop over the tiles of all jobs
  };
  std::vector<Job> jobs_;
  std::vector<std::int32_t> offsets_;  // distinct ones; act_ holds the rows once for each
  float* group_x_ = nullptr;           // of groups_x_, when a job reads it
  ops::Scratch<float> per_thread_;
  ops::Scratch<RowPanel> row_panels_;
  Mixture mixture_;
  // Attention: the query vectors of consecutive rows of one sequence and of one KV head, and of
  // those the part that one thread computes: all, or the results of some blocks.
  struct RowGroup {
    std::int32_t sequence;
    std::int32_t first;
    std::int32_t rows;
    std::int32_t head;
    std::int64_t first_block;  // of positions that a row sees
    std::int64_t blocks;
    std::int64_t kept = -1;  // where in partials_ the results of its blocks are; -1: not apart
  };
  struct BlockRange {
    std::int32_t group;
    std::int64_t first;
    std::int64_t count;
  };
  std::vector<RowGroup> groups_;
  std::vector<BlockRange> ranges_;
  std::vector<std::int32_t> apart_;  // the groups whose blocks are computed apart
  ops::Scratch<std::int32_t> partials_;
};

}  // namespace artery::tensor
