#pragma once
// The clock seam. Production code takes a Clock& and never calls std::chrono itself, so that the
// engine can run on a virtual clock (`testing::SimClock`). Any thread.

#include <cstdint>

namespace artery {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::int64_t monotonic_ns() const = 0;  // never goes back; origin unspecified
  virtual std::int64_t unix_ms() const = 0;       // wall clock, milliseconds since 1970
  double seconds() const { return static_cast<double>(monotonic_ns()) * 1e-9; }
};

// The machine's clock.
const Clock& system_clock();

}  // namespace artery
