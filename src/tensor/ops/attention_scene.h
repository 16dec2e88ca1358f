#pragma once
// Sequences for tests of attention: random rows, their pages, and calls of kv_write and attention
// over any parts of them. Test code only; one thread.

#include <algorithm>
#include <array>
#include <vector>

#include "tensor/ops/test_support.h"

namespace artery::tensor::testing {

// Sequences of given lengths with shuffled pages in one pool; memory that no position has written
// is NaN, so that reading it shows.
struct Scene {
  KvGeometry geometry;
  int group = 1;
  std::vector<std::int32_t> lengths;
  std::vector<float> q, k, v;  // all rows of all sequences, position by position
  std::vector<std::byte> memory;
  std::vector<PageId> table;
  std::int64_t pages_max = 0;
  int window = 0;
  std::vector<float> sinks;  // [kv_heads * group] or empty
  // Not negative: before each call the entries that no row of it sees, but for the last `held`, are
  // spoiled, and their pages are gone.
  int held = -1;
  float spoil = 0;  // what they become

  std::int64_t q_cols() const {
    return std::int64_t{geometry.kv_heads} * group * geometry.head_dim;
  }
  std::int64_t kv_cols() const { return std::int64_t{geometry.kv_heads} * geometry.head_dim; }
};

inline Scene make_scene(
    KvGeometry geometry, int group, std::vector<std::int32_t> lengths, Rng& rng
) {
  Scene s;
  s.geometry = geometry;
  s.group = group;
  s.lengths = std::move(lengths);
  std::int64_t rows = 0;
  std::int64_t pages = 0;
  for (const std::int32_t n : s.lengths) {
    rows += n;
    const std::int64_t here = (n + kPageTokens - 1) / kPageTokens;
    s.pages_max = std::max(s.pages_max, here + 1);
    pages += here;
  }
  s.q = activations(rng, rows * s.q_cols());
  s.k = activations(rng, rows * s.kv_cols());
  s.v = activations(rng, rows * s.kv_cols());
  std::vector<PageId> free;
  for (PageId p = 0; p < pages + 3; ++p) free.push_back(p);
  for (std::size_t i = free.size(); i > 1; --i) {
    std::swap(free[i - 1], free[static_cast<std::size_t>(pick(rng, static_cast<std::int64_t>(i)))]);
  }
  for (const std::int32_t n : s.lengths) {
    for (std::int64_t p = 0; p < s.pages_max; ++p) {
      if (p * kPageTokens < n) {
        s.table.push_back(free.back());
        free.pop_back();
      } else {
        s.table.push_back(kNoPage);
      }
    }
  }
  s.memory.assign(static_cast<std::size_t>((pages + 3) * geometry.page_bytes()), std::byte{0xFF});
  return s;
}

// One call of kv_write and attention: for each sequence, positions [begin, end) of it.
struct Span {
  std::size_t sequence;
  std::int32_t begin;
  std::int32_t end;
};

// What spans ask of a backend, in the form of its verbs.
struct Call {
  std::vector<Position> positions;
  std::vector<std::int32_t> offsets = {0};
  std::vector<PageId> table;
  std::vector<Position> first;
  std::vector<float> q, k, v;
  std::vector<std::int64_t> rows;  // of the scene

  AttentionBatch batch(const Scene& s) const {
    AttentionBatch b = {positions, offsets, table, s.pages_max};
    b.first = first;
    return b;
  }
};

inline Call call_of(const Scene& s, const std::vector<Span>& spans) {
  Call c;
  for (const Span& span : spans) {
    std::int64_t start = 0;
    for (std::size_t i = 0; i < span.sequence; ++i) start += s.lengths[i];
    for (std::int32_t p = span.begin; p < span.end; ++p) {
      c.positions.push_back(p);
      c.rows.push_back(start + p);
      const auto copy = [&](const std::vector<float>& from, std::int64_t cols, auto& to) {
        to.insert(
            to.end(), from.begin() + (start + p) * cols, from.begin() + (start + p + 1) * cols
        );
      };
      copy(s.q, s.q_cols(), c.q);
      copy(s.k, s.kv_cols(), c.k);
      copy(s.v, s.kv_cols(), c.v);
    }
    c.offsets.push_back(static_cast<std::int32_t>(c.positions.size()));
    const auto first = s.table.begin() + static_cast<std::int64_t>(span.sequence) * s.pages_max;
    c.table.insert(c.table.end(), first, first + s.pages_max);
  }
  return c;
}

inline void write_call(Backend& backend, Scene& s, const Call& c, const AttentionBatch& batch) {
  const auto n = static_cast<std::int64_t>(c.rows.size());
  backend.kv_write(
      load_rows(backend, c.k, n, s.kv_cols()),
      load_rows(backend, c.v, n, s.kv_cols()),
      {s.memory.data(), s.geometry},
      s.geometry.layers - 1,
      batch
  );
}

// Scene::held, before a call over `span`. Returns the first entry that is left.
inline Position spoil_entries(Backend& backend, Scene& s, const Span& span, PageId* table) {
  const Position left = std::max(0, span.begin - s.window + 1 - s.held);
  Call c = call_of(s, {{span.sequence, 0, left}});
  for (std::vector<float>* x : {&c.k, &c.v}) std::fill(x->begin(), x->end(), s.spoil);
  if (left > 0) write_call(backend, s, c, c.batch(s));
  std::fill_n(table, left / kPageTokens, kNoPage);
  return left;
}

inline void run_spans(
    Backend& backend, Scene& s, const std::vector<Span>& spans, std::vector<float>& out
) {
  Call c = call_of(s, spans);
  if (s.held >= 0) {
    for (std::size_t i = 0; i < spans.size(); ++i) {
      PageId* table = c.table.data() + static_cast<std::int64_t>(i) * s.pages_max;
      c.first.push_back(spoil_entries(backend, s, spans[i], table));
    }
  }
  const AttentionBatch batch = c.batch(s);
  write_call(backend, s, c, batch);
  const auto n = static_cast<std::int64_t>(c.rows.size());
  Rows result = backend.alloc(n, s.q_cols());
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.geometry.head_dim));
  backend.attention(
      load_rows(backend, c.q, n, s.q_cols()),
      {s.memory.data(), s.geometry},
      s.geometry.layers - 1,
      batch,
      {.scale = scale, .window = s.window, .sinks = s.sinks},
      result
  );
  const auto values = store_rows(backend, result);
  for (std::int64_t r = 0; r < n; ++r) {
    std::copy_n(
        values.begin() + r * s.q_cols(),
        s.q_cols(),
        out.begin() + c.rows[static_cast<std::size_t>(r)] * s.q_cols()
    );
  }
  backend.reset();
}

// Every sequence in chunks: `chunk(sequence, begin)` says how many positions come next; the chunks
// of all sequences of one round share a call.
template <typename Chunk>
std::vector<float> run_chunks(Backend& backend, Scene s, const Chunk& chunk) {
  std::vector<float> out(s.q.size());
  std::vector<std::int32_t> done(s.lengths.size());
  for (;;) {
    std::vector<Span> spans;
    for (std::size_t i = 0; i < s.lengths.size(); ++i) {
      const std::int32_t end = std::min<std::int32_t>(s.lengths[i], done[i] + chunk(i, done[i]));
      if (end > done[i]) spans.push_back({i, done[i], end});
      done[i] = end;
    }
    if (spans.empty()) return out;
    run_spans(backend, s, spans, out);
  }
}

inline std::vector<float> run_whole(Backend& backend, const Scene& s) {
  return run_chunks(backend, s, [](std::size_t, std::int32_t) { return 1 << 20; });
}

struct Shape {
  int kv_heads;
  int group;
  int head_dim;
};
inline constexpr Shape kShapes[] = {
    {3, 1, 16}, {1, 3, 64}, {2, 4, 80}, {1, 8, 128}, {2, 2, 8}, {1, 5, 34}, {2, 7, 64}, {1, 1, 2}
};

}  // namespace artery::tensor::testing
