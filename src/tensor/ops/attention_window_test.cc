// Windows, sinks and entries that are gone, of every KV type: the documented order in plain loops
// (integers: attention_int16_test.cc), what may not matter to a row, and what is left alone.

#include <array>
#include <span>

#include "base/hash.h"
#include "tensor/ops/attention_scene.h"
#include "tensor/ops/kernel_table.h"

namespace artery::tensor {
namespace {

using namespace artery::tensor::testing;

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kI16, KvType::kI16V8};
// Around the borders of pages (16) and blocks (64).
constexpr int kWindows[] = {1, 2, 15, 16, 17, 63, 64, 65, 100, 127, 128, 129, 1000};

// The kernels' own exponential, which elementwise_test.cc judges.
float exp_of(float x) {
  ops::scalar::kTable.exp(&x, 1, &x);
  return x;
}

float tree(std::array<float, 16> a) {
  for (std::size_t w = 8; w > 0; w /= 2) {
    for (std::size_t i = 0; i < w; ++i) a[i] += a[i + w];
  }
  return a[0];
}

// One head's K and V, as stored.
struct History {
  int dim;
  std::vector<float> k, v;
};

struct Fold {
  float top = -HUGE_VALF;
  float sum = 0;
  std::vector<float> o;
};

void fold_block(const float* q, const History& h, float scale, int begin, int end, Fold& fold) {
  const auto dim = static_cast<std::size_t>(h.dim);
  std::vector<float> s;
  for (int j = begin; j < end; ++j) {
    float dot = 0;
    for (std::size_t d = 0; d < dim; ++d) {
      dot = std::fma(q[d], h.k[static_cast<std::size_t>(j) * dim + d], dot);
    }
    s.push_back(dot * scale);
  }
  const float m = *std::max_element(s.begin(), s.end());
  std::array<float, 16> l = {};
  std::vector<float> o(dim);
  for (int j = begin; j < end; ++j) {
    const float e = exp_of(s[static_cast<std::size_t>(j - begin)] - m);
    l[static_cast<std::size_t>(j % 16)] += e;
    for (std::size_t d = 0; d < dim; ++d) {
      o[d] = std::fma(e, h.v[static_cast<std::size_t>(j) * dim + d], o[d]);
    }
  }
  const float top = std::max(fold.top, m);
  const float a = exp_of(fold.top - top);
  const float c = exp_of(m - top);
  fold.sum = std::fma(fold.sum, a, tree(l) * c);
  for (std::size_t d = 0; d < dim; ++d) fold.o[d] = std::fma(fold.o[d], a, o[d] * c);
  fold.top = top;
}

std::vector<float> plain_row(
    const float* q, const History& h, float scale, int position, int window, const float* sink
) {
  const int from = window > 0 ? std::max(0, position - window + 1) : 0;
  Fold fold;
  fold.o.resize(static_cast<std::size_t>(h.dim));
  for (int begin = from; begin <= position;) {
    const int end = std::min(begin / 64 * 64 + 64, position + 1);
    fold_block(q, h, scale, begin, end, fold);
    begin = end;
  }
  if (sink != nullptr) {
    const float top = std::max(fold.top, *sink);
    const float a = exp_of(fold.top - top);
    fold.sum = std::fma(fold.sum, a, exp_of(*sink - top));
    for (float& x : fold.o) x *= a;
  }
  for (float& x : fold.o) x /= fold.sum;
  return fold.o;
}

// All rows of a scene of floats, as run_whole gives them.
std::vector<float> plain(const Scene& s) {
  const auto stored = [&](float x) {
    return s.geometry.type == KvType::kF16 ? quant::f16_to_f32(quant::f32_to_f16(x)) : x;
  };
  const int dim = s.geometry.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  std::vector<float> out(s.q.size());
  std::int64_t start = 0;
  for (const std::int32_t length : s.lengths) {
    for (int h = 0; h < s.geometry.kv_heads; ++h) {
      History history = {dim, {}, {}};
      for (std::int32_t p = 0; p < length; ++p) {
        for (int d = 0; d < dim; ++d) {
          const auto at = static_cast<std::size_t>((start + p) * s.kv_cols() + h * dim + d);
          history.k.push_back(stored(s.k[at]));
          history.v.push_back(stored(s.v[at]));
        }
        for (int g = 0; g < s.group; ++g) {
          const int head = h * s.group + g;
          const std::int64_t to = (start + p) * s.q_cols() + std::int64_t{head} * dim;
          const float* sink = s.sinks.empty() ? nullptr : &s.sinks[static_cast<std::size_t>(head)];
          const auto row = plain_row(s.q.data() + to, history, scale, p, s.window, sink);
          std::copy(row.begin(), row.end(), out.begin() + to);
        }
      }
    }
    start += length;
  }
  return out;
}

Scene window_scene(
    KvType type, const Shape& shape, std::vector<std::int32_t> lengths, int window, Rng& rng
) {
  Scene s =
      make_scene({1, shape.kv_heads, shape.head_dim, type}, shape.group, std::move(lengths), rng);
  s.window = window;
  return s;
}
void add_sinks(Scene& s, Rng& rng) {
  s.sinks = activations(rng, std::int64_t{s.geometry.kv_heads} * s.group);
}

TEST(AttentionWindow, EqualsPlainLoops) {
  ComputePool pool(2);
  for (const int window : kWindows) {
    for (const KvType type : {KvType::kF32, KvType::kF16}) {
      Rng rng(81);
      const Shape shape = type == KvType::kF32 ? Shape{2, 3, 18} : Shape{1, 2, 80};
      Scene s = window_scene(type, shape, {150, 66, 1}, window, rng);
      if (window % 2 == 1) add_sinks(s, rng);
      const auto expected = plain(s);
      for (const Isa isa : isas()) {
        EXPECT_TRUE(same_bits(run_whole(*make_fast_backend(pool, isa), s), expected))
            << name(isa) << " window " << window << " head_dim " << shape.head_dim;
      }
    }
  }
}

TEST(AttentionWindow, IsCloseToReference) {
  ComputePool pool(2);
  auto reference = make_reference_backend(pool);
  for (const KvType type : kTypes) {
    for (const int window : {0, 1, 16, 63, 65, 100}) {
      Rng rng(82);
      Scene s = window_scene(type, {2, 2, 64}, {131, 17}, window, rng);
      add_sinks(s, rng);
      s.sinks[1] = 8.0f;
      float top = 0;
      for (const float v : s.v) top = std::max(top, std::fabs(v));
      // As in attention_test.cc: the weights' rounding.
      double step = 0x1p-24 * (64 + 300);
      if (type == KvType::kI16V8) step = 8 * 0.5 / 255 / 2;
      if (type == KvType::kI16) step = 64 * 0.5 / 32767 / 2;
      const std::vector<double> bounds(s.q.size(), step * 4 * static_cast<double>(top));
      const auto expected = run_whole(*reference, s);
      for (const Isa isa : isas()) {
        EXPECT_TRUE(within(run_whole(*make_fast_backend(pool, isa), s), expected, bounds))
            << name(isa) << " window " << window << " " << name(type);
      }
    }
  }
}

// The reference against itself: a window is a sequence that starts later, and a sink is one more
// position with a value of zero.
TEST(AttentionWindow, ReferenceMeansWhatItSays) {
  ComputePool pool(1);
  auto reference = make_reference_backend(pool);
  Rng rng(83);
  Scene s = window_scene(KvType::kF64, {1, 2, 16}, {40}, 0, rng);
  // Position 0: the sink's logit for every q (which gets a constant), and no value.
  for (std::size_t i = 0; i < s.q.size(); i += 16) s.q[i] = 4.0f;  // times 1 / sqrt(16)
  std::fill_n(s.k.begin(), 16, 0.0f);
  std::fill_n(s.v.begin(), 16, 0.0f);
  s.k[0] = 1.25f;
  const auto with_position = run_whole(*reference, s);
  Scene sunk = window_scene(KvType::kF64, {1, 2, 16}, {39}, 0, rng);
  sunk.q.assign(s.q.begin() + s.q_cols(), s.q.end());
  sunk.k.assign(s.k.begin() + 16, s.k.end());
  sunk.v.assign(s.v.begin() + 16, s.v.end());
  sunk.sinks = {1.25f, 1.25f};
  const auto with_sink = run_whole(*reference, sunk);
  const std::vector<float> rest(with_position.begin() + s.q_cols(), with_position.end());
  EXPECT_TRUE(within(with_sink, rest, std::vector<double>(rest.size(), 1e-6)));

  sunk.window = 7;
  const auto windowed = run_whole(*reference, sunk);
  Scene later = sunk;  // positions 20 .. 26 alone
  later.window = 0;
  later.lengths = {7};
  later.q.assign(sunk.q.begin() + 20 * s.q_cols(), sunk.q.begin() + 27 * s.q_cols());
  later.k.assign(sunk.k.begin() + 20 * 16, sunk.k.begin() + 27 * 16);
  later.v.assign(sunk.v.begin() + 20 * 16, sunk.v.begin() + 27 * 16);
  const auto alone = run_whole(*reference, later);
  const std::vector<float> at_26(
      windowed.begin() + 26 * s.q_cols(), windowed.begin() + 27 * s.q_cols()
  );
  EXPECT_TRUE(same_bits({alone.end() - s.q_cols(), alone.end()}, at_26));
}

// Position by position on one thread with nothing gone, against random chunks of all sequences on 1
// to 4 threads with what is behind the windows spoiled and its pages gone, at once or later.
TEST(AttentionWindow, RowsDependOnTheirWindowsOnly) {
  for (const KvType type : kTypes) {
    for (const int window : {1, 17, 128, 600}) {
      const Shape shape = window == 128 ? Shape{2, 4, 64} : Shape{1, 2, 34};
      const std::vector<std::int32_t> lengths = {window == 600 ? 900 : 250, 70, 1};
      Rng rng(84);
      Scene s = window_scene(type, shape, lengths, window, rng);
      if (window != 17) add_sinks(s, rng);
      ComputePool one(1);
      auto single = make_fast_backend(one, best_isa());
      const auto alone = run_chunks(*single, s, [](std::size_t, std::int32_t) { return 1; });
      EXPECT_TRUE(same_bits(run_whole(*single, s), alone)) << window;
      for (int threads = 1; threads <= 4; ++threads) {
        ComputePool pool(threads);
        const auto all = isas();
        const Isa isa = all[all.size() - 1 - static_cast<std::size_t>(threads) % 2 % all.size()];
        auto backend = make_fast_backend(pool, isa);
        Scene spoiled = s;
        spoiled.held = threads == 1 ? 0 : static_cast<int>(pick(rng, 40));
        spoiled.spoil = threads % 2 == 0 ? std::nanf("") : 1e30f;
        const auto chunked = run_chunks(*backend, spoiled, [&](std::size_t, std::int32_t begin) {
          // Far into a sequence row by row, where blocks are computed apart.
          const bool few = pick(rng, 2) == 0 || begin > 800;
          return static_cast<std::int32_t>(1 + pick(rng, few ? 3 : 120));
        });
        EXPECT_TRUE(same_bits(chunked, alone))
            << name(isa) << " window " << window << " threads " << threads << " " << name(type);
      }
    }
  }
}

// Only some of a window is there: a row sees from `first` on, as with a window that starts there.
TEST(AttentionWindow, FirstCutsTheWindow) {
  ComputePool pool(2);
  for (const KvType type : kTypes) {
    for (const Position first : {1, 15, 16, 50, 64, 70, 79}) {
      Rng rng(85);
      Scene s = window_scene(type, {1, 3, 24}, {200}, 0, rng);
      add_sinks(s, rng);
      for (const Isa isa : isas()) {
        auto backend = make_fast_backend(pool, isa);
        Scene cut = s;
        std::vector<float> expected(s.q.size());
        std::vector<float> got(s.q.size());
        run_spans(*backend, s, {{0, 0, 200}}, expected);
        for (const Position p : {80, 81, 127, 128, 150, 199}) {
          s.window = p - first + 1;
          run_spans(*backend, s, {{0, p, p + 1}}, expected);
        }
        for (const int window : {0, 1000}) {
          Call c = call_of(cut, {{0, first, 200}});
          std::fill_n(c.table.begin(), first / kPageTokens, kNoPage);
          c.first = {first};
          write_call(*backend, cut, c, c.batch(cut));
          Rows out = backend->alloc(200 - first, s.q_cols());
          const float scale = 1.0f / std::sqrt(24.0f);
          backend->attention(
              load_rows(*backend, c.q, 200 - first, s.q_cols()),
              {cut.memory.data(), cut.geometry},
              0,
              c.batch(cut),
              {.scale = scale, .window = window, .sinks = s.sinks},
              out
          );
          const auto rows = store_rows(*backend, out);
          std::copy(rows.begin(), rows.end(), got.begin() + first * s.q_cols());
          backend->reset();
          for (const Position p : {80, 81, 127, 128, 150, 199}) {
            const auto row_of = [&](const std::vector<float>& x) {
              return std::vector<float>(
                  x.begin() + p * s.q_cols(), x.begin() + (p + 1) * s.q_cols()
              );
            };
            EXPECT_TRUE(same_bits(row_of(got), row_of(expected)))
                << name(isa) << " " << name(type) << " first " << first << " row " << p;
          }
        }
      }
    }
  }
}

// Rows that run again leave earlier entries as they are, to the byte, also where those have no page
// any more.
TEST(AttentionWindow, WriteFromLeavesEarlierEntries) {
  ComputePool pool(2);
  for (const KvType type : kTypes) {
    for (const Position from : {0, 1, 15, 16, 33, 47, 60}) {
      Rng rng(86);
      const Scene s = window_scene(type, {2, 1, 34}, {48, 20}, 0, rng);
      for (auto& backend : {make_fast_backend(pool, best_isa()), make_reference_backend(pool)}) {
        Scene once = s;
        std::vector<Span> spans;
        if (from < 48) spans.push_back({0, from, 48});
        spans.push_back({1, 5, 20});
        Call c = call_of(once, spans);
        write_call(*backend, once, c, c.batch(once));
        Scene again = s;
        c = call_of(again, {{0, 0, 48}, {1, 0, 20}});
        AttentionBatch batch = c.batch(again);
        const std::vector<Position> write_from = {from, 5};
        batch.write_from = write_from;
        if (from < 48) std::fill_n(c.table.begin(), from / kPageTokens, kNoPage);
        write_call(*backend, again, c, batch);
        EXPECT_EQ(once.memory, again.memory) << name(type) << " from " << from;
        backend->reset();
      }
    }
  }
}

TEST(AttentionWindow, ExtremeSinks) {
  ComputePool pool(1);
  for (const KvType type : kTypes) {
    Rng rng(87);
    Scene s = window_scene(type, {1, 4, 16}, {90}, 70, rng);
    for (const Isa isa : isas()) {
      auto backend = make_fast_backend(pool, isa);
      s.sinks = {};
      const auto without = run_whole(*backend, s);
      s.sinks = {-HUGE_VALF, -1e30f, 1e4f, std::nanf("")};
      const auto with = run_whole(*backend, s);
      for (std::size_t i = 0; i < with.size(); ++i) {
        const std::size_t head = i / 16 % 4;
        if (head < 2) {
          ASSERT_EQ(with[i], without[i]) << name(isa) << " " << name(type) << " " << i;
        } else if (head == 2) {
          ASSERT_LT(std::fabs(with[i]), 1e-12f) << name(isa) << " " << name(type) << " " << i;
        } else {
          ASSERT_TRUE(std::isnan(with[i])) << name(isa) << " " << name(type) << " " << i;
        }
      }
    }
  }
}

// The bits themselves, as in golden_bits_test.cc: every compiler and instruction set gives these.
TEST(AttentionWindow, GoldenBits) {
  const char* const digests[] = {
      "9b3555af196ba7ac", "f797225da0bf714e", "9bddc86476cdbc22", "9c4ec092cb6035aa"
  };
  ComputePool pool(2);
  for (std::size_t i = 0; i < 4; ++i) {
    Rng rng(88);
    Scene s = window_scene(kTypes[i], {2, 2, 24}, {200, 30}, 70, rng);
    add_sinks(s, rng);
    s.held = 3;
    for (const Isa isa : isas()) {
      const auto values =
          run_chunks(*make_fast_backend(pool, isa), s, [](std::size_t, auto) { return 50; });
      EXPECT_EQ(hex(sha256(std::as_bytes(std::span(values)))).substr(0, 16), digests[i])
          << name(isa) << " " << name(kTypes[i]);
    }
  }
}

TEST(AttentionWindow, WrongShapesEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ComputePool pool(1);
  Rng rng(89);
  Scene s = window_scene(KvType::kF32, {1, 2, 16}, {20}, 5, rng);
  auto backend = make_fast_backend(pool, best_isa());
  auto reference = make_reference_backend(pool);
  for (Backend* b : {backend.get(), reference.get()}) {
    std::vector<float> out(s.q.size());
    s.sinks = {1.0f};
    EXPECT_DEATH(run_whole(*b, s), "1 sinks");
    s.sinks = {};
    s.window = -1;
    EXPECT_DEATH(run_whole(*b, s), "window -1");
    s.window = 5;
    Call c = call_of(s, {{0, 3, 20}});
    c.first = {4};
    EXPECT_DEATH(write_call(*b, s, c, c.batch(s)), "entries from 4, rows from 3");
  }
}

}  // namespace
}  // namespace artery::tensor
