#pragma once
// SIGINT, SIGTERM and, where asked for, SIGHUP as something to wait for instead of a handler that
// interrupts. Made by the main thread before it starts any other thread, so that all of them
// inherit the blocked mask; used by the main thread only.

#include <optional>

#include "base/result.h"

namespace artery::cli {

class SignalWatch {
 public:
  // Blocks the signals in this thread and those it starts. `hangup`: SIGHUP too, which else ends
  // the process, as the closing of a terminal should. kIo.
  static Result<SignalWatch> open(bool hangup = false);
  SignalWatch(SignalWatch&& other) noexcept;
  SignalWatch& operator=(SignalWatch&&) = delete;
  ~SignalWatch();

  // The signal's number, or nullopt after `timeout_ms` or as soon as `other_fd` (-1: none) is
  // readable.
  std::optional<int> wait(int timeout_ms, int other_fd = -1);

 private:
  explicit SignalWatch(int fd) : fd_(fd) {}
  int fd_;
};

// Ends the process without waiting for anything: a second signal, or one during a load, where no
// answer is under way.
[[noreturn]] void leave_now(int signal);

}  // namespace artery::cli
