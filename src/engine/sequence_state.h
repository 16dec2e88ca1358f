#pragma once
// What a sequence holds beside its pages, and how speculation, preemption and hand-over take it
// back. Engine thread only.

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace artery::engine {

// A point to return to: everything that changes when a token is appended.
struct SequenceSnapshot {
  std::int64_t tokens = 0;
};

class SequenceState {
 public:
  virtual ~SequenceState() = default;
  virtual SequenceSnapshot snapshot() const = 0;
  // Back to an earlier point of the same sequence.
  virtual void restore(const SequenceSnapshot& point) = 0;
  // Keeps the first `tokens` positions; pages beyond are released.
  virtual void truncate(std::int64_t tokens) = 0;
};

}  // namespace artery::engine
