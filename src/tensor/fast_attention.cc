// KV writes and attention of the fast backend: which rows share pages, how they are dealt.

#include "tensor/fast_backend.h"

namespace artery::tensor {
namespace {

constexpr int kAttentionVectors = 32;  // query vectors that share loaded pages
constexpr int kWordVectors = 96;       // the same of integer KV
// Blocks of few query vectors are computed apart and folded later: that costs writing and reading
// every block's result, 1 / 32 of the work.
constexpr int kApartVectors = 32;
constexpr std::int64_t kApartBlocksMin = 4;  // in one piece of work
constexpr std::int64_t kApartIntsMax = 16 << 20;
constexpr std::int64_t kNoWindow = std::int64_t{1} << 40;  // beyond any position

// The kernels of one KvType; kF64 has none.
struct KvKernels {
  decltype(KernelTable::kv_write_f16) write = nullptr;
  decltype(KernelTable::attention_f16) attend = nullptr;
};

KvKernels kernels_of(const KernelTable& k, KvType type) {
  switch (type) {
    case KvType::kF16:
      return {k.kv_write_f16, k.attention_f16};
    case KvType::kF32:
      return {k.kv_write_f32, k.attention_f32};
    case KvType::kI16:
      return {k.kv_write_i16, k.attention_i16};
    case KvType::kI16V8:
      return {k.kv_write_i16v8, k.attention_i16v8};
    case KvType::kF64:
      break;
  }
  return {};
}

}  // namespace

ops::KvArgs FastBackend::kv_args(const KvPages& kv, int layer, int head) const {
  const KvGeometry& g = kv.geometry;
  return {kv.base, g.page_bytes(), g.k_offset(layer, head), g.v_offset(layer, head), g.head_dim};
}

void FastBackend::kv_write(
    Rows k, Rows v, const KvPages& kv, int layer, const AttentionBatch& batch
) {
  ops::check_same_shape(k, v);
  if (k.rows == 0) return;
  ops::check_kv(kv, layer);
  ops::check_kv_write(batch, k.rows);
  const KvGeometry& g = kv.geometry;
  CHECK(k.cols == std::int64_t{g.kv_heads} * g.head_dim, "{} columns", k.cols);
  CHECK(g.type != KvType::kF64, "float64 KV needs --numerics reference");
  const auto write = kernels_of(k_, g.type).write;
  const auto body = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const auto after = std::upper_bound(batch.offsets.begin(), batch.offsets.end(), r);
      const std::int64_t sequence = after - batch.offsets.begin() - 1;
      const Position position = batch.positions[static_cast<std::size_t>(r)];
      if (position < ops::write_from(batch, static_cast<std::size_t>(sequence))) continue;
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

// Rows of one sequence that go through its pages together, in even parts.
void FastBackend::split_rows(
    const AttentionBatch& batch, const KvGeometry& g, int group, int window
) {
  const int vectors = is_integer(g.type) ? kWordVectors : kAttentionVectors;
  const std::int32_t most = std::max(1, vectors / group);
  groups_.clear();
  for (std::size_t s = 0; s + 1 < batch.offsets.size(); ++s) {
    const std::int32_t rows = batch.offsets[s + 1] - batch.offsets[s];
    const std::int32_t parts = (rows + most - 1) / most;
    for (std::int32_t part = 0; part < parts; ++part) {
      const auto begin = static_cast<std::int32_t>(std::int64_t{rows} * part / parts);
      const auto end = static_cast<std::int32_t>(std::int64_t{rows} * (part + 1) / parts);
      const std::int32_t first = batch.offsets[s] + begin;
      const Position top = batch.positions[static_cast<std::size_t>(first)];
      const Position last = top + end - begin - 1;
      const std::int64_t block = ops::first_seen(batch, s, top, window) / ops::kAttentionBlock;
      const std::int64_t blocks = last / ops::kAttentionBlock + 1 - block;
      for (std::int32_t head = 0; head < g.kv_heads; ++head) {
        groups_.push_back({static_cast<std::int32_t>(s), first, end - begin, head, block, blocks});
      }
    }
  }
}

// Pieces of work, the largest first. A group of few vectors that would keep one thread busy while
// the others have nothing left is cut into ranges of blocks.
void FastBackend::split_blocks(const KvGeometry& g, int group) {
  ranges_.clear();
  apart_.clear();
  std::int64_t all = 0;
  for (const RowGroup& rows : groups_) all += rows.blocks * rows.rows;
  const std::int64_t share = all / (std::int64_t{4} * pool_.threads()) + 1;
  std::int64_t kept = 0;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    RowGroup& rows = groups_[i];
    const auto index = static_cast<std::int32_t>(i);
    const std::int64_t piece = std::max(kApartBlocksMin, share / rows.rows + 1);
    const std::int64_t ints = ops::partial_ints(rows.rows, group, g.head_dim) * rows.blocks;
    if (!is_integer(g.type) || pool_.threads() == 1 || rows.rows * group > kApartVectors ||
        rows.blocks < 2 * piece || kept + ints > kApartIntsMax) {
      ranges_.push_back({index, rows.first_block, rows.blocks});
      continue;
    }
    rows.kept = kept;
    kept += ints;
    apart_.push_back(index);
    for (std::int64_t b = 0; b < rows.blocks; b += piece) {
      ranges_.push_back({index, rows.first_block + b, std::min(piece, rows.blocks - b)});
    }
  }
  partials_.get(static_cast<std::size_t>(kept));
  const auto work = [&](const BlockRange& r) {
    return r.count * groups_[static_cast<std::size_t>(r.group)].rows;
  };
  std::sort(ranges_.begin(), ranges_.end(), [&](const BlockRange& a, const BlockRange& b) {
    return work(a) > work(b);
  });
}

void FastBackend::attention(
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
  CHECK(g.type != KvType::kF64, "float64 KV needs --numerics reference");
  const int group = static_cast<int>(q.cols / g.head_dim / g.kv_heads);
  split_rows(batch, g, group, shape.window);
  split_blocks(g, group);
  int most_rows = 0;
  for (const RowGroup& rows : groups_) most_rows = std::max(most_rows, rows.rows);
  const std::int64_t stride = ops::attention_scratch_floats(most_rows, group, g.head_dim);
  float* scratch = per_thread_.get(static_cast<std::size_t>(pool_.threads() * stride));
  const auto args_of = [&](const RowGroup& rows, int thread) {
    const std::int64_t at = std::int64_t{rows.head} * group * g.head_dim;
    ops::AttentionArgs args = {};
    args.kv = kv_args(kv, layer, rows.head);
    args.page_table = batch.page_table.data() + rows.sequence * batch.pages_max;
    args.q = row_of(q, rows.first) + at;
    args.out = row_of(out, rows.first) + at;
    args.stride = q.cols;
    args.group = group;
    args.rows = rows.rows;
    args.position = batch.positions[static_cast<std::size_t>(rows.first)];
    args.first = batch.first.empty() ? 0 : batch.first[static_cast<std::size_t>(rows.sequence)];
    args.window = shape.window > 0 ? shape.window : kNoWindow;
    args.scale = shape.scale;
    if (!shape.sinks.empty()) args.sinks = shape.sinks.data() + std::int64_t{rows.head} * group;
    args.scratch = scratch + thread * stride;
    if (rows.kept >= 0) args.partials = partials_.get(0) + rows.kept;
    return args;
  };
  const auto attend = kernels_of(k_, g.type).attend;
  const auto body = [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t i = begin; i < end; ++i) {
      const BlockRange& range = ranges_[static_cast<std::size_t>(i)];
      ops::AttentionArgs args = args_of(groups_[static_cast<std::size_t>(range.group)], thread);
      args.first_block = range.first;
      args.blocks = range.count;
      attend(args);
    }
  };
  pool_.parallel_for(std::ssize(ranges_), 1, std::ref(body));
  const auto fold = [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int32_t apart = apart_[static_cast<std::size_t>(i)];
      k_.fold_words(args_of(groups_[static_cast<std::size_t>(apart)], thread));
    }
  };
  if (!apart_.empty()) pool_.parallel_for(std::ssize(apart_), 1, std::ref(fold));
}

}  // namespace artery::tensor
