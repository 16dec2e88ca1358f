#pragma once
// What the parts of Core share. Not for other files.

#include <algorithm>
#include <cstdint>

#include "engine/choice.h"

namespace artery::engine {

inline double seconds_between(std::int64_t from_ns, std::int64_t to_ns) {
  return static_cast<double>(std::max<std::int64_t>(0, to_ns - from_ns)) * 1e-9;
}

// Known tokens of a choice.
inline std::int64_t total(const Choice& choice) {
  return static_cast<std::int64_t>(choice.tokens.size());
}

}  // namespace artery::engine
