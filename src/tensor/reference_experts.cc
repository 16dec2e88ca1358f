#include "tensor/reference_experts.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensor/math.h"
#include "tensor/ops/expert_checks.h"

namespace artery::tensor {
namespace {

double* row_of(const Rows& x, std::int64_t r) { return static_cast<double*>(x.data) + r * x.cols; }

// Whether logit a goes before b: NaN after every number.
bool is_larger(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a > b; }

std::vector<std::int32_t> largest(std::span<const double> logits, int used) {
  std::vector<std::int32_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  // Not stable_sort: clang warns of what libstdc++'s calls.
  std::ranges::sort(order, [&](std::int32_t a, std::int32_t b) {
    const double x = logits[static_cast<std::size_t>(a)];
    const double y = logits[static_cast<std::size_t>(b)];
    return is_larger(x, y) || (!is_larger(y, x) && a < b);
  });
  order.resize(static_cast<std::size_t>(used));
  std::ranges::sort(order);
  return order;
}

std::vector<double> softmax(std::span<const double> logits) {
  double top = -HUGE_VAL;
  for (const double x : logits) top = is_larger(x, top) ? x : top;
  std::vector<double> out;
  double sum = 0;
  for (const double x : logits) {
    out.push_back(exp_d(x - top));
    sum += out.back();
  }
  for (double& x : out) x /= sum;
  return out;
}

void weigh(
    std::span<const double> logits,
    std::span<const std::int32_t> chosen,
    const RouterShape& shape,
    double* weights
) {
  std::vector<double> all(logits.begin(), logits.end());
  if (!shape.softmax_over_chosen) all = softmax(all);
  std::vector<double> picked;
  for (const std::int32_t e : chosen) picked.push_back(all[static_cast<std::size_t>(e)]);
  if (shape.softmax_over_chosen) picked = softmax(picked);
  double sum = 0;
  for (const double w : picked) sum += w;
  const bool divides = shape.renormalize && !shape.softmax_over_chosen;
  for (std::size_t i = 0; i < picked.size(); ++i) {
    weights[i] = divides ? picked[i] / sum : picked[i];
  }
}

}  // namespace

Routing reference_route(Backend& backend, Rows logits, const RouterShape& shape) {
  ops::check_router(logits, shape);
  const auto used = static_cast<std::size_t>(shape.used);
  Routing routing;
  routing.used = shape.used;
  routing.weights = backend.alloc(logits.rows, shape.used);
  const Rows memory = backend.alloc(logits.rows, shape.used);  // wider elements than needed
  routing.experts = {
      static_cast<std::int32_t*>(memory.data), used * static_cast<std::size_t>(logits.rows)
  };
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    const std::span<const double> row(row_of(logits, r), static_cast<std::size_t>(logits.cols));
    const std::vector<std::int32_t> chosen = largest(row, shape.used);
    std::ranges::copy(chosen, routing.experts.data() + static_cast<std::size_t>(r) * used);
    weigh(row, chosen, shape, row_of(routing.weights, r));
  }
  return routing;
}

void reference_experts(
    Backend& backend, Rows x, const Routing& routing, const Experts& experts, Rows out
) {
  ops::check_experts(x, routing, experts, out);
  const auto used = static_cast<std::size_t>(routing.used);
  for (std::int64_t i = 0; i < out.rows * out.cols; ++i) row_of(out, 0)[i] = 0;
  for (std::size_t e = 0; e < experts.gate.size(); ++e) {
    std::vector<std::int32_t> rows;
    std::vector<double> weights;
    for (std::size_t i = 0; i < routing.experts.size(); ++i) {
      if (routing.experts[i] != static_cast<std::int32_t>(e)) continue;
      rows.push_back(static_cast<std::int32_t>(i / used));
      weights.push_back(row_of(routing.weights, 0)[i]);
    }
    if (rows.empty()) continue;
    const auto count = std::ssize(rows);
    const std::int64_t hidden = experts.gate[e].rows();
    Rows in = backend.alloc(count, x.cols);
    Rows gate = backend.alloc(count, hidden);
    Rows up = backend.alloc(count, hidden);
    Rows down = backend.alloc(count, x.cols);
    backend.gather(x, rows, in);
    backend.matmul(in, experts.gate[e], ops::bias_of(experts.gate_bias, e, hidden), gate);
    backend.matmul(in, experts.up[e], ops::bias_of(experts.up_bias, e, hidden), up);
    backend.gated(experts.gating, gate, up, gate);
    backend.matmul(gate, experts.down[e], ops::bias_of(experts.down_bias, e, x.cols), down);
    for (std::int64_t i = 0; i < count; ++i) {
      double* to = row_of(out, rows[static_cast<std::size_t>(i)]);
      const double w = weights[static_cast<std::size_t>(i)];
      for (std::int64_t k = 0; k < x.cols; ++k) to[k] += w * row_of(down, i)[k];
    }
  }
}

}  // namespace artery::tensor
