#include "testing/sim_transport.h"

#include <gtest/gtest.h>

namespace artery::testing {
namespace {

Frame frame_of(std::uint64_t id) {
  Frame frame;
  frame.request_id = id;
  return frame;
}

struct Peers {
  explicit Peers(SimTransport& transport) {
    transport.listen("b", [this](std::unique_ptr<Channel> channel) {
      far = std::move(channel);
      far->on_receive([this](Frame frame) { received.push_back(frame.request_id); });
    });
    near = std::move(*transport.connect("b"));
  }
  std::unique_ptr<Channel> near, far;
  std::vector<std::uint64_t> received;
};

TEST(SimTransport, KeepsTheOrderOfAChannel) {
  SimTransport transport(1);
  Peers peers(transport);
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(peers.near->send(frame_of(i)));
  EXPECT_TRUE(peers.received.empty());  // nothing arrives by itself
  while (transport.deliver_one()) {
  }
  ASSERT_EQ(peers.received.size(), 20u);
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(peers.received[i], i);
}

TEST(SimTransport, FullCutAndAbsentAreErrors) {
  SimTransport transport(1, 2);
  EXPECT_EQ(transport.connect("nobody").error().code, Code::kUnavailable);
  Peers peers(transport);
  ASSERT_TRUE(peers.near->send(frame_of(1)));
  ASSERT_TRUE(peers.near->send(frame_of(2)));
  EXPECT_EQ(peers.near->send(frame_of(3)).error().code, Code::kOverloaded);
  ASSERT_TRUE(transport.deliver_one());
  EXPECT_TRUE(peers.near->send(frame_of(4)));
  transport.cut_all();
  EXPECT_FALSE(transport.deliver_one());
  EXPECT_EQ(peers.received.size(), 1u);
  EXPECT_EQ(peers.near->send(frame_of(5)).error().code, Code::kUnavailable);
}

TEST(SimTransport, SendToAClosedPeerFails) {
  SimTransport transport(1);
  Peers peers(transport);
  peers.far.reset();
  EXPECT_EQ(peers.near->send(frame_of(1)).error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace artery::testing
