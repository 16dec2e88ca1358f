#include "cli/signals.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace artery::cli {

Result<SignalWatch> SignalWatch::open(bool hangup) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  if (hangup) sigaddset(&set, SIGHUP);
  if (pthread_sigmask(SIG_BLOCK, &set, nullptr) != 0)
    return fail(Code::kIo, "cannot block signals");
  const int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return fail(Code::kIo, "signalfd failed, errno {}", errno);
  return SignalWatch(fd);
}

SignalWatch::SignalWatch(SignalWatch&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

SignalWatch::~SignalWatch() {
  if (fd_ >= 0) close(fd_);
}

std::optional<int> SignalWatch::wait(int timeout_ms, int other_fd) {
  pollfd fds[2] = {{fd_, POLLIN, 0}, {other_fd, POLLIN, 0}};
  if (poll(fds, other_fd >= 0 ? 2 : 1, timeout_ms) <= 0) return std::nullopt;
  signalfd_siginfo info{};
  if (read(fd_, &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

void leave_now(int signal) {
  std::fflush(nullptr);
  std::_Exit(128 + signal);
}

}  // namespace artery::cli
