#pragma once
// Budgets and measured speeds of a store. Plain values on given times, no clock: the owner's thread
// or lock.

#include <cstdint>

namespace artery::kvstore {

// A token bucket of bytes. Rate 0: no limit.
class TokenBucket {
 public:
  // Holds a quarter of a second's worth, but never less than `burst_min` bytes, so that the largest
  // single request passes.
  TokenBucket(std::int64_t bytes_per_s, std::int64_t burst_min);
  bool take(std::int64_t bytes, std::int64_t now_ns);
  // Until take(bytes) succeeds; 0: now.
  std::int64_t wait_ns(std::int64_t bytes, std::int64_t now_ns);

 private:
  void refill(std::int64_t now_ns);
  double rate_;
  double burst_;
  double tokens_;
  std::int64_t last_ns_ = -1;
};

// Speed of a device in one direction: bytes against the time in which anything was under way, so
// that requests side by side count once and idle time does not count. Halves what it knew with
// every `kWindowBytes`.
class SpeedMeter {
 public:
  explicit SpeedMeter(double bytes_per_s_at_first) : speed_(bytes_per_s_at_first) {}
  void begin(std::int64_t now_ns);
  void end(std::int64_t bytes, std::int64_t now_ns);
  double bytes_per_s() const { return speed_; }
  double latency_s() const { return latency_s_; }  // of one request, lately; 0: none yet
  void latency(double seconds);

 private:
  static constexpr double kWindowBytes = 32 << 20;
  static constexpr double kWindowSeconds = 0.25;
  int under_way_ = 0;
  std::int64_t busy_since_ns_ = 0;
  double bytes_ = 0, busy_s_ = 0;
  bool measured_ = false;
  double speed_;
  double latency_s_ = 0;
};

}  // namespace artery::kvstore
