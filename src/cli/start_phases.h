#pragma once
// How long each part of a start took, for one debug line. One thread.

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/clock.h"

namespace artery::cli {

class StartPhases {
 public:
  explicit StartPhases(const Clock& clock)
      : clock_(&clock), start_(clock.seconds()), last_(start_) {}

  // What was done since the last call, or since the start.
  void done(std::string_view phase) {
    const double now = clock_->seconds();
    text_ += fmt::format(" {}={:.1f}", phase, (now - last_) * 1e3);
    last_ = now;
  }
  // "start phases, ms: open=0.4 check=9.1 ... total=310.2".
  std::string text() const {
    return fmt::format("start phases, ms:{} total={:.1f}", text_, (last_ - start_) * 1e3);
  }

 private:
  const Clock* clock_;
  double start_, last_;
  std::string text_;
};

}  // namespace artery::cli
