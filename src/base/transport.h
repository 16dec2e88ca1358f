#pragma once
// The transport seam between nodes (P/D hand-over, peers, router): framed messages over a
// connection. No production implementation yet (one machine needs none); `testing::SimTransport` is
// the fake that fixes its meaning.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace artery {

struct Frame {
  std::uint16_t type = 0;
  std::uint16_t version = 1;
  std::uint64_t request_id = 0;
  std::uint64_t epoch = 0;
  std::int64_t deadline_ns = 0;
  std::vector<std::byte> payload;
};

class Channel {
 public:
  virtual ~Channel() = default;
  virtual Result<void> send(Frame frame
  ) = 0;  // kUnavailable when the peer is gone, kOverloaded when full
  virtual void on_receive(std::function<void(Frame)> handler) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual Result<std::unique_ptr<Channel>> connect(const std::string& address) = 0;
};

}  // namespace artery
