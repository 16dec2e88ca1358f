#include "kvstore/orders.h"

#include <gtest/gtest.h>

#include <vector>

#include "testing/fault_file_system.h"
#include "testing/sim_clock.h"

namespace artery::kvstore {
namespace {

class OrdersTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(files_.make_folder("store")); }
  std::int64_t now_s() const { return clock_.unix_ms() / 1000; }
  void poll() {
    box_.poll(now_s(), [&](const Order& order) {
      carried_.push_back(order);
      return answer_;
    });
  }
  Result<std::int64_t> ask_and_poll(const Order& order) {
    return ask("store", order, files_, clock_, [&](double) {
      poll();
      clock_.advance(0.1);
      return true;
    });
  }
  std::size_t left() const { return files_.paths("store/orders").size(); }

  testing::FaultFileSystem files_;
  testing::SimClock clock_;
  OrderBox box_{"store", files_};
  std::vector<Order> carried_;
  Result<std::int64_t> answer_ = std::int64_t{4096};
};

TEST_F(OrdersTest, AskedCarriedOutAnswered) {
  poll();  // no folder yet
  EXPECT_EQ(ask_and_poll({Order::Verb::kDropTenant, "acme \"&\" co\n"}).take(), 4096);
  EXPECT_EQ(ask_and_poll({Order::Verb::kCollect, {}}).take(), 4096);
  ASSERT_EQ(carried_.size(), 2u);
  EXPECT_EQ(carried_[0].verb, Order::Verb::kDropTenant);
  EXPECT_EQ(carried_[0].tenant, "acme \"&\" co\n");
  EXPECT_EQ(carried_[1].verb, Order::Verb::kCollect);
  EXPECT_EQ(left(), 0u);
}

TEST_F(OrdersTest, TheServersErrorComesBack) {
  answer_ = fail(Code::kIo, "the disk is \"sick\"");
  const auto answer = ask_and_poll({});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().message, "the disk is \"sick\"");
  EXPECT_EQ(left(), 0u);
}

TEST_F(OrdersTest, NobodyAnswers) {
  int waits = 0;
  const auto answer = ask("store", {}, files_, clock_, [&](double waited_s) {
    EXPECT_NEAR(waited_s, waits, 0.01);
    ++waits;
    clock_.advance(1);
    return true;
  });
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
  EXPECT_NEAR(waits, kOrderSeconds, 1);
  EXPECT_EQ(left(), 0u);  // withdrawn: nothing is carried out behind the user's back
  EXPECT_FALSE(ask("store", {}, files_, clock_, [](double) { return false; }));
  poll();
  EXPECT_TRUE(carried_.empty());
}

TEST_F(OrdersTest, WhatIsGivenUpBeforeItBeganIsNotCarriedOut) {
  const Order order{Order::Verb::kDropTenant, "acme"};
  const auto answer = ask("store", order, files_, clock_, [](double) { return false; });
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kCancelled);
  EXPECT_NE(answer.error().message.find("nothing was done"), std::string::npos);
  poll();
  EXPECT_TRUE(carried_.empty());
  EXPECT_EQ(left(), 0u);
}

// The server has read it, and loses the race for it.
TEST_F(OrdersTest, WhatIsWithdrawnWhileItIsReadIsNotCarriedOut) {
  files_.put("store/orders/0123456789abcdef.ask", order_line({}, now_s()));
  files_.inject({.ops = testing::Fault::kNames, .name = ".ask", .times = 1});
  poll();  // it cannot be taken
  EXPECT_TRUE(carried_.empty());
  poll();
  EXPECT_EQ(carried_.size(), 1u);
}

TEST_F(OrdersTest, WhatHasBegunIsNotTakenBackAndWaitedFor) {
  const auto slow = [&](const Order& order) {
    carried_.push_back(order);
    EXPECT_EQ(left(), 0u);  // taken
    return answer_;
  };
  // Given up in the middle of it: the answer is not there yet.
  const auto answer = ask("store", {}, files_, clock_, [&](double) {
    if (carried_.empty()) {
      files_.inject({.ops = testing::Fault::kNames, .name = ".done", .times = 1});
      box_.poll(now_s(), slow);
      return true;
    }
    clock_.advance(1);
    return false;
  });
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kIo);
  EXPECT_NE(answer.error().message.find("has begun"), std::string::npos);
  // Longer than an order waits to be taken.
  carried_.clear();
  int looks = 0;
  const auto late = ask("store", {}, files_, clock_, [&](double) {
    if (carried_.empty()) {
      files_.inject({.ops = testing::Fault::kNames, .name = ".done", .times = 1});
      box_.poll(now_s(), slow);
    }
    clock_.advance(10);
    if (++looks == 20) {
      return false;
    }
    return true;
  });
  EXPECT_EQ(looks, 20);  // 200 s
  EXPECT_EQ(late.error().code, Code::kIo);
}

TEST_F(OrdersTest, WhatDeadVerbsLeftIsRemoved) {
  const std::string old = order_line({Order::Verb::kDropTenant, "acme"}, now_s());
  files_.put("store/orders/0123456789abcdef.ask", old);
  files_.put("store/orders/1123456789abcdef.done", answer_line(std::int64_t{1}, now_s()));
  files_.put("store/orders/2123456789abcdef.ask", order_line({}, INT64_MIN));
  files_.put("store/orders/3123456789abcdef.ask", order_line({}, INT64_MAX));
  files_.put("store/orders/notes.txt", "mine");
  clock_.advance(kOrderSeconds + 1);
  poll();
  EXPECT_TRUE(carried_.empty());
  EXPECT_EQ(files_.paths("store/orders"), std::vector<std::string>{"store/orders/notes.txt"});
}

TEST_F(OrdersTest, MalformedOrdersAreAnsweredWithAnError) {
  const std::string now = std::to_string(now_s());
  const std::vector<std::string> bad = {
      "",
      "\n",
      "drop everything",
      "{}",
      "{\"order\":\"drop-tenant\",\"written_s\":" + now + "}",
      "{\"order\":\"drop-tenant\",\"tenant\":5,\"written_s\":" + now + "}",
      "{\"order\":\"drop-tenant\",\"tenant\":\"a\"}",
      "{\"order\":\"collect\",\"tenant\":\"a\",\"written_s\":" + now + "}",
      "{\"order\":\"format\",\"written_s\":" + now + "}",
      "{\"order\":\"collect\",\"written_s\":\"" + now + "\"}",
      "{\"order\":\"drop-tenant\",\"written_s\":" + now + ",\"tenant\":\"" +
          std::string(2000, 'x') + "\"}",
      "{\"order\":\"collect\",\"written_s\":" + now + "} {}",
      std::string(100'000, 'x'),
      std::string("\0\xff", 2),
  };
  for (std::size_t i = 0; i < bad.size(); ++i) {
    const std::string base = fmt::format("store/orders/{:016x}", i);
    files_.put(base + ".ask", bad[i]);
    poll();
    std::int64_t written_s = 0;
    const auto answer = parse_answer(files_.text(base + ".done"), written_s);
    ASSERT_TRUE(answer) << bad[i];
    EXPECT_FALSE(*answer) << bad[i];
    EXPECT_TRUE(files_.text(base + ".ask").empty() || bad[i].empty());
  }
  EXPECT_TRUE(carried_.empty());
  EXPECT_EQ(left(), bad.size());  // the answers
  // Names that are none are left alone.
  files_.put("store/orders/../x.ask", "{}");
  files_.put("store/orders/0123456789ABCDEF.ask", "{}");
  poll();
  EXPECT_EQ(left(), bad.size() + 2);
}

TEST_F(OrdersTest, AnAnswerThatCannotBeWrittenIsNotTheEnd) {
  files_.put("store/orders/0123456789abcdef.ask", order_line({}, now_s()));
  files_.inject({.ops = testing::Fault::kNames, .name = ".done"});
  poll();
  EXPECT_EQ(carried_.size(), 1u);
  files_.heal();
  poll();
  EXPECT_EQ(carried_.size(), 1u);
}

TEST_F(OrdersTest, ADeskLooksByItself) {
  {
    OrderDesk desk("store", files_, clock_, [&](const Order& order) {
      carried_.push_back(order);
      return answer_;
    });
    const auto answer = ask("store", {Order::Verb::kDropTenant, "x"}, files_, clock_, [](double) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return true;
    });
    EXPECT_EQ(answer.value_or(0), 4096);
  }
  ASSERT_EQ(carried_.size(), 1u);
  EXPECT_EQ(carried_[0].tenant, "x");
}

TEST_F(OrdersTest, AnswersThatAreNone) {
  std::int64_t written_s = 0;
  for (const char* bad :
       {"",
        "{}",
        "{\"written_s\":1}",
        "{\"bytes_freed\":1}",
        "{\"written_s\":1,\"bytes_freed\":1,\"error\":\"x\"}"})
    EXPECT_FALSE(parse_answer(bad, written_s)) << bad;
}

}  // namespace
}  // namespace artery::kvstore
