#pragma once
// Shape checks of the mixture verbs, as in checks.h. Pure functions, any thread.

#include "tensor/ops/checks.h"

namespace artery::tensor::ops {

inline void check_router(const Rows& logits, const RouterShape& shape) {
  CHECK(shape.used >= 1 && shape.used <= logits.cols, "{} of {} experts", shape.used, logits.cols);
}

inline void check_expert_biases(
    std::span<const float> biases, std::size_t experts, std::int64_t outputs
) {
  const std::size_t wanted = experts * static_cast<std::size_t>(outputs);
  CHECK(biases.empty() || biases.size() == wanted, "{} biases of {}", biases.size(), wanted);
}

inline void check_experts(
    const Rows& x, const Routing& routing, const Experts& e, const Rows& out
) {
  check_same_shape(x, out);
  const std::size_t count = e.gate.size();
  CHECK(count > 0 && e.up.size() == count && e.down.size() == count, "{} experts", count);
  const std::int64_t hidden = e.gate[0].rows();
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(e.gate[i].rows() == hidden && e.gate[i].cols() == x.cols, "gate of expert {}", i);
    CHECK(e.up[i].rows() == hidden && e.up[i].cols() == x.cols, "up of expert {}", i);
    CHECK(e.down[i].rows() == x.cols && e.down[i].cols() == hidden, "down of expert {}", i);
  }
  check_expert_biases(e.gate_bias, count, hidden);
  check_expert_biases(e.up_bias, count, hidden);
  check_expert_biases(e.down_bias, count, x.cols);
  const auto used = static_cast<std::size_t>(routing.used);
  CHECK(routing.used >= 1 && routing.experts.size() == used * static_cast<std::size_t>(x.rows));
  CHECK(routing.weights.rows == x.rows && routing.weights.cols == routing.used);
  for (std::size_t i = 0; i < routing.experts.size(); ++i) {
    const std::int32_t chosen = routing.experts[i];
    CHECK(chosen >= 0 && static_cast<std::size_t>(chosen) < count, "expert {}", chosen);
    CHECK(i % used == 0 || routing.experts[i - 1] < chosen, "experts not in ascending order");
  }
}

// The part of all experts' biases that is expert `index`'s.
inline std::span<const float> bias_of(
    std::span<const float> biases, std::size_t index, std::int64_t outputs
) {
  const auto length = static_cast<std::size_t>(outputs);
  return biases.empty() ? biases : biases.subspan(index * length, length);
}

}  // namespace artery::tensor::ops
