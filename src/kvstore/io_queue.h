#pragma once
// Asynchronous reads and writes of block files: io_uring where the kernel allows it, a small pool
// of threads with pread and pwrite elsewhere and for files that have no descriptor. One thread owns
// a queue; only wake() may be called by others.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"

namespace artery::kvstore {

struct IoRequest {
  enum class Kind : std::uint8_t { kRead, kWrite, kSync };
  Kind kind = Kind::kRead;
  BlockFile* file = nullptr;      // outlives the request
  std::int64_t offset = 0;        // multiple of 4096
  std::span<std::byte> buffer{};  // address and size multiples of 4096; outlives the request
  std::uint64_t tag = 0;
};

struct IoResult {
  std::uint64_t tag = 0;
  std::int64_t bytes = 0;  // short counts are passed on as they are
  int error = 0;           // errno; 0: none
};

class IoQueue {
 public:
  virtual ~IoQueue() = default;  // waits for what is under way
  // False: `depth` requests are under way.
  virtual bool submit(const IoRequest& request) = 0;
  // Appends what has ended; waits up to `timeout_ms` (-1: for ever) when nothing has.
  virtual void wait(std::vector<IoResult>& out, int timeout_ms) = 0;
  // Any thread: wait() returns soon.
  virtual void wake() = 0;
  virtual int in_flight() const = 0;
  virtual std::string_view name() const = 0;  // as StoreStatus::io
};

// `buffers`: the memory that requests will use, registered where the memlock limit allows it, else
// used as it is. kUnsupported: the kernel or a seccomp profile refuses io_uring, or the build has
// no liburing. Requests of files without a descriptor end with EBADF.
Result<std::unique_ptr<IoQueue>> make_uring_queue(int depth, std::span<std::byte> buffers);
std::unique_ptr<IoQueue> make_thread_queue(int depth, int threads);

}  // namespace artery::kvstore
