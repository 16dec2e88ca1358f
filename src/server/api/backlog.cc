#include "server/api/backlog.h"

#include <algorithm>
#include <cmath>

namespace artery::server::api {

void Backlog::on_end(std::int64_t now_ns) {
  const MutexLock lock(mu_);
  ends_[count_++ % kEnds] = now_ns;
}

int Backlog::retry_after_s(int waiting, std::int64_t now_ns) const {
  constexpr int kUnknown = 2, kMost = 60;
  const MutexLock lock(mu_);
  const std::size_t known = std::min(count_, kEnds);
  if (known < 2) return kUnknown;
  // The oldest one kept; up to now, so that a queue that stands still counts as slower and slower.
  const std::int64_t oldest = count_ <= kEnds ? ends_[0] : ends_[count_ % kEnds];
  const double gap_s = static_cast<double>(now_ns - oldest) * 1e-9 / static_cast<double>(known);
  const double seconds = gap_s * std::max(1.0, waiting / 4.0);
  return static_cast<int>(std::clamp(std::ceil(seconds), 1.0, static_cast<double>(kMost)));
}

}  // namespace artery::server::api
