#include "base/clock.h"

#include <chrono>

namespace artery {
namespace {

class SystemClock final : public Clock {
 public:
  std::int64_t monotonic_ns() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch()
    )
        .count();
  }
  std::int64_t unix_ms() const override {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch()
    )
        .count();
  }
};

}  // namespace

const Clock& system_clock() {
  static const SystemClock instance;
  return instance;
}

}  // namespace artery
