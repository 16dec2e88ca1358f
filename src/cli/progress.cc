#include "cli/progress.h"

#include <unistd.h>

#include <cstdio>

#include "base/log.h"
#include "cli/report.h"

namespace artery::cli {
namespace {
constexpr int kBarCells = 30;
constexpr std::int64_t kRedrawNs = 50'000'000;
}  // namespace

Progress::Progress(std::string what, const Clock& clock)
    : what_(std::move(what)), clock_(&clock), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::update(std::uint64_t done, std::uint64_t total) {
  if (total == 0) return;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  if (!terminal_) {
    const int quarter = static_cast<int>(share * 4);
    if (quarter > last_quarter_ && quarter < 4) log_info("{} progress={}%", what_, quarter * 25);
    last_quarter_ = quarter > last_quarter_ ? quarter : last_quarter_;
    return;
  }
  if (done >= total) {  // what is logged from here on starts on a clean line
    if (drawn_) std::fputs("\r\033[K", stderr);
    drawn_ = false;
    return;
  }
  const std::int64_t now = clock_->monotonic_ns();
  if (drawn_ && now - last_draw_ns_ < kRedrawNs) return;
  last_draw_ns_ = now;
  drawn_ = true;
  const int full = static_cast<int>(share * kBarCells);
  std::string bar(static_cast<std::size_t>(full), '#');
  bar.resize(kBarCells, ' ');
  std::fputs(
      fmt::format(
          "\r{} [{}] {:3.0f} % of {}\033[K",
          what_,
          bar,
          share * 100,
          bytes_text(static_cast<double>(total))
      )
          .c_str(),
      stderr
  );
}

}  // namespace artery::cli
