// The reference backend: double activations and sums, plain loops, weights decoded exactly. It
// shares no arithmetic with the fast kernels, so that it can judge them. Row results are sums in
// ascending order over one row only, so they too are independent of the batch.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "tensor/backend.h"
#include "tensor/math.h"
#include "tensor/ops/arena.h"
#include "tensor/ops/checks.h"
#include "tensor/reference_experts.h"
#include "tensor/reference_kv.h"

namespace artery::tensor {
namespace {

double* doubles(const Rows& x) { return static_cast<double*>(x.data); }
double* row_of(const Rows& x, std::int64_t r) { return doubles(x) + r * x.cols; }

// 16 outputs of one activation row from interleaved weights [cols][16], products and sums in
// separate roundings, k ascending.
[[gnu::always_inline]] inline void dot_16_loop(
    const double* x, const double* w, std::int64_t cols, double* out
) {
  double sum[kLanes] = {};
  for (std::int64_t k = 0; k < cols; ++k) {
    const double xk = x[k];
    for (int i = 0; i < kLanes; ++i) sum[i] += xk * w[k * kLanes + i];
  }
  for (int i = 0; i < kLanes; ++i) out[i] = sum[i];
}
void dot_16_any(const double* x, const double* w, std::int64_t cols, double* out) {
  dot_16_loop(x, w, cols, out);
}
#if defined(__x86_64__)
// The same operations four at a time: equal bits, and tests against whole models end sooner.
[[gnu::target("avx2")]] void dot_16_avx2(
    const double* x, const double* w, std::int64_t cols, double* out
) {
  dot_16_loop(x, w, cols, out);
}
#endif

using Dot16 = void (*)(const double*, const double*, std::int64_t, double*);
Dot16 pick_dot_16() {
#if defined(__x86_64__)
  if (supported(Isa::kAvx2)) return dot_16_avx2;
#endif
  return dot_16_any;
}

// The rows of a tile as double, interleaved [cols][16]; lanes beyond the last row are 0.
void decode_tile(const WeightMatrix& w, std::int64_t tile, double* out) {
  constexpr std::int64_t kPanel = 256;  // a multiple of every type's block
  float panel[kLanes][kPanel] = {};
  const std::int64_t first = tile * kLanes;
  const std::int64_t rows = std::min<std::int64_t>(kLanes, w.rows() - first);
  for (std::int64_t k = 0; k < w.cols(); k += kPanel) {
    const std::int64_t n = std::min(kPanel, w.cols() - k);
    for (std::int64_t i = 0; i < rows; ++i) {
      w.decode_part(first + i, k, {panel[i], static_cast<std::size_t>(n)});
    }
    for (std::int64_t j = 0; j < n; ++j) {
      for (int i = 0; i < kLanes; ++i) out[(k + j) * kLanes + i] = panel[i][j];
    }
  }
}

double sigmoid(double x) { return 1.0 / (1.0 + exp_d(-x)); }

double gated_value(Gating gating, double gate, double up) {
  switch (gating) {
    case Gating::kSilu:
      return gate / (1.0 + exp_d(-gate)) * up;
    case Gating::kGeluTanh: {
      constexpr double kRoot = 0.79788456080286535588;  // sqrt(2 / pi)
      const double z = kRoot * (gate + 0.044715 * gate * gate * gate);
      return gate * sigmoid(2.0 * z) * up;  // (1 + tanh z) / 2
    }
    case Gating::kClamped:
      break;
  }
  // min and max of the standard library keep their first operand where one is NaN.
  const double g = std::min(gate, 7.0);
  const double u = std::max(std::min(up, 7.0), -7.0);
  return g * sigmoid(1.702 * g) * (u + 1.0);
}

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(ComputePool& pool) : pool_(pool) {}

  std::string numerics_class() const override { return "reference-1"; }
  Isa isa() const override { return Isa::kScalar; }
  ComputePool& pool() override { return pool_; }

  Rows alloc(std::int64_t rows, std::int64_t cols) override {
    CHECK(rows >= 0 && cols >= 0, "{}x{}", rows, cols);
    return {arena_.alloc(static_cast<std::size_t>(rows * cols) * sizeof(double)), rows, cols};
  }
  void reset() override { arena_.reset(); }

  void embed(const WeightMatrix& table, std::span<const TokenId> tokens, Rows out) override {
    CHECK(static_cast<std::size_t>(out.rows) == tokens.size() && out.cols == table.cols());
    std::vector<float> row(static_cast<std::size_t>(out.cols));
    for (std::int64_t r = 0; r < out.rows; ++r) {
      table.decode_row(tokens[static_cast<std::size_t>(r)], row);
      std::copy(row.begin(), row.end(), row_of(out, r));
    }
  }

  void load(std::span<const float> values, Rows out) override {
    CHECK(values.size() == static_cast<std::size_t>(out.rows * out.cols), "{}", values.size());
    std::copy(values.begin(), values.end(), doubles(out));
  }

  void store(Rows x, std::span<float> out) override {
    CHECK(out.size() == static_cast<std::size_t>(x.rows * x.cols), "{}", out.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(doubles(x)[i]);
  }

  void gather(Rows x, std::span<const std::int32_t> rows, Rows out) override {
    CHECK(out.cols == x.cols && static_cast<std::size_t>(out.rows) == rows.size());
    for (std::int64_t r = 0; r < out.rows; ++r) {
      const std::int32_t from = rows[static_cast<std::size_t>(r)];
      CHECK(from >= 0 && from < x.rows, "row {} of {}", from, x.rows);
      std::copy_n(row_of(x, from), x.cols, row_of(out, r));
    }
  }

  void copy(Rows x, Rows out) override {
    ops::check_same_shape(x, out);
    if (x.data != out.data) std::copy_n(doubles(x), x.rows * x.cols, doubles(out));
  }

  void rms_norm(Rows x, std::span<const float> weight, float eps, Rows out) override {
    ops::check_same_shape(x, out);
    CHECK(weight.size() == static_cast<std::size_t>(x.cols), "{} of {}", weight.size(), x.cols);
    for (std::int64_t r = 0; r < x.rows; ++r) norm(row_of(x, r), weight, eps, row_of(out, r));
  }

  void rms_norm_heads(Rows x, int head_dim, std::span<const float> weight, float eps) override {
    CHECK(head_dim > 0 && x.cols % head_dim == 0, "{} columns, heads of {}", x.cols, head_dim);
    CHECK(weight.size() == static_cast<std::size_t>(head_dim), "{}", weight.size());
    double* end = doubles(x) + x.rows * x.cols;
    for (double* head = doubles(x); head != end; head += head_dim) norm(head, weight, eps, head);
  }

  void matmul(Rows x, const WeightMatrix& w, std::span<const float> bias, Rows out) override;
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
    for (std::int64_t i = 0; i < gate.rows * gate.cols; ++i) {
      doubles(out)[i] = gated_value(gating, doubles(gate)[i], doubles(up)[i]);
    }
  }

  void add(Rows x, Rows y) override {
    ops::check_same_shape(x, y);
    for (std::int64_t i = 0; i < x.rows * x.cols; ++i) doubles(x)[i] += doubles(y)[i];
  }

  void scale(Rows x, float factor) override {
    for (std::int64_t i = 0; i < x.rows * x.cols; ++i) doubles(x)[i] *= factor;
  }

  void gate_rows(Rows gate, Rows x) override {
    CHECK(gate.rows == x.rows && gate.cols == 1, "{}x{} gates", gate.rows, gate.cols);
    for (std::int64_t r = 0; r < x.rows; ++r) {
      const double share = sigmoid(*row_of(gate, r));
      for (std::int64_t k = 0; k < x.cols; ++k) row_of(x, r)[k] *= share;
    }
  }

  Routing route(Rows logits, const RouterShape& shape) override {
    return reference_route(*this, logits, shape);
  }
  void experts(Rows x, const Routing& routing, const Experts& experts, Rows out) override {
    reference_experts(*this, x, routing, experts, out);
  }

 private:
  static void norm(const double* x, std::span<const float> weight, double eps, double* out) {
    double sum = 0;
    for (std::size_t i = 0; i < weight.size(); ++i) sum += x[i] * x[i];
    const double root = std::sqrt(sum / static_cast<double>(weight.size()) + eps);
    for (std::size_t i = 0; i < weight.size(); ++i) out[i] = x[i] / root * weight[i];
  }

  struct Head {
    const double* q;
    const std::byte* base;
    const PageId* pages;
    KvGeometry geometry;
    std::int64_t k_offset;
    std::int64_t v_offset;
    Position first;  // that it sees
    Position last;
    double scale;
    const float* sink;  // or null
  };
  static void attend(const Head& head, double* weights, double* out);

  ComputePool& pool_;
  Dot16 dot_16_ = pick_dot_16();
  ops::Arena arena_;
  ops::Scratch<double> per_thread_;
};

void ReferenceBackend::matmul(
    Rows x, const WeightMatrix& w, std::span<const float> bias, Rows out
) {
  ops::check_matmul(x, w, bias, out);
  if (x.rows == 0) return;
  const std::int64_t cols = w.cols();
  const std::int64_t stride = kLanes * cols;
  double* scratch = per_thread_.get(static_cast<std::size_t>(pool_.threads() * stride));
  const auto body = [&](std::int64_t begin, std::int64_t end, int thread) {
    double* tile = scratch + thread * stride;
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t first = t * kLanes;
      const std::int64_t rows = std::min<std::int64_t>(kLanes, w.rows() - first);
      decode_tile(w, t, tile);
      for (std::int64_t r = 0; r < x.rows; ++r) {
        double y[kLanes];
        dot_16_(row_of(x, r), tile, cols, y);
        for (std::int64_t i = 0; i < rows; ++i) {
          const double b = bias.empty() ? 0.0 : bias[static_cast<std::size_t>(first + i)];
          row_of(out, r)[first + i] = y[i] + b;
        }
      }
    }
  };
  pool_.parallel_for(w.tiles(), 1, std::ref(body));
}

void ReferenceBackend::rope(
    Rows x, int head_dim, std::span<const Position> positions, const RopeTable& table
) {
  ops::check_rope(x, head_dim, positions, table);
  const int half = table.rotary_dims / 2;
  const bool halves = table.style == RopeStyle::kHalves;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const std::int64_t at = std::int64_t{positions[static_cast<std::size_t>(r)]} * half;
    for (double* head = row_of(x, r); head != row_of(x, r + 1); head += head_dim) {
      for (int i = 0; i < half; ++i) {
        const double c = table.cos[static_cast<std::size_t>(at + i)];
        const double s = table.sin[static_cast<std::size_t>(at + i)];
        double& a = head[halves ? i : 2 * i];
        double& b = head[halves ? i + half : 2 * i + 1];
        const double turned = a * c - b * s;
        b = a * s + b * c;
        a = turned;
      }
    }
  }
}

void ReferenceBackend::kv_write(
    Rows k, Rows v, const KvPages& kv, int layer, const AttentionBatch& batch
) {
  ops::check_same_shape(k, v);
  if (k.rows == 0) return;
  ops::check_kv(kv, layer);
  ops::check_kv_write(batch, k.rows);
  const KvGeometry& g = kv.geometry;
  CHECK(k.cols == std::int64_t{g.kv_heads} * g.head_dim, "{} columns", k.cols);
  const auto dims = static_cast<std::size_t>(g.head_dim);
  for (std::size_t s = 0; s + 1 < batch.offsets.size(); ++s) {
    for (std::int64_t r = batch.offsets[s]; r < batch.offsets[s + 1]; ++r) {
      const Position position = batch.positions[static_cast<std::size_t>(r)];
      if (position < ops::write_from(batch, s)) continue;
      const auto entry = s * static_cast<std::size_t>(batch.pages_max) +
                         static_cast<std::size_t>(position / kPageTokens);
      std::byte* page = kv.base + batch.page_table[entry] * g.page_bytes();
      const int lane = position % kPageTokens;
      for (int h = 0; h < g.kv_heads; ++h) {
        const std::int64_t at = std::int64_t{h} * g.head_dim;
        put_key(page + g.k_offset(layer, h), g, lane, {row_of(k, r) + at, dims});
        put_value(page + g.v_offset(layer, h), g, lane, {row_of(v, r) + at, dims});
      }
    }
  }
}

// Softmax over all positions that the head sees, in one piece, a sink among them. `weights`:
// [last + 1] scratch.
void ReferenceBackend::attend(const Head& head, double* weights, double* out) {
  const KvGeometry& g = head.geometry;
  const auto page_of = [&](Position j) {
    return head.base + head.pages[j / kPageTokens] * g.page_bytes();
  };
  double top = head.sink != nullptr ? *head.sink : -HUGE_VAL;
  for (Position j = head.first; j <= head.last; ++j) {
    const std::byte* keys = page_of(j) + head.k_offset;
    double dot = 0;
    for (int d = 0; d < g.head_dim; ++d) dot += head.q[d] * kv_key(keys, g, j % kPageTokens, d);
    weights[j] = dot * head.scale;
    top = std::max(top, weights[j]);
  }
  double sum = head.sink != nullptr ? exp_d(*head.sink - top) : 0;
  for (Position j = head.first; j <= head.last; ++j) {
    weights[j] = exp_d(weights[j] - top);
    sum += weights[j];
  }
  std::fill_n(out, g.head_dim, 0.0);
  for (Position j = head.first; j <= head.last; ++j) {
    const std::byte* values = page_of(j) + head.v_offset;
    for (int d = 0; d < g.head_dim; ++d) {
      out[d] += weights[j] * kv_value(values, g, j % kPageTokens, d);
    }
  }
  for (int d = 0; d < g.head_dim; ++d) out[d] /= sum;
}

void ReferenceBackend::attention(
    Rows q,
    const KvPages& kv,
    int layer,
    const AttentionBatch& batch,
    const AttentionShape& shape,
    Rows out
) {
  ops::check_same_shape(q, out);
  if (q.rows == 0) return;
  ops::check_kv(kv, layer);
  const KvGeometry& g = kv.geometry;
  ops::check_attention(batch, shape, q.rows, q.cols / g.head_dim);
  CHECK(q.cols % (std::int64_t{g.kv_heads} * g.head_dim) == 0, "{} columns", q.cols);
  const std::int64_t heads = q.cols / g.head_dim;
  const std::int64_t group = heads / g.kv_heads;
  const std::int64_t stride = batch.pages_max * kPageTokens;
  double* scratch = per_thread_.get(static_cast<std::size_t>(pool_.threads() * stride));
  const auto body = [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t r = item / heads;
      const std::int64_t h = item % heads;
      const auto after = std::upper_bound(batch.offsets.begin(), batch.offsets.end(), r);
      const std::int64_t sequence = after - batch.offsets.begin() - 1;
      Head head = {};
      head.q = row_of(q, r) + h * g.head_dim;
      head.base = kv.base;
      head.pages = batch.page_table.data() + sequence * batch.pages_max;
      head.geometry = g;
      head.k_offset = g.k_offset(layer, static_cast<int>(h / group));
      head.v_offset = g.v_offset(layer, static_cast<int>(h / group));
      head.last = batch.positions[static_cast<std::size_t>(r)];
      head.first =
          ops::first_seen(batch, static_cast<std::size_t>(sequence), head.last, shape.window);
      head.scale = shape.scale;
      if (!shape.sinks.empty()) head.sink = &shape.sinks[static_cast<std::size_t>(h)];
      attend(head, scratch + thread * stride, row_of(out, r) + h * g.head_dim);
    }
  };
  pool_.parallel_for(q.rows * heads, 1, std::ref(body));
}

}  // namespace

std::unique_ptr<Backend> make_reference_backend(ComputePool& pool) {
  return std::make_unique<ReferenceBackend>(pool);
}

}  // namespace artery::tensor
