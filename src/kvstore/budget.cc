#include "kvstore/budget.h"

#include <algorithm>
#include <cmath>

namespace artery::kvstore {

TokenBucket::TokenBucket(std::int64_t bytes_per_s, std::int64_t burst_min)
    : rate_(static_cast<double>(bytes_per_s)),
      burst_(std::max(rate_ / 4, static_cast<double>(burst_min))),
      tokens_(burst_) {}

void TokenBucket::refill(std::int64_t now_ns) {
  if (last_ns_ >= 0 && now_ns > last_ns_) {
    tokens_ = std::min(burst_, tokens_ + rate_ * static_cast<double>(now_ns - last_ns_) * 1e-9);
  }
  last_ns_ = std::max(last_ns_, now_ns);
}

bool TokenBucket::take(std::int64_t bytes, std::int64_t now_ns) {
  if (rate_ <= 0) return true;
  refill(now_ns);
  const auto need = std::min(static_cast<double>(bytes), burst_);
  if (tokens_ < need) return false;
  tokens_ -= static_cast<double>(bytes);  // may owe: more than the burst was asked for
  return true;
}

std::int64_t TokenBucket::wait_ns(std::int64_t bytes, std::int64_t now_ns) {
  if (rate_ <= 0) return 0;
  refill(now_ns);
  const double lack = std::min(static_cast<double>(bytes), burst_) - tokens_;
  return lack <= 0 ? 0 : static_cast<std::int64_t>(std::ceil(lack / rate_ * 1e9));
}

void SpeedMeter::begin(std::int64_t now_ns) {
  if (under_way_++ == 0) busy_since_ns_ = now_ns;
}

void SpeedMeter::end(std::int64_t bytes, std::int64_t now_ns) {
  busy_s_ += static_cast<double>(std::max<std::int64_t>(0, now_ns - busy_since_ns_)) * 1e-9;
  busy_since_ns_ = now_ns;
  bytes_ += static_cast<double>(bytes);
  --under_way_;
  if (bytes_ < kWindowBytes && busy_s_ < kWindowSeconds) return;
  if (busy_s_ > 0 && bytes_ > 0) {
    const double now = bytes_ / busy_s_;
    speed_ = measured_ ? (speed_ + now) / 2 : now;
    measured_ = true;
  }
  bytes_ = busy_s_ = 0;
}

void SpeedMeter::latency(double seconds) {
  latency_s_ = latency_s_ == 0 ? seconds : latency_s_ + (seconds - latency_s_) / 16;
}

}  // namespace artery::kvstore
