// Mixtures of experts of the fast backend.

#include <cmath>

#include "tensor/fast_backend.h"
#include "tensor/ops/expert_checks.h"

namespace artery::tensor {
namespace {

// Whether logit a goes before b: NaN after every number.
bool is_larger(float a, float b) { return std::isnan(b) ? !std::isnan(a) : a > b; }

// The `used` largest logits, ties to the lower index, in ascending order of index.
void choose(std::span<const float> logits, std::span<std::int32_t> chosen) {
  std::size_t count = 0;  // chosen so far, the best first
  for (std::size_t i = 0; i < logits.size(); ++i) {
    std::size_t at = count;
    while (at > 0 && is_larger(logits[i], logits[static_cast<std::size_t>(chosen[at - 1])])) --at;
    if (at == chosen.size()) continue;
    count = std::min(count + 1, chosen.size());
    for (std::size_t j = count - 1; j > at; --j) chosen[j] = chosen[j - 1];
    chosen[at] = static_cast<std::int32_t>(i);
  }
  std::ranges::sort(chosen);
}

// In double, ascending: many small shares beside a large one would be lost in float32.
float sum_of(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += v;
  return static_cast<float>(sum);
}

// In place.
void softmax(const KernelTable& k, std::span<float> x) {
  float top = -HUGE_VALF;
  for (const float v : x) top = is_larger(v, top) ? v : top;
  for (float& v : x) v -= top;
  k.exp(x.data(), std::ssize(x), x.data());
  const float sum = sum_of(x);
  for (float& v : x) v /= sum;
}

// `scratch`: as many as logits.
void weigh(
    const KernelTable& k,
    std::span<const float> logits,
    std::span<const std::int32_t> chosen,
    const RouterShape& shape,
    std::span<float> scratch,
    std::span<float> weights
) {
  std::ranges::copy(logits, scratch.begin());
  if (!shape.softmax_over_chosen) softmax(k, scratch);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    weights[i] = scratch[static_cast<std::size_t>(chosen[i])];
  }
  if (shape.softmax_over_chosen) return softmax(k, weights);
  if (!shape.renormalize) return;
  const float sum = sum_of(weights);
  for (float& w : weights) w /= sum;
}

}  // namespace

Routing FastBackend::route(Rows logits, const RouterShape& shape) {
  ops::check_router(logits, shape);
  const auto used = static_cast<std::size_t>(shape.used);
  const auto count = static_cast<std::size_t>(logits.cols);
  Routing routing;
  routing.used = shape.used;
  routing.weights = alloc(logits.rows, shape.used);
  const std::size_t chosen = used * static_cast<std::size_t>(logits.rows);
  routing.experts = {
      static_cast<std::int32_t*>(arena_.alloc(chosen * sizeof(std::int32_t))), chosen
  };
  Rows scratch = alloc(logits.rows, logits.cols);
  for_rows(logits, [&](std::int64_t r) {
    const std::span<const float> row(row_of(logits, r), count);
    const auto mine = routing.experts.subspan(static_cast<std::size_t>(r) * used, used);
    choose(row, mine);
    weigh(k_, row, mine, shape, {row_of(scratch, r), count}, {row_of(routing.weights, r), used});
  });
  return routing;
}

void FastBackend::experts(Rows x, const Routing& routing, const Experts& experts, Rows out) {
  ops::check_experts(x, routing, experts, out);
  const auto used = static_cast<std::size_t>(routing.used);
  std::fill_n(floats(out), out.rows * out.cols, 0.0f);
  for (std::size_t e = 0; e < experts.gate.size(); ++e) {
    std::vector<std::int32_t> rows;
    std::vector<float> weights;
    for (std::size_t i = 0; i < routing.experts.size(); ++i) {
      if (routing.experts[i] != static_cast<std::int32_t>(e)) continue;
      rows.push_back(static_cast<std::int32_t>(i / used));
      weights.push_back(floats(routing.weights)[i]);
    }
    if (rows.empty()) continue;
    const auto count = std::ssize(rows);
    const std::int64_t hidden = experts.gate[e].rows();
    Rows in = alloc(count, x.cols);
    Rows gate = alloc(count, hidden);
    Rows up = alloc(count, hidden);
    Rows down = alloc(count, x.cols);
    gather(x, rows, in);
    const Product wide[] = {
        {&experts.gate[e], ops::bias_of(experts.gate_bias, e, hidden), gate},
        {&experts.up[e], ops::bias_of(experts.up_bias, e, hidden), up}
    };
    matmuls(in, wide);
    const Product narrow = {&experts.down[e], ops::bias_of(experts.down_bias, e, x.cols), down};
    gated_matmuls(experts.gating, gate, up, {&narrow, 1});
    for (std::int64_t i = 0; i < count; ++i) {
      float* to = row_of(out, rows[static_cast<std::size_t>(i)]);
      const float w = weights[static_cast<std::size_t>(i)];
      for (std::int64_t k = 0; k < x.cols; ++k) to[k] = std::fma(w, row_of(down, i)[k], to[k]);
    }
  }
}

}  // namespace artery::tensor
