// KV writes and attention of the fast backend: which rows share pages, how they are dealt.

#include "tensor/fast_backend.h"

namespace artery::tensor {
namespace {

constexpr int kAttentionVectors = 32;  // query vectors that share loaded pages

}  // namespace

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

}  // namespace artery::tensor
