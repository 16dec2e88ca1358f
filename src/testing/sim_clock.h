#pragma once
// A clock that stands still until a test moves it. Any thread.

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace artery::testing {

class SimClock final : public Clock {
 public:
  std::int64_t monotonic_ns() const override { return now_ns_.load(); }
  std::int64_t unix_ms() const override { return kEpochMs + now_ns_.load() / 1'000'000; }
  void advance(double seconds) { now_ns_ += static_cast<std::int64_t>(seconds * 1e9); }

 private:
  static constexpr std::int64_t kEpochMs = 1'700'000'000'000;
  std::atomic<std::int64_t> now_ns_ = 1'000'000'000;
};

}  // namespace artery::testing
