#include "cli/model_facts.h"

#include <fmt/core.h>

namespace artery::cli {

std::string slow_types_advice(const model::ModelInfo& info) {
  return fmt::format(
      "{}: {} have no fast kernel yet and are unpacked in every step, so decoding is slow; F32, "
      "F16, "
      "BF16, Q4_0, Q4_1 and Q8_0 have one",
      info.name,
      info.slow_types
  );
}

}  // namespace artery::cli
