// Attention over integers: the documented order in plain loops, to the bit; what parts of a
// row's work may be done apart; what is not finite; and how exact it is.

#include <array>
#include <span>

#include "base/hash.h"
#include "tensor/ops/attention_scene.h"

namespace artery::tensor {
namespace {

using namespace artery::tensor::testing;

// The twin: one query vector, plain arrays, no vectors of lanes, no pages.
struct Words {
  std::vector<std::int32_t> x;
  float step = 0;
};

float tree_sum(std::array<float, 16> a) {
  for (std::size_t w = 8; w > 0; w /= 2) {
    for (std::size_t i = 0; i < w; ++i) a[i] += a[i + w];
  }
  return a[0];
}

Words words_of(const float* x, int n, float factor, float most, bool by_norm) {
  Words out;
  std::vector<float> y;
  float top = 0;
  bool finite = true;
  for (int d = 0; d < n; ++d) {
    y.push_back(x[d] * factor);
    finite = finite && std::isfinite(y.back());
    top = std::max(top, std::fabs(y.back()));
  }
  out.x.assign(static_cast<std::size_t>(n), 0);
  if (!finite || top < 1e-26f) {
    out.step = finite ? 1e-30f : std::nanf("");
    return out;
  }
  out.step = top * (1.0f / most);
  if (by_norm) {
    std::array<float, 16> squares = {};
    for (int d = 0; d < n; ++d) {
      const float t = y[static_cast<std::size_t>(d)] * (1.0f / top);
      float& lane = squares[static_cast<std::size_t>(d) % 16];
      lane = std::fma(t, t, lane);
    }
    const float norm = std::sqrt(tree_sum(squares)) * (1.0f / 46000.0f);
    out.step = top * std::max(norm, 1.0f / most);
  }
  for (int d = 0; d < n; ++d) {
    const float rounded = std::fma(y[static_cast<std::size_t>(d)], 1.0f / out.step, 12582912.0f);
    out.x[static_cast<std::size_t>(d)] = static_cast<std::int32_t>(rounded - 12582912.0f);
  }
  return out;
}

float exp2_of(float x) {
  if (std::isnan(x)) return x;
  x = std::max(x, -60.0f);
  const float n = std::nearbyint(x);
  const float r = x - n;
  float p = 0x1.3a02ccp-7f;
  for (const float c : {0x1.c9fc46p-5f, 0x1.ec0378p-3f, 0x1.62e12cp-1f, 1.0f})
    p = std::fma(p, r, c);
  return std::ldexp(p, static_cast<int>(n));
}

struct Partial {
  float m = 0;
  float l = 0;
  float unit = 0;
  std::vector<std::int32_t> o;
};

Partial block_of(
    const Words& q,
    const std::vector<Words>& k,
    const std::vector<Words>& v,
    std::size_t first,
    std::size_t count,
    bool bytes
) {
  std::vector<float> f(count);
  for (std::size_t j = 0; j < count; ++j) {
    std::int64_t dot = 0;
    for (std::size_t d = 0; d < q.x.size(); ++d) dot += std::int64_t{q.x[d]} * k[first + j].x[d];
    EXPECT_EQ(dot, static_cast<std::int32_t>(dot)) << "overflow";
    f[j] = static_cast<float>(dot) * k[first + j].step;
  }
  Partial out;
  out.m = *std::max_element(f.begin(), f.end()) * q.step;
  std::array<float, 16> l = {};
  std::array<float, 16> s = {};
  std::vector<float> w(count);
  for (std::size_t j = 0; j < count; ++j) {
    const float e = exp2_of(std::fma(f[j], q.step, -out.m));
    w[j] = e * v[first + j].step;
    l[(first + j) % 16] += e;  // pages start at multiples of 16
    s[(first + j) % 16] += w[j];
  }
  out.l = tree_sum(l);
  const float most = bytes ? 255.0f : 32767.0f;
  const float sum = bytes ? *std::max_element(w.begin(), w.end()) : tree_sum(s);
  out.unit = sum * (1.0f / most);
  for (std::size_t d = 0; d < q.x.size(); ++d) {
    std::int64_t dot = 0;
    for (std::size_t j = 0; j < count; ++j) {
      const float weight = std::fma(w[j], most / sum, 12582912.0f) - 12582912.0f;
      dot += static_cast<std::int64_t>(weight) * v[first + j].x[d];
    }
    EXPECT_EQ(dot, static_cast<std::int32_t>(dot)) << "overflow";
    out.o.push_back(static_cast<std::int32_t>(dot));
  }
  return out;
}

// Over positions `from` and later; `sink`, times log2 e, or null.
std::vector<float> plain_row(
    const Words& q,
    const std::vector<Words>& k,
    const std::vector<Words>& v,
    bool bytes,
    std::size_t from = 0,
    const float* sink = nullptr
) {
  float top = -HUGE_VALF;
  float sum = 0;
  std::vector<float> o(q.x.size());
  for (std::size_t first = from; first < k.size(); first = first / 64 * 64 + 64) {
    const std::size_t count = std::min(first / 64 * 64 + 64, k.size()) - first;
    const Partial block = block_of(q, k, v, first, count, bytes);
    const float now = std::max(top, block.m);
    const float a = exp2_of(top - now);
    const float c = exp2_of(block.m - now);
    sum = std::fma(sum, a, block.l * c);
    for (std::size_t d = 0; d < o.size(); ++d) {
      o[d] = std::fma(static_cast<float>(block.o[d]), block.unit * c, o[d] * a);
    }
    top = now;
  }
  if (sink != nullptr) {
    const float now = std::max(top, *sink);
    sum = std::fma(sum, exp2_of(top - now), exp2_of(*sink - now));
    for (float& x : o) x *= exp2_of(top - now);
  }
  for (float& x : o) x /= sum;
  return o;
}

// All rows of all sequences, as run_whole gives them.
std::vector<float> plain(const Scene& s) {
  const int dim = s.geometry.head_dim;
  const bool bytes = s.geometry.type == KvType::kI16V8;
  const float v_most = bytes ? 127.0f : 32767.0f;
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim)) * 0x1.715476p+0f;
  std::vector<float> out(s.q.size());
  std::int64_t start = 0;
  for (const std::int32_t length : s.lengths) {
    for (int h = 0; h < s.geometry.kv_heads; ++h) {
      std::vector<Words> k;
      std::vector<Words> v;
      for (std::int64_t r = start; r < start + length; ++r) {
        const std::int64_t at = r * s.kv_cols() + std::int64_t{h} * dim;
        k.push_back(words_of(s.k.data() + at, dim, 1, 32767.0f, true));
        v.push_back(words_of(s.v.data() + at, dim, 1, v_most, false));
        for (int g = 0; g < s.group; ++g) {
          const std::int64_t to = r * s.q_cols() + std::int64_t{h * s.group + g} * dim;
          const auto q = words_of(s.q.data() + to, dim, scale, 32767.0f, true);
          const std::int64_t seen = s.window > 0 ? s.window : std::ssize(k);
          const auto from =
              static_cast<std::size_t>(std::max<std::int64_t>(0, std::ssize(k) - seen));
          const auto head = static_cast<std::size_t>(h * s.group + g);
          const float sink = s.sinks.empty() ? 0 : s.sinks[head] * 0x1.715476p+0f;
          const auto row = plain_row(q, k, v, bytes, from, s.sinks.empty() ? nullptr : &sink);
          std::copy(row.begin(), row.end(), out.begin() + to);
        }
      }
    }
    start += length;
  }
  return out;
}

constexpr KvType kTypes[] = {KvType::kI16, KvType::kI16V8};

TEST(AttentionInt16, EqualsPlainLoops) {
  for (const KvType type : kTypes) {
    for (const Shape& shape : kShapes) {
      Rng rng(61);
      const KvGeometry geometry = {2, shape.kv_heads, shape.head_dim, type};
      const Scene s = make_scene(geometry, shape.group, {150, 64, 17, 1}, rng);
      const auto expected = plain(s);
      ComputePool pool(2);
      for (const Isa isa : isas()) {
        EXPECT_TRUE(same_bits(run_whole(*make_fast_backend(pool, isa), s), expected))
            << name(isa) << " head_dim " << shape.head_dim << " group " << shape.group;
      }
    }
  }
}

TEST(AttentionInt16, WindowsAndSinksEqualPlainLoops) {
  ComputePool pool(2);
  for (const KvType type : kTypes) {
    for (const int window : {1, 5, 16, 63, 64, 65, 100}) {
      for (const Shape& shape : {Shape{2, 3, 34}, Shape{1, 4, 16}}) {
        Rng rng(68);
        Scene s =
            make_scene({1, shape.kv_heads, shape.head_dim, type}, shape.group, {190, 66, 1}, rng);
        s.window = window;
        if (window % 2 == 1) {
          s.sinks = activations(rng, std::int64_t{shape.kv_heads} * shape.group);
        }
        const auto expected = plain(s);
        for (const Isa isa : isas()) {
          EXPECT_TRUE(same_bits(run_whole(*make_fast_backend(pool, isa), s), expected))
              << name(isa) << " window " << window << " head_dim " << shape.head_dim;
        }
      }
    }
  }
}

// The bits themselves, as in golden_bits_test.cc: every compiler and instruction set gives these.
TEST(AttentionInt16, GoldenBits) {
  for (const KvType type : kTypes) {
    Rng rng(67);
    const Scene s = make_scene({1, 2, 24, type}, 2, {200, 30}, rng);
    ComputePool pool(2);
    for (const Isa isa : isas()) {
      const auto values = run_whole(*make_fast_backend(pool, isa), s);
      EXPECT_EQ(
          hex(sha256(std::as_bytes(std::span(values)))).substr(0, 16),
          type == KvType::kI16 ? "3b2bcd5cc48cedcf" : "2754f44ba0585fec"
      ) << name(isa);
    }
  }
}

// The largest integers that the sums can meet: equal elements in q and k, one position that takes
// all, all positions alike, and v at its limit everywhere.
TEST(AttentionInt16, ExtremesDoNotOverflow) {
  for (const int dim : {16, 128, 256, 576}) {
    for (const float tilt : {0.0f, 1.0f, 50.0f}) {
      for (const KvType type : kTypes) {
        Rng rng(62);
        Scene s = make_scene({1, 1, dim, type}, 2, {130}, rng);
        for (std::size_t i = 0; i < s.q.size(); ++i) s.q[i] = 3.0f;
        for (std::size_t i = 0; i < s.k.size(); ++i) {
          s.k[i] = 1.0f + tilt * static_cast<float>(i / static_cast<std::size_t>(dim) % 7);
          s.v[i] = i % 2 == 0 ? 2.5f : -2.5f;
        }
        const auto expected = plain(s);
        ComputePool pool(1);
        for (const Isa isa : isas()) {
          EXPECT_TRUE(same_bits(run_whole(*make_fast_backend(pool, isa), s), expected))
              << name(isa) << " head_dim " << dim << " tilt " << tilt;
        }
        EXPECT_NEAR(expected[0], 2.5f, 1e-4f);
        EXPECT_NEAR(expected.back(), -2.5f, 2e-2f);
      }
    }
  }
}

// One long sequence beside short ones: its blocks are computed apart where threads would idle. Each
// row alone on one thread is the unsplit path.
TEST(AttentionInt16, BlocksComputedApartGiveEqualBits) {
  for (const KvType type : kTypes) {
    const Shape shape = type == KvType::kI16 ? Shape{1, 6, 128} : Shape{2, 3, 34};
    Rng rng(63);
    const KvGeometry geometry = {1, shape.kv_heads, shape.head_dim, type};
    Scene s = make_scene(geometry, shape.group, {2100, 70, 3}, rng);
    ComputePool one(1);
    auto whole = make_fast_backend(one, best_isa());
    std::vector<float> before(s.q.size());
    run_spans(*whole, s, {{0, 0, 2000}, {1, 0, 60}, {2, 0, 1}}, before);
    std::vector<float> expected = before;
    for (std::int32_t p = 2000; p < 2100; p += 20) run_spans(*whole, s, {{0, p, p + 20}}, expected);
    run_spans(*whole, s, {{1, 60, 70}}, expected);
    run_spans(*whole, s, {{2, 1, 3}}, expected);
    for (const Isa isa : isas()) {
      for (int threads = 2; threads <= 4; ++threads) {
        ComputePool pool(threads);
        auto backend = make_fast_backend(pool, isa);
        std::vector<float> got = before;
        // A decode step, a few rows at once, and the rest in a chunk.
        for (std::int32_t p = 2000; p < 2010; ++p) run_spans(*backend, s, {{0, p, p + 1}}, got);
        run_spans(*backend, s, {{0, 2010, 2015}, {1, 60, 61}, {2, 1, 3}}, got);
        run_spans(*backend, s, {{0, 2015, 2100}, {1, 61, 70}}, got);
        EXPECT_TRUE(same_bits(got, expected)) << name(isa) << " threads " << threads;
      }
    }
  }
}

// Infinity and NaN in q spoil their own vector; in k or v, the rows that see the position.
TEST(AttentionInt16, WhatIsNotFiniteStaysInItsRows) {
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    for (const int where : {0, 1, 2}) {
      for (const KvType type : kTypes) {
        Rng rng(64);
        Scene s = make_scene({1, 2, 24, type}, 2, {90, 20}, rng);
        ComputePool pool(2);
        const auto clean = run_whole(*make_fast_backend(pool, best_isa()), s);
        const std::int64_t row = 70;
        const std::int64_t width = where == 0 ? s.q_cols() : s.kv_cols();
        (where == 0   ? s.q
         : where == 1 ? s.k
                      : s.v)[static_cast<std::size_t>(row * width + 5)] = bad;
        for (const Isa isa : isas()) {
          const auto got = run_whole(*make_fast_backend(pool, isa), s);
          for (std::int64_t i = 0; i < std::ssize(got); ++i) {
            const std::int64_t r = i / s.q_cols();
            const std::int64_t head = i % s.q_cols() / 24;
            const bool spoiled =
                where == 0 ? r == row && head == 0 : r >= row && r < 90 && head < 2;
            const auto at = static_cast<std::size_t>(i);
            ASSERT_EQ(std::isnan(got[at]), spoiled) << name(isa) << " row " << r << " in " << where;
            if (!spoiled) {
              ASSERT_EQ(got[at], clean[at]) << name(isa) << " row " << r;
            }
          }
        }
      }
    }
  }
}

// Zeros, and values too small for a scale, are zeros.
TEST(AttentionInt16, ZerosAndTinyValues) {
  for (const float value : {0.0f, 1e-41f, 1e-30f}) {
    Rng rng(65);
    Scene s = make_scene({1, 1, 16, value == 0 ? KvType::kI16 : KvType::kI16V8}, 1, {70}, rng);
    for (float& x : s.v) x = value;
    for (std::size_t i = 0; i < 16 * 10; ++i) s.q[i] = s.k[i] = value;
    ComputePool pool(1);
    for (const Isa isa : isas()) {
      for (const float x : run_whole(*make_fast_backend(pool, isa), s)) ASSERT_EQ(x, 0.0f);
    }
  }
}

double rms_error(const std::vector<float>& a, const std::vector<float>& truth) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double e = static_cast<double>(a[i]) - static_cast<double>(truth[i]);
    sum += e * e;
  }
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// Against float64 KV: not behind float16 KV, also where a few channels of K are 40 times the rest
// and equal at all positions, as the biases of Qwen make them.
TEST(AttentionInt16, IsAsExactAsFloat16) {
  for (const float bias : {0.0f, 40.0f}) {
    ComputePool pool(2);
    std::array<double, 3> errors = {};
    for (const KvType type : {KvType::kF16, KvType::kI16, KvType::kI16V8}) {
      Rng rng(66);
      Scene s = make_scene({1, 2, 64, type}, 3, {300}, rng);
      for (float& x : s.q) x *= 0.5f;
      for (std::size_t i = 0; i < s.k.size(); ++i) {
        if (i % 64 < 3) s.k[i] += bias;
      }
      Scene exact = s;
      exact.geometry.type = KvType::kF64;
      exact.memory.resize(static_cast<std::size_t>(25 * exact.geometry.page_bytes()));
      const auto truth = run_whole(*make_reference_backend(pool), exact);
      const auto got = run_whole(*make_fast_backend(pool, best_isa()), s);
      errors[type == KvType::kF16 ? 0 : type == KvType::kI16 ? 1 : 2] = rms_error(got, truth);
    }
    std::printf(
        "bias %g: f16 %.3g, int16 %.3g, int16v8 %.3g\n",
        static_cast<double>(bias),
        errors[0],
        errors[1],
        errors[2]
    );
    EXPECT_LT(errors[1], errors[0] * 1.25) << "bias " << bias;
    EXPECT_LT(errors[2], 1e-2) << "bias " << bias;
  }
}

}  // namespace
}  // namespace artery::tensor
