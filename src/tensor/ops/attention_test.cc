#include <array>

#include "tensor/ops/attention_scene.h"

namespace artery::tensor {
namespace {

using namespace artery::tensor::testing;

// Averages of v by weights that sum to 1: an error of the weights of a few float32 steps of the
// scores (which reach about 30 here) and the rounding of sums, in units of the largest |v|.
std::vector<double> bounds(const Scene& s) {
  float top = 0;
  for (const float v : s.v) top = std::max(top, std::fabs(v));
  double step = 0x1p-24 * (s.geometry.head_dim + 300);
  // Each of 64 weights is rounded to 1 / 32767 of their sum, or to 1 / 255 of the largest (the
  // errors of 64 taken as 8, as they have no common sign).
  if (s.geometry.type == KvType::kI16V8) step = 8 * 0.5 / 255 / 2;
  if (s.geometry.type == KvType::kI16) step = 64 * 0.5 / 32767 / 2;
  return std::vector<double>(s.q.size(), step * 4 * static_cast<double>(top));
}

TEST(Attention, IsCloseToReference) {
  Rng rng(21);
  ComputePool pool(2);
  auto reference = make_reference_backend(pool);
  for (const Shape& shape : kShapes) {
    for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kI16, KvType::kI16V8}) {
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
    for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kI16, KvType::kI16V8}) {
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
// together on 1 to 4 threads with other page numbers.
TEST(Attention, RowsDoNotDependOnChunksBatchPagesOrThreads) {
  for (const Shape& shape : kShapes) {
    for (const Isa isa : isas()) {
      if (isa == Isa::kScalar && isas().size() > 1) continue;
      for (const KvType type : {KvType::kF16, KvType::kI16, KvType::kI16V8}) {
        const KvGeometry geometry = {1, shape.kv_heads, shape.head_dim, type};
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
        for (int threads = 1; threads <= 4; ++threads) {
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
}

// Scores of 1e30 and of -infinity on a visible position, and all-equal scores.
TEST(Attention, HostileValues) {
  for (const KvType type : {KvType::kF32, KvType::kI16, KvType::kI16V8}) {
    Rng rng(25);
    ComputePool pool(1);
    Scene s = make_scene({1, 1, 16, type}, 1, {20}, rng);
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
}

TEST(Attention, EmptyBatchIsNoWork) {
  ComputePool pool(1);
  for (auto& backend : {make_fast_backend(pool, best_isa()), make_reference_backend(pool)}) {
    const std::array<std::int32_t, 1> offsets = {0};
    const AttentionBatch batch = {{}, offsets, {}, 0};
    Rows none = backend->alloc(0, 16);
    backend->kv_write(none, none, {}, 0, batch);
    backend->attention(none, {}, 0, batch, {}, none);
  }
}

}  // namespace
}  // namespace artery::tensor
