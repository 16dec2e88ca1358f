#include "kvstore/breaker.h"

#include <algorithm>

namespace artery::kvstore {

void Breaker::open(std::int64_t now_ns) {
  is_open_ = true;
  wait_s_ = wait_s_ == 0 ? kFirstS : std::min(wait_s_ * 2, kLastS);
  until_ns_ = now_ns + static_cast<std::int64_t>(wait_s_ * 1e9);
}

bool Breaker::failure(Kind kind, std::int64_t now_ns) {
  int& failures = failures_[static_cast<int>(kind)];
  if (is_open_ || ++failures < kFailures) return false;
  open(now_ns);
  return true;
}

bool Breaker::trip(std::int64_t now_ns) {
  if (is_open_) return false;
  open(now_ns);
  return true;
}

void Breaker::success(Kind kind) {
  failures_[static_cast<int>(kind)] = 0;
  // Well again for good, not only for a probe: the next trouble starts with a short wait.
  if (!is_open_) wait_s_ = 0;
}

bool Breaker::wants_probe(std::int64_t now_ns) const {
  return is_open_ && !is_probing_ && now_ns >= until_ns_;
}

void Breaker::probe_ended(bool is_well, std::int64_t now_ns) {
  is_probing_ = false;
  if (!is_open_) return;
  if (!is_well) {
    open(now_ns);
    return;
  }
  is_open_ = false;
  failures_[0] = failures_[1] = 0;
}

}  // namespace artery::kvstore
