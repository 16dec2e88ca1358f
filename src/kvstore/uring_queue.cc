#include "kvstore/io_queue.h"

#if !defined(ARTERY_HAS_URING)

namespace artery::kvstore {

Result<std::unique_ptr<IoQueue>> make_uring_queue(int, std::span<std::byte>) {
  return fail(Code::kUnsupported, "io_uring: this build has no liburing");
}

}  // namespace artery::kvstore

#else

#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "base/check.h"

namespace artery::kvstore {
namespace {

// The kernel's limit for one registered buffer.
constexpr std::size_t kRegisteredMax = std::size_t{1} << 30;

tl::unexpected<Error> refused(const char* what, int code) {
  return fail(
      Code::kUnsupported,
      "io_uring: {}: {}",
      what,
      std::error_code(code, std::generic_category()).message()
  );
}

class UringQueue final : public IoQueue {
 public:
  // A ring with its eventfd, both open; the queue owns them.
  UringQueue(const io_uring& ring, int wake_fd, int depth)
      : ring_(ring), wake_fd_(wake_fd), slots_(static_cast<std::size_t>(depth)) {
    for (std::size_t i = slots_.size(); i > 0; --i) free_.push_back(i - 1);
  }
  ~UringQueue() override {
    std::vector<IoResult> ended;
    while (free_.size() < slots_.size()) {
      flush();
      reap(ended);
      if (free_.size() < slots_.size()) sleep(-1);
    }
    io_uring_queue_exit(&ring_);
    ::close(wake_fd_);
  }
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  // False: the memlock limit forbids it. Everything works as well, a little slower.
  bool register_buffers(std::span<std::byte> memory) {
    std::vector<iovec> parts;
    for (std::size_t at = 0; at < memory.size(); at += kRegisteredMax) {
      parts.push_back({memory.data() + at, std::min(kRegisteredMax, memory.size() - at)});
    }
    if (parts.empty()) return false;
    const auto count = static_cast<unsigned>(parts.size());
    if (io_uring_register_buffers(&ring_, parts.data(), count) != 0) return false;
    registered_ = std::move(parts);
    return true;
  }

  bool submit(const IoRequest& request) override {
    if (in_flight() >= static_cast<int>(slots_.size())) return false;
    if (request.file->descriptor() < 0) {
      without_.push_back({.tag = request.tag, .bytes = 0, .error = EBADF});
      return true;
    }
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    CHECK(sqe != nullptr);  // the ring has room for all slots
    const std::size_t slot = free_.back();
    free_.pop_back();
    slots_[slot] = request;
    prepare(*sqe, request);
    io_uring_sqe_set_data64(sqe, slot);
    flush();
    return true;
  }

  void wait(std::vector<IoResult>& out, int timeout_ms) override {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    out.insert(out.end(), without_.begin(), without_.end());
    const bool has_some = !without_.empty();
    without_.clear();
    flush();
    if (reap(out) || has_some || timeout_ms == 0) return;
    while (true) {
      int left = -1;
      if (timeout_ms > 0) {
        const auto rest = until - std::chrono::steady_clock::now();
        left = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(rest).count());
        if (left <= 0) return;
      }
      const bool is_woken = sleep(left);
      if (reap(out) || is_woken) return;
    }
  }

  void wake() override {
    const std::uint64_t one = 1;
    // Fails only when the counter is full, and then it wakes as well.
    [[maybe_unused]] const auto put = ::write(wake_fd_, &one, sizeof one);
  }

  int in_flight() const override {
    return static_cast<int>(slots_.size() - free_.size() + without_.size());
  }
  std::string_view name() const override {
    return registered_.empty() ? "io_uring" : "io_uring, registered buffers";
  }

 private:
  // Index of the registered buffer that all of `buffer` lies in; -1: none.
  int registered(std::span<const std::byte> buffer) const {
    for (std::size_t i = 0; i < registered_.size(); ++i) {
      const auto* base = static_cast<const std::byte*>(registered_[i].iov_base);
      if (buffer.data() >= base && buffer.data() + buffer.size() <= base + registered_[i].iov_len) {
        return static_cast<int>(i);
      }
    }
    return -1;
  }

  void prepare(io_uring_sqe& sqe, const IoRequest& request) const {
    const int fd = request.file->descriptor();
    if (request.kind == IoRequest::Kind::kSync) {
      io_uring_prep_fsync(&sqe, fd, IORING_FSYNC_DATASYNC);
      return;
    }
    const auto bytes = static_cast<unsigned>(std::min(request.buffer.size(), kRegisteredMax));
    const auto offset = static_cast<std::uint64_t>(request.offset);
    const bool is_read = request.kind == IoRequest::Kind::kRead;
    const int index = registered(request.buffer);
    void* memory = request.buffer.data();
    if (is_read && index >= 0) {
      io_uring_prep_read_fixed(&sqe, fd, memory, bytes, offset, index);
    } else if (is_read) {
      io_uring_prep_read(&sqe, fd, memory, bytes, offset);
    } else if (index >= 0) {
      io_uring_prep_write_fixed(&sqe, fd, memory, bytes, offset, index);
    } else {
      io_uring_prep_write(&sqe, fd, memory, bytes, offset);
    }
  }

  // What the kernel does not take now (EAGAIN, EBUSY) stays in the ring until the next call.
  void flush() {
    if (io_uring_sq_ready(&ring_) > 0) io_uring_submit(&ring_);
  }

  // Appends all that has ended; true: there was something.
  bool reap(std::vector<IoResult>& out) {
    bool any = false;
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const auto slot = static_cast<std::size_t>(io_uring_cqe_get_data64(cqe));
      const int result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      out.push_back(ended(slots_[slot], result));
      free_.push_back(slot);
      any = true;
    }
    return any;
  }

  static IoResult ended(const IoRequest& request, int result) {
    std::int64_t moved = result;
    // The file's own call knows what to do about O_DIRECT that is refused; interrupted ones are
    // rare enough to be done here.
    const bool again = result == -EINVAL || result == -EAGAIN || result == -EINTR;
    if (again && request.kind == IoRequest::Kind::kRead) {
      moved = request.file->read_at(request.offset, request.buffer);
    } else if (again && request.kind == IoRequest::Kind::kWrite) {
      moved = request.file->write_at(request.offset, request.buffer);
    }
    IoResult out{.tag = request.tag};
    if (moved < 0) {
      out.error = static_cast<int>(-moved);
    } else {
      out.bytes = moved;
    }
    return out;
  }

  // Until something ended, wake() or the time has passed (-1: for ever); true: woken.
  bool sleep(int timeout_ms) {
    flush();
    std::array<pollfd, 2> fds{{{ring_.ring_fd, POLLIN, 0}, {wake_fd_, POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), timeout_ms) <= 0) return false;
    std::uint64_t count = 0;
    return (fds[1].revents & POLLIN) != 0 && ::read(wake_fd_, &count, sizeof count) > 0;
  }

  io_uring ring_;
  int wake_fd_;
  std::vector<iovec> registered_;
  std::vector<IoRequest> slots_;
  std::vector<std::size_t> free_;
  std::vector<IoResult> without_;  // requests of files without a descriptor
};

// kUnsupported: a kernel before 5.6.
Result<> check_operations(io_uring& ring) {
  io_uring_probe* probe = io_uring_get_probe_ring(&ring);
  if (probe == nullptr) return refused("no probe of operations", ENOSYS);
  bool has_all = true;
  for (const int op :
       {IORING_OP_READ,
        IORING_OP_WRITE,
        IORING_OP_READ_FIXED,
        IORING_OP_WRITE_FIXED,
        IORING_OP_FSYNC}) {
    has_all = has_all && io_uring_opcode_supported(probe, op) != 0;
  }
  io_uring_free_probe(probe);
  if (!has_all) return refused("an operation is missing", ENOSYS);
  return {};
}

}  // namespace

Result<std::unique_ptr<IoQueue>> make_uring_queue(int depth, std::span<std::byte> buffers) {
  CHECK(depth > 0 && depth <= 4096);
  io_uring ring{};
  const int code = io_uring_queue_init(static_cast<unsigned>(depth), &ring, 0);
  if (code != 0) return refused("the kernel or a seccomp profile refuses it", -code);
  const Result<> operations = check_operations(ring);
  const int wake_fd = operations ? ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
  if (wake_fd < 0) {
    const int reason = errno;
    io_uring_queue_exit(&ring);
    if (!operations) return tl::unexpected<Error>(operations.error());
    return refused("no eventfd", reason);
  }
  auto queue = std::make_unique<UringQueue>(ring, wake_fd, depth);
  queue->register_buffers(buffers);
  return queue;
}

}  // namespace artery::kvstore

#endif
