#include <algorithm>
#include <array>

#include "tensor/ops/test_support.h"

namespace artery::tensor {
namespace {

using namespace artery::tensor::testing;

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

  std::int64_t q_cols() const {
    return std::int64_t{geometry.kv_heads} * group * geometry.head_dim;
  }
  std::int64_t kv_cols() const { return std::int64_t{geometry.kv_heads} * geometry.head_dim; }
};

Scene make_scene(KvGeometry geometry, int group, std::vector<std::int32_t> lengths, Rng& rng) {
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

void run_spans(
    Backend& backend, Scene& s, const std::vector<Span>& spans, std::vector<float>& out
) {
  std::vector<Position> positions;
  std::vector<std::int32_t> offsets = {0};
  std::vector<PageId> table;
  std::vector<float> q, k, v;
  std::vector<std::int64_t> rows;
  for (const Span& span : spans) {
    std::int64_t start = 0;
    for (std::size_t i = 0; i < span.sequence; ++i) start += s.lengths[i];
    for (std::int32_t p = span.begin; p < span.end; ++p) {
      positions.push_back(p);
      rows.push_back(start + p);
      const auto copy = [&](const std::vector<float>& from, std::int64_t cols, auto& to) {
        to.insert(
            to.end(), from.begin() + (start + p) * cols, from.begin() + (start + p + 1) * cols
        );
      };
      copy(s.q, s.q_cols(), q);
      copy(s.k, s.kv_cols(), k);
      copy(s.v, s.kv_cols(), v);
    }
    offsets.push_back(static_cast<std::int32_t>(positions.size()));
    const auto first = s.table.begin() + static_cast<std::int64_t>(span.sequence) * s.pages_max;
    table.insert(table.end(), first, first + s.pages_max);
  }
  const AttentionBatch batch = {positions, offsets, table, s.pages_max};
  const KvPages pages = {s.memory.data(), s.geometry};
  const int layer = s.geometry.layers - 1;
  const auto n = static_cast<std::int64_t>(rows.size());
  Rows result = backend.alloc(n, s.q_cols());
  backend.kv_write(
      load_rows(backend, k, n, s.kv_cols()),
      load_rows(backend, v, n, s.kv_cols()),
      pages,
      layer,
      batch
  );
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.geometry.head_dim));
  backend.attention(load_rows(backend, q, n, s.q_cols()), pages, layer, batch, scale, result);
  const auto values = store_rows(backend, result);
  for (std::int64_t r = 0; r < n; ++r) {
    std::copy_n(
        values.begin() + r * s.q_cols(),
        s.q_cols(),
        out.begin() + rows[static_cast<std::size_t>(r)] * s.q_cols()
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

std::vector<float> run_whole(Backend& backend, const Scene& s) {
  return run_chunks(backend, s, [](std::size_t, std::int32_t) { return 1 << 20; });
}

// Averages of v by weights that sum to 1: an error of the weights of a few float32 steps of the
// scores (which reach about 30 here) and the rounding of sums, in units of the largest |v|.
std::vector<double> bounds(const Scene& s) {
  float top = 0;
  for (const float v : s.v) top = std::max(top, std::fabs(v));
  const double step = 0x1p-24 * (s.geometry.head_dim + 300);
  return std::vector<double>(s.q.size(), step * 4 * static_cast<double>(top));
}

struct Shape {
  int kv_heads;
  int group;
  int head_dim;
};
constexpr Shape kShapes[] = {
    {3, 1, 16}, {1, 3, 64}, {2, 4, 80}, {1, 8, 128}, {2, 2, 8}, {1, 5, 34}, {2, 7, 64}, {1, 1, 2}
};

TEST(Attention, IsCloseToReference) {
  Rng rng(21);
  ComputePool pool(2);
  auto reference = make_reference_backend(pool);
  for (const Shape& shape : kShapes) {
    for (const KvType type : {KvType::kF32, KvType::kF16}) {
      const Scene s =
          make_scene({2, shape.kv_heads, shape.head_dim, type}, shape.group, {131, 17, 1}, rng);
      const auto expected = run_whole(*reference, s);
      for (const Isa isa : isas()) {
        auto fast = make_fast_backend(pool, isa);
        EXPECT_TRUE(within(run_whole(*fast, s), expected, bounds(s)))
            << name(isa) << " head_dim " << shape.head_dim << " group " << shape.group;
      }
    }
  }
}

TEST(Attention, ReferenceKeepsFloat64) {
  Rng rng(22);
  ComputePool pool(1);
  auto reference = make_reference_backend(pool);
  Rng same = rng;
  const Scene wide = make_scene({1, 1, 16, KvType::kF64}, 2, {40}, rng);
  const Scene narrow = make_scene({1, 1, 16, KvType::kF32}, 2, {40}, same);
  EXPECT_TRUE(within(run_whole(*reference, wide), run_whole(*reference, narrow), bounds(wide)));
}

TEST(Attention, AllInstructionSetsGiveEqualBits) {
  SKIP_UNLESS_ALL_ISAS();
  Rng rng(23);
  ComputePool pool(1);
  for (const Shape& shape : kShapes) {
    for (const KvType type : {KvType::kF32, KvType::kF16}) {
      const Scene s =
          make_scene({1, shape.kv_heads, shape.head_dim, type}, shape.group, {70, 33}, rng);
      const auto scalar = run_whole(*make_fast_backend(pool, Isa::kScalar), s);
      for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
        EXPECT_TRUE(same_bits(run_whole(*make_fast_backend(pool, isa), s), scalar))
            << name(isa) << " head_dim " << shape.head_dim << " group " << shape.group;
      }
    }
  }
}

// Position by position, each sequence alone on one thread, against random chunks of all sequences
// together on 1 to 3 threads with other page numbers.
TEST(Attention, RowsDoNotDependOnChunksBatchPagesOrThreads) {
  for (const Shape& shape : kShapes) {
    for (const Isa isa : isas()) {
      if (isa == Isa::kScalar && isas().size() > 1) continue;
      const KvGeometry geometry = {1, shape.kv_heads, shape.head_dim, KvType::kF16};
      const std::vector<std::int32_t> lengths = {300, 65, 64, 16, 1, 211};
      ComputePool one(1);
      auto single = make_fast_backend(one, isa);
      Rng rng(24);
      const Scene s = make_scene(geometry, shape.group, lengths, rng);
      std::vector<float> alone(s.q.size());
      Scene memory = s;
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        for (std::int32_t p = 0; p < lengths[i]; ++p)
          run_spans(*single, memory, {{i, p, p + 1}}, alone);
      }
      for (int threads = 1; threads <= 3; ++threads) {
        ComputePool pool(threads);
        auto backend = make_fast_backend(pool, isa);
        Rng again(24);
        Scene other = make_scene(geometry, shape.group, lengths, again);
        std::reverse(other.table.begin(), other.table.end());
        // Reversed, the table's rows belong to other sequences: give each its own pages back.
        for (std::size_t i = 0; i < lengths.size(); ++i) {
          std::vector<PageId> own;
          const std::size_t at = i * static_cast<std::size_t>(s.pages_max);
          for (std::size_t p = 0; p < static_cast<std::size_t>(s.pages_max); ++p) {
            if (s.table[at + p] != kNoPage) own.push_back(s.table[at + p]);
          }
          std::reverse(own.begin(), own.end());
          for (std::size_t p = 0; p < static_cast<std::size_t>(s.pages_max); ++p) {
            other.table[at + p] = p < own.size() ? own[p] : kNoPage;
          }
        }
        const auto chunked = run_chunks(*backend, other, [&](std::size_t, std::int32_t) {
          return static_cast<std::int32_t>(
              pick(rng, 2) == 0 ? 1 + pick(rng, 5) : 1 + pick(rng, 120)
          );
        });
        EXPECT_TRUE(same_bits(chunked, alone))
            << name(isa) << " head_dim " << shape.head_dim << " threads " << threads;
        EXPECT_TRUE(same_bits(run_whole(*backend, s), alone))
            << name(isa) << " head_dim " << shape.head_dim << " whole, threads " << threads;
      }
    }
  }
}

// Scores of 1e30 and of -infinity on a visible position, and all-equal scores.
TEST(Attention, HostileValues) {
  Rng rng(25);
  ComputePool pool(1);
  Scene s = make_scene({1, 1, 16, KvType::kF32}, 1, {20}, rng);
  for (int d = 0; d < 16; ++d) {
    s.k[static_cast<std::size_t>(3 * 16 + d)] = 1e30f;
    s.k[static_cast<std::size_t>(9 * 16 + d)] = 1e-41f;
    s.v[static_cast<std::size_t>(10 * 16 + d)] = std::nanf("");
    s.q[static_cast<std::size_t>(12 * 16 + d)] = 0.0f;
  }
  const auto scalar = run_whole(*make_fast_backend(pool, Isa::kScalar), s);
  for (const Isa isa : isas()) {
    EXPECT_TRUE(same_bits(run_whole(*make_fast_backend(pool, isa), s), scalar)) << name(isa);
  }
  for (int i = 0; i < 10 * 16; ++i)
    EXPECT_FALSE(std::isnan(scalar[static_cast<std::size_t>(i)])) << i;
  EXPECT_TRUE(std::isnan(scalar[10 * 16]));
}

TEST(Attention, EmptyBatchIsNoWork) {
  ComputePool pool(1);
  for (auto& backend : {make_fast_backend(pool, best_isa()), make_reference_backend(pool)}) {
    const std::array<std::int32_t, 1> offsets = {0};
    const AttentionBatch batch = {{}, offsets, {}, 0};
    Rows none = backend->alloc(0, 16);
    backend->kv_write(none, none, {}, 0, batch);
    backend->attention(none, {}, 0, batch, 1.0f, none);
  }
}

}  // namespace
}  // namespace artery::tensor
