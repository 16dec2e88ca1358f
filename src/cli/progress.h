#pragma once
// Progress of a long load on standard error: a bar on a terminal, a line every quarter elsewhere.
// One thread at a time.

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace artery::cli {

class Progress {
 public:
  // `what`: "loading model.gguf".
  explicit Progress(std::string what, const Clock& clock = system_clock());
  ~Progress();  // clears the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::uint64_t done, std::uint64_t total);

 private:
  std::string what_;
  const Clock* clock_;
  bool terminal_;
  bool drawn_ = false;
  std::int64_t last_draw_ns_ = 0;
  int last_quarter_ = 0;
};

}  // namespace artery::cli
