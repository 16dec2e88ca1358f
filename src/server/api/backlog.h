#pragma once
// How long the queue is likely to take, from how fast requests have been ending: what Retry-After
// says when the engine's inbox is full. Any thread.

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/mutex.h"

namespace artery::server::api {

class Backlog {
 public:
  void on_end(std::int64_t now_ns);
  // Seconds until about a quarter of `waiting` requests has left, from 1 to 60, so that those who
  // come back find room and are not all sent away again. 2 while nothing is known.
  int retry_after_s(int waiting, std::int64_t now_ns) const;

 private:
  static constexpr std::size_t kEnds = 32;
  mutable Mutex mu_;
  std::array<std::int64_t, kEnds> ends_ GUARDED_BY(mu_){};  // a ring
  std::size_t count_ GUARDED_BY(mu_) = 0;
};

}  // namespace artery::server::api
