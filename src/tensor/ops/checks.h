#pragma once
// Shape checks that both backends make before they touch memory. A failure is a bug of the caller
// (model or engine), so they end the process. Pure functions, any thread.

#include "base/check.h"
#include "tensor/backend.h"

namespace artery::tensor::ops {

inline void check_same_shape(const Rows& a, const Rows& b) {
  CHECK(a.rows == b.rows && a.cols == b.cols, "{}x{} and {}x{}", a.rows, a.cols, b.rows, b.cols);
}

inline void check_matmul(
    const Rows& x, const WeightMatrix& w, std::span<const float> bias, const Rows& out
) {
  CHECK(x.cols == w.cols(), "input {} wide, weights {}", x.cols, w.cols());
  CHECK(x.rows == out.rows && out.cols == w.rows(), "output {}x{}", out.rows, out.cols);
  CHECK(bias.empty() || bias.size() == static_cast<std::size_t>(w.rows()), "{}", bias.size());
}

inline void check_rope(
    const Rows& x, int head_dim, std::span<const Position> positions, const RopeTable& table
) {
  CHECK(head_dim > 0 && x.cols % head_dim == 0, "{} columns, heads of {}", x.cols, head_dim);
  CHECK(positions.size() == static_cast<std::size_t>(x.rows), "{} positions", positions.size());
  CHECK(
      table.rotary_dims >= 0 && table.rotary_dims <= head_dim && table.rotary_dims % 2 == 0,
      "{} rotary dimensions of {}",
      table.rotary_dims,
      head_dim
  );
  CHECK(table.cos.size() == table.sin.size(), "{} {}", table.cos.size(), table.sin.size());
  const std::size_t half = static_cast<std::size_t>(table.rotary_dims) / 2;
  for (const Position p : positions) {
    CHECK(p >= 0 && (static_cast<std::size_t>(p) + 1) * half <= table.cos.size(), "position {}", p);
  }
}

// Every position up to the last of each sequence has a page; rows are contiguous.
inline void check_attention_batch(const AttentionBatch& batch, std::int64_t rows) {
  CHECK(batch.positions.size() == static_cast<std::size_t>(rows), "{}", batch.positions.size());
  CHECK(!batch.offsets.empty() && batch.offsets.front() == 0 && batch.offsets.back() == rows);
  for (std::size_t s = 0; s + 1 < batch.offsets.size(); ++s) {
    const auto begin = static_cast<std::size_t>(batch.offsets[s]);
    const auto end = static_cast<std::size_t>(batch.offsets[s + 1]);
    CHECK(begin <= end && end <= batch.positions.size(), "sequence {}", s);
    if (begin == end) continue;
    const Position first = batch.positions[begin];
    CHECK(first >= 0, "sequence {} starts at {}", s, first);
    for (std::size_t r = begin; r < end; ++r) {
      CHECK(
          batch.positions[r] == first + static_cast<Position>(r - begin), "row {} of a sequence", r
      );
    }
    const std::int64_t pages = batch.positions[end - 1] / kPageTokens + 1;
    const std::size_t at = s * static_cast<std::size_t>(batch.pages_max);
    CHECK(
        pages <= batch.pages_max && at + static_cast<std::size_t>(pages) <= batch.page_table.size(),
        "{} pages of {}",
        pages,
        batch.pages_max
    );
    for (std::int64_t p = 0; p < pages; ++p) {
      CHECK(batch.page_table[at + static_cast<std::size_t>(p)] >= 0, "no page {}", p);
    }
  }
}

inline void check_kv(const KvPages& kv, int layer) {
  CHECK(kv.base != nullptr && layer >= 0 && layer < kv.geometry.layers, "layer {}", layer);
  CHECK(kv.geometry.kv_heads > 0 && kv.geometry.head_dim > 0);
}

}  // namespace artery::tensor::ops
