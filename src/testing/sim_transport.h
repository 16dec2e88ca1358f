#pragma once
// Transport between parties in one test: channels are delivered by deliver_one(), in an order
// drawn from the seed, and links can be cut. Fixes the meaning of base/transport.h: frames of one
// channel keep their order, a cut link loses what was under way, send() says so from then on.
// One thread.

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "base/transport.h"
#include "testing/seq_random.h"

namespace artery::testing {

class SimTransport final : public Transport {
 public:
  explicit SimTransport(std::uint64_t seed, std::size_t frames_max = 64)
      : random_(seed), frames_max_(frames_max) {}

  // The other ends of connections made to `address` are given to `accept`. They and the transport
  // must outlive each other's use.
  void listen(const std::string& address, std::function<void(std::unique_ptr<Channel>)> accept);
  Result<std::unique_ptr<Channel>> connect(const std::string& address) override;

  // Delivers one frame of a random channel; false when none is under way.
  bool deliver_one();
  // Loses all frames under way and makes every channel's send() kUnavailable.
  void cut_all();

 private:
  struct Pipe {  // one direction
    std::deque<Frame> frames;
    std::function<void(Frame)> handler;
    bool cut = false;
  };
  class End;

  SeqRandom random_;
  const std::size_t frames_max_;
  std::map<std::string, std::function<void(std::unique_ptr<Channel>)>> listeners_;
  std::vector<std::shared_ptr<Pipe>> pipes_;  // shared by the two ends and the transport
};

}  // namespace artery::testing
