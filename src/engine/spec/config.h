#pragma once
// What the user asked of speculation. Values, any thread.

#include <cstdint>

namespace artery::engine {

enum class SpeculationMode {
  kOff,
  kWherePays,  // drafts that the measured cost of a step is expected to repay
  kAlways,     // every draft there is
};

struct SpeculationConfig {
  SpeculationMode mode = SpeculationMode::kOff;
  int tokens = 4;      // most drafted tokens of a step and choice
  int match_min = 3;   // tokens that must be equal before a draft is taken from the text
  int match_max = 32;  // and that decide between places
};

constexpr int kDraftTokensMax = 16;

}  // namespace artery::engine
