// Loads on which an engine could stand still: every answer must come.

#include <gtest/gtest.h>

#include <chrono>

#include "engine/engine.h"
#include "subject.h"
#include "testing/hash_model.h"
#include "trace.h"

namespace artery::exactness {
namespace {

using engine::EventStream;
using engine::Request;

constexpr std::int64_t kPages = 12;

Request request(TokenId first, std::size_t length, std::int64_t max_tokens) {
  Request out;
  out.prompt.assign(length, 7);
  out.prompt[0] = first;
  out.max_tokens = max_tokens;
  out.sampling.temperature = 0;
  return out;
}

std::shared_ptr<EventStream> submit(engine::Engine& engine, Request asked) {
  auto events = std::make_shared<EventStream>();
  const auto id = engine.submit(std::move(asked), events);
  EXPECT_TRUE(id) << id.error().message;
  return events;
}

bool finishes(EventStream& events) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  Trace trace(1);
  while (!trace.finished()) {
    if (const auto event = events.wait(100)) trace.absorb(*event);
    if (std::chrono::steady_clock::now() > until) return false;
  }
  return true;
}

// Two that wait hold the same cached pages, and the one that runs needs one of those: none of the
// two can give it alone, and both find the pages again as soon as they look.
TEST(Progress, WaitingOnesThatShareCachedPagesGiveThemUp) {
  auto model = std::make_unique<testing::HashModel>(61, 4096);
  Gate gate;
  model->set_on_forward([&](const model::ForwardBatch&) { gate.pass(); });
  engine::Config config;
  config.kv_pool_bytes = kPages * testing::HashModel::page_bytes();
  auto engine = engine::make_engine(std::move(model), config);
  ASSERT_TRUE(engine) << engine.error().message;
  ASSERT_TRUE(finishes(*submit(**engine, request(1, 129, 1))));  // 8 pages in the cache
  gate.close();
  const auto runs = submit(**engine, request(2, 16, 60));  // 5 pages in the end
  EXPECT_TRUE(gate.wait_for_step());
  const auto waits = submit(**engine, request(1, 168, 8));
  const auto waits_too = submit(**engine, request(1, 168, 8));
  gate.open();
  EXPECT_TRUE(finishes(*runs));
  EXPECT_TRUE(finishes(*waits));
  EXPECT_TRUE(finishes(*waits_too));
}

}  // namespace
}  // namespace artery::exactness
