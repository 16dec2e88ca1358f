// Routing and mixtures of experts: hand-made cases, the fast backend against the reference, and
// rows that must not depend on their batch, threads or instruction set.

#include "tensor/ops/test_support.h"

namespace artery::tensor {
namespace {

using namespace artery::tensor::testing;

struct Routed {
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
};

Routed routed(
    Backend& backend, const std::vector<float>& logits, std::int64_t rows, const RouterShape& shape
) {
  const auto count = std::ssize(logits) / rows;
  const Routing routing = backend.route(load_rows(backend, logits, rows, count), shape);
  EXPECT_EQ(routing.used, shape.used);
  Routed out;
  out.experts.assign(routing.experts.begin(), routing.experts.end());
  out.weights = store_rows(backend, routing.weights);
  return out;
}

std::vector<std::unique_ptr<Backend>> all_backends(ComputePool& pool) {
  std::vector<std::unique_ptr<Backend>> all;
  for (const Isa isa : isas()) all.push_back(make_fast_backend(pool, isa));
  all.push_back(make_reference_backend(pool));
  return all;
}

TEST(Route, PicksTheLargestInAscendingOrder) {
  ComputePool pool(1);
  // exp of the logits: 1, 4, 2, 8 and 16, 1, 1, 2.
  const float two = std::log(2.0f);
  const std::vector<float> logits = {0, 2 * two, two, 3 * two, 4 * two, 0, 0, two};
  for (auto& backend : all_backends(pool)) {
    const Routed all = routed(*backend, logits, 2, {.used = 2});
    EXPECT_EQ(all.experts, (std::vector<std::int32_t>{1, 3, 0, 3}));
    const std::vector<float> shares = {4 / 15.0f, 8 / 15.0f, 16 / 20.0f, 2 / 20.0f};
    EXPECT_TRUE(within(all.weights, shares, std::vector<double>(4, 1e-6)));
    const std::vector<float> chosen = {4 / 12.0f, 8 / 12.0f, 16 / 18.0f, 2 / 18.0f};
    const Routed over_chosen =
        routed(*backend, logits, 2, {.used = 2, .softmax_over_chosen = true});
    EXPECT_TRUE(within(over_chosen.weights, chosen, std::vector<double>(4, 1e-6)));
    const Routed renormalized = routed(*backend, logits, 2, {.used = 2, .renormalize = true});
    EXPECT_EQ(renormalized.experts, all.experts);
    EXPECT_TRUE(within(renormalized.weights, chosen, std::vector<double>(4, 1e-6)));
  }
}

TEST(Route, TiesGoToTheLowerIndexAndNaNNeverWins) {
  ComputePool pool(1);
  const float nan = std::nanf("");
  const float inf = HUGE_VALF;
  struct Case {
    std::vector<float> logits;
    std::vector<std::int32_t> experts;
  };
  const std::vector<Case> cases = {
      {{1, 1, 1, 1, 1}, {0, 1}},
      {{0, 2, 1, 1, 2}, {1, 4}},
      {{0, 2, 1, 1, 0}, {1, 2}},
      {{-0.0f, 0.0f, -1, -1, -1}, {0, 1}},
      {{nan, -5, nan, -7, -6}, {1, 4}},
      {{nan, nan, nan, nan, -inf}, {0, 4}},
      {{nan, nan, nan, nan, nan}, {0, 1}},
      {{-inf, -inf, inf, nan, -inf}, {0, 2}},
  };
  for (auto& backend : all_backends(pool)) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      for (const bool over_chosen : {false, true}) {
        const RouterShape shape = {.used = 2, .softmax_over_chosen = over_chosen};
        EXPECT_EQ(routed(*backend, cases[i].logits, 1, shape).experts, cases[i].experts) << i;
      }
    }
    // A logit that is none and was not chosen: no weight of the others hides it when all count.
    const std::vector<float> one_nan = {nan, 3, 2};
    const Routed all = routed(*backend, one_nan, 1, {.used = 2});
    EXPECT_TRUE(std::isnan(all.weights[0]) && std::isnan(all.weights[1]));
    const Routed chosen = routed(*backend, one_nan, 1, {.used = 2, .softmax_over_chosen = true});
    EXPECT_NEAR(chosen.weights[0] + chosen.weights[1], 1, 1e-6);
  }
}

TEST(Route, IsTheReferencesAndEqualBitsEverywhere) {
  Rng rng(81);
  ComputePool one(1);
  ComputePool three(3);
  auto reference = make_reference_backend(one);
  for (const auto& [count, used] : {std::pair{128, 8}, {32, 4}, {8, 2}, {5, 5}, {1, 1}, {60, 6}}) {
    const std::int64_t rows = 300;
    const std::vector<float> logits = activations(rng, rows * count);
    for (const RouterShape shape :
         {RouterShape{used}, RouterShape{used, true}, RouterShape{used, false, true}}) {
      const Routed expected = routed(*reference, logits, rows, shape);
      Routed first;
      for (const Isa isa : isas()) {
        for (ComputePool* pool : {&one, &three}) {
          auto backend = make_fast_backend(*pool, isa);
          const Routed got = routed(*backend, logits, rows, shape);
          EXPECT_EQ(got.experts, expected.experts);
          EXPECT_TRUE(
              within(got.weights, expected.weights, std::vector<double>(got.weights.size(), 1e-6))
          );
          if (first.weights.empty()) first = got;
          EXPECT_TRUE(same_bits(got.weights, first.weights)) << name(isa);
        }
      }
    }
  }
}

// A layer of experts of any types with biases or none.
struct Layer {
  std::vector<WeightMatrix> gate, up, down;
  std::vector<float> gate_bias, up_bias, down_bias;
  std::int64_t embedding = 0;
  Gating gating = Gating::kSilu;

  Experts view() const { return {gate, up, down, gate_bias, up_bias, down_bias, gating}; }
};

struct LayerShape {
  DType in, out;  // of gate and up, of down
  std::int64_t experts, embedding, hidden;
  bool biased;
};

Layer make_layer(const LayerShape& s, ComputePool& pool, Rng& rng) {
  Layer layer;
  layer.embedding = s.embedding;
  const auto make = [&](DType type, std::int64_t rows, std::int64_t cols) {
    auto w = WeightMatrix::pack(type, rows, cols, random_weights(type, rows, cols, rng), pool);
    EXPECT_TRUE(w.has_value());
    return w.take();
  };
  for (std::int64_t e = 0; e < s.experts; ++e) {
    layer.gate.push_back(make(s.in, s.hidden, s.embedding));
    layer.up.push_back(make(s.in, s.hidden, s.embedding));
    layer.down.push_back(make(s.out, s.embedding, s.hidden));
  }
  if (s.biased) {
    layer.gate_bias = activations(rng, s.experts * s.hidden);
    layer.up_bias = activations(rng, s.experts * s.hidden);
    layer.down_bias = activations(rng, s.experts * s.embedding);
  }
  return layer;
}

// Some experts get many rows, some none.
std::vector<float> uneven_logits(Rng& rng, std::int64_t rows, std::int64_t experts) {
  std::vector<float> logits = activations(rng, rows * experts);
  for (std::int64_t i = 0; i < rows * experts; ++i) {
    if (i % experts == 1) logits[static_cast<std::size_t>(i)] += 2;
    if (i % experts == 2) logits[static_cast<std::size_t>(i)] -= 100;
  }
  return logits;
}

struct Input {
  std::int64_t rows = 0;
  std::vector<float> x, logits;
};

// Rows [begin, end) through the router and the experts.
std::vector<float> mixed(
    Backend& backend,
    const Layer& layer,
    const Input& in,
    const RouterShape& shape,
    std::int64_t begin,
    std::int64_t end
) {
  backend.reset();
  const auto part = [&](const std::vector<float>& all, std::int64_t cols) {
    const std::vector<float> rows(all.begin() + begin * cols, all.begin() + end * cols);
    return load_rows(backend, rows, end - begin, cols);
  };
  Rows x = part(in.x, layer.embedding);
  const Routing routing = backend.route(part(in.logits, std::ssize(layer.gate)), shape);
  Rows out = backend.alloc(end - begin, layer.embedding);
  backend.experts(x, routing, layer.view(), out);
  return store_rows(backend, out);
}

// One row by the plain verbs, expert after expert.
std::vector<float> by_verbs(
    Backend& b, const Layer& layer, const Input& in, const RouterShape& shape, std::int64_t row
) {
  b.reset();
  const auto row_of = [&](const std::vector<float>& all, std::int64_t cols) {
    return load_rows(b, {all.begin() + row * cols, all.begin() + (row + 1) * cols}, 1, cols);
  };
  const auto bias_of = [](const std::vector<float>& all, std::int64_t e, std::int64_t n) {
    if (all.empty()) return std::span<const float>();
    return std::span(all).subspan(static_cast<std::size_t>(e * n), static_cast<std::size_t>(n));
  };
  Rows x = row_of(in.x, layer.embedding);
  const Routing routing = b.route(row_of(in.logits, std::ssize(layer.gate)), shape);
  const std::vector<float> weights = store_rows(b, routing.weights);
  const std::int64_t hidden = layer.gate[0].rows();
  std::vector<float> sum(static_cast<std::size_t>(layer.embedding));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::int32_t e = routing.experts[i];
    const auto at = static_cast<std::size_t>(e);
    Rows gate = b.alloc(1, hidden);
    Rows up = b.alloc(1, hidden);
    Rows down = b.alloc(1, layer.embedding);
    b.matmul(x, layer.gate[at], bias_of(layer.gate_bias, e, hidden), gate);
    b.matmul(x, layer.up[at], bias_of(layer.up_bias, e, hidden), up);
    b.gated(layer.gating, gate, up, gate);
    b.matmul(gate, layer.down[at], bias_of(layer.down_bias, e, layer.embedding), down);
    const std::vector<float> y = store_rows(b, down);
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] = std::fma(weights[i], y[k], sum[k]);
  }
  return sum;
}

class ExpertLayer : public ::testing::TestWithParam<LayerShape> {};

// Types with tiles and without, with several offsets and as floats; widths that no vector divides.
INSTANTIATE_TEST_SUITE_P(
    Shapes,
    ExpertLayer,
    ::testing::Values(
        LayerShape{DType::kQ4_0, DType::kQ4_0, 12, 96, 160, false},
        LayerShape{DType::kMXFP4, DType::kMXFP4, 6, 320, 96, true},
        LayerShape{DType::kQ4_K, DType::kQ6_K, 5, 256, 512, false},
        LayerShape{DType::kQ8_0, DType::kQ4_1, 5, 64, 96, true},
        LayerShape{DType::kBF16, DType::kBF16, 5, 75, 37, true},
        LayerShape{DType::kF32, DType::kF16, 5, 36, 21, false},
        LayerShape{DType::kQ2_K, DType::kQ3_K, 4, 256, 256, false},
        LayerShape{DType::kF32, DType::kQ4_0, 4, 40, 64, true},
        LayerShape{DType::kF8E4M3, DType::kF8E4M3, 4, 128, 256, false},
        LayerShape{DType::kQ5_1, DType::kBF16, 4, 64, 33, true}
    ),
    [](const auto& layer) {
      return std::string(name(layer.param.in)) + "_" + std::string(name(layer.param.out));
    }
);

// Whatever the batch, its splits, the threads and the instruction set: the plain verbs' bits.
TEST_P(ExpertLayer, RowsAreTheirOwnChainOfVerbs) {
  Rng rng(82);
  ComputePool one(1);
  const Layer layer = make_layer(GetParam(), one, rng);
  const std::int64_t rows = 45;
  const Input in = {
      rows, activations(rng, rows * layer.embedding), uneven_logits(rng, rows, GetParam().experts)
  };
  for (const int used : {1, 4}) {
    const RouterShape shape = {.used = used, .renormalize = true};
    std::vector<float> expected;
    auto plain = make_fast_backend(one, best_isa());
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto row = by_verbs(*plain, layer, in, shape, r);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    for (const Isa isa : isas()) {
      for (int threads = 1; threads <= 4; ++threads) {
        if (isa != best_isa() && threads % 2 == 0) continue;
        ComputePool pool(threads);
        auto backend = make_fast_backend(pool, isa);
        EXPECT_TRUE(same_bits(mixed(*backend, layer, in, shape, 0, rows), expected))
            << name(isa) << ", " << threads << " threads, " << used << " used";
        std::vector<float> split;
        for (std::int64_t r = 0; r < rows;) {
          const std::int64_t end = std::min(rows, r + 1 + pick(rng, 9));
          const auto part = mixed(*backend, layer, in, shape, r, end);
          split.insert(split.end(), part.begin(), part.end());
          r = end;
        }
        EXPECT_TRUE(same_bits(split, expected)) << name(isa) << ", split, " << threads;
      }
    }
  }
}

TEST_P(ExpertLayer, IsCloseToTheReference) {
  Rng rng(83);
  ComputePool pool(2);
  const Layer layer = make_layer(GetParam(), pool, rng);
  const Input in = {
      9, activations(rng, 9 * layer.embedding), uneven_logits(rng, 9, GetParam().experts)
  };
  const RouterShape shape = {.used = 3, .softmax_over_chosen = true};
  auto reference = make_reference_backend(pool);
  const auto expected = mixed(*reference, layer, in, shape, 0, 9);
  std::vector<float> alone;  // the reference's rows do not depend on their batch either
  for (std::int64_t r = 0; r < 9; ++r) {
    const auto row = mixed(*reference, layer, in, shape, r, r + 1);
    alone.insert(alone.end(), row.begin(), row.end());
  }
  EXPECT_TRUE(same_bits(alone, expected));
  double squares = 0;
  for (const float v : expected) squares += static_cast<double>(v) * v;
  auto fast = make_fast_backend(pool, best_isa());
  const auto got = mixed(*fast, layer, in, shape, 0, 9);
  double errors = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = static_cast<double>(got[i]) - static_cast<double>(expected[i]);
    errors += error * error;
  }
  // Activations of 8 bits (both products of a row): some 0.5 % each; all other errors are smaller.
  const bool exact = GetParam().in == DType::kF32 && GetParam().out == DType::kF16;
  EXPECT_LT(std::sqrt(errors / squares), exact ? 1e-5 : 0.03);
  EXPECT_GT(squares, 0);
}

TEST(Experts, NoRowsAreNoWork) {
  Rng rng(84);
  ComputePool pool(2);
  const Layer layer = make_layer({DType::kQ4_0, DType::kQ4_0, 3, 32, 64, true}, pool, rng);
  for (auto& backend : all_backends(pool)) {
    EXPECT_TRUE(mixed(*backend, layer, {}, {.used = 2}, 0, 0).empty());
  }
}

TEST(GateRows, MultipliesEachRowByItsSigmoid) {
  Rng rng(85);
  ComputePool pool(2);
  const std::vector<float> gate = {0, 2, -3, 90, -90, 0.25f, HUGE_VALF};
  const auto in = activations(rng, 7 * 33);
  std::vector<float> first;
  for (auto& backend : all_backends(pool)) {
    const Rows x = load_rows(*backend, in, 7, 33);
    backend->gate_rows(load_rows(*backend, gate, 7, 1), x);
    const auto out = store_rows(*backend, x);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double share = 1 / (1 + std::exp(-static_cast<double>(gate[i / 33])));
      const double expected = static_cast<double>(in[i]) * share;
      EXPECT_NEAR(out[i], expected, 1e-6 * std::abs(expected) + 1e-37) << backend->numerics_class();
    }
    if (backend->numerics_class() != "fast-2") continue;
    if (first.empty()) first = out;
    EXPECT_TRUE(same_bits(out, first));
    const Rows alone = load_rows(*backend, {in.begin() + 33, in.begin() + 66}, 1, 33);
    backend->gate_rows(load_rows(*backend, {2}, 1, 1), alone);
    EXPECT_TRUE(same_bits(store_rows(*backend, alone), {out.begin() + 33, out.begin() + 66}));
  }
}

}  // namespace
}  // namespace artery::tensor
