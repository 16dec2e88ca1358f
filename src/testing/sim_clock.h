#pragma once
// A clock that stands still until a test moves it. Any thread.

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace artery::testing {

class SimClock final : public Clock {
 public:
  std::int64_t monotonic_ns() const override { return now_ns_.load(); }
  std::int64_t unix_ms() const override {
    return kEpochMs + now_ns_.load() / 1'000'000 + wall_shift_ms_.load();
  }
  void advance(double seconds) { now_ns_ += static_cast<std::int64_t>(seconds * 1e9); }
  // Somebody sets the wall clock, forth or back; monotonic time goes on.
  void jump_wall(double seconds) { wall_shift_ms_ += static_cast<std::int64_t>(seconds * 1e3); }

 private:
  static constexpr std::int64_t kEpochMs = 1'700'000'000'000;
  std::atomic<std::int64_t> now_ns_ = 1'000'000'000;
  std::atomic<std::int64_t> wall_shift_ms_ = 0;
};

}  // namespace artery::testing
