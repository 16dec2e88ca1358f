#pragma once
// Shape checks that both backends make before they touch memory. A failure is a bug of the caller
// (model or engine), so they end the process. Pure functions, any thread.

#include <algorithm>
#include <iterator>

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

// The first position that a query at `position` of sequence `s` sees; `window` 0: no window.
inline Position first_seen(
    const AttentionBatch& batch, std::size_t s, Position position, int window
) {
  const Position held = batch.first.empty() ? 0 : batch.first[s];
  return window > 0 ? std::max(held, position - window + 1) : held;
}
// kv_write leaves the entries of earlier positions as they are.
inline Position write_from(const AttentionBatch& batch, std::size_t s) {
  return batch.write_from.empty() ? 0 : batch.write_from[s];
}

// `from` of each sequence: every position from there up to its last has a page; rows are
// contiguous.
template <typename From>
void check_attention_batch(const AttentionBatch& batch, std::int64_t rows, const From& from) {
  CHECK(batch.positions.size() == static_cast<std::size_t>(rows), "{}", batch.positions.size());
  CHECK(!batch.offsets.empty() && batch.offsets.front() == 0 && batch.offsets.back() == rows);
  const std::size_t sequences = batch.offsets.size() - 1;
  CHECK(batch.first.empty() || batch.first.size() == sequences, "{}", batch.first.size());
  CHECK(batch.write_from.empty() || batch.write_from.size() == sequences);
  for (std::size_t s = 0; s < sequences; ++s) {
    const auto begin = static_cast<std::size_t>(batch.offsets[s]);
    const auto end = static_cast<std::size_t>(batch.offsets[s + 1]);
    CHECK(begin <= end && end <= batch.positions.size(), "sequence {}", s);
    if (begin == end) continue;
    const Position first = batch.positions[begin];
    CHECK(first >= 0, "sequence {} starts at {}", s, first);
    const Position held = batch.first.empty() ? 0 : batch.first[s];
    CHECK(held >= 0 && held <= first, "entries from {}, rows from {}", held, first);
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
    for (std::int64_t p = from(s, first) / kPageTokens; p < pages; ++p) {
      CHECK(batch.page_table[at + static_cast<std::size_t>(p)] >= 0, "no page {}", p);
    }
  }
}

// Pages of the positions that are written.
inline void check_kv_write(const AttentionBatch& batch, std::int64_t rows) {
  check_attention_batch(batch, rows, [&](std::size_t s, Position first) {
    return std::max(first, write_from(batch, s));
  });
}
// Pages of the positions that are seen.
inline void check_attention(
    const AttentionBatch& batch, const AttentionShape& shape, std::int64_t rows, std::int64_t heads
) {
  CHECK(shape.window >= 0, "window {}", shape.window);
  CHECK(shape.sinks.empty() || std::ssize(shape.sinks) == heads, "{} sinks", shape.sinks.size());
  check_attention_batch(batch, rows, [&](std::size_t s, Position first) {
    return first_seen(batch, s, first, shape.window);
  });
}

inline void check_kv(const KvPages& kv, int layer) {
  CHECK(kv.base != nullptr && layer >= 0 && layer < kv.geometry.layers, "layer {}", layer);
  CHECK(kv.geometry.kv_heads > 0 && kv.geometry.head_dim > 0);
}

}  // namespace artery::tensor::ops
