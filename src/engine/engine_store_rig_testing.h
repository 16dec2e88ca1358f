#pragma once
// What tests of the engine with a store share: a core over a fake model, a store in memory that
// outlives it, prompts, and the comparison of every answer with the same request's answer alone.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "engine/core_rig_testing.h"
#include "testing/mem_record_store.h"

namespace artery::engine {

class StoreRig : public ::testing::Test {
 protected:
  using Record = testing::MemRecordStore::Record;

  StoreRig() {
    load_.pages = 40;
    load_.record_pages = 4;
    load_.clock = &clock_;
    load_.config.store = store_;
  }
  // Another engine on the same store, set up as load_ says now.
  void restart() {
    rig_.reset();
    rig_.emplace(load_);
  }
  void new_store() {
    store_ = std::make_shared<testing::MemRecordStore>(clock_);
    load_.config.store = store_;
    restart();
  }
  void run() {
    for (int steps = 0; !rig_->core().idle(); ++steps) {
      ASSERT_LT(steps, 2000);
      rig_->step();
    }
  }
  Usage ask(const Request& request) {
    const auto events = rig_->add(request);
    run();
    return check(request, *events);
  }
  // Where the answer need not be that of the request alone.
  void ask_only(const Request& request) {
    rig_->add(request);
    run();
  }
  // That the answer is the one alone.
  Usage check(const Request& request, EventStream& events) {
    Answer got = collect(events, request.n, 0);
    const Answer wanted = alone(request, load_);
    EXPECT_FALSE(got.timed_out);
    for (int choice = 0; choice < request.n; ++choice) {
      EXPECT_EQ(got.choices[choice].tokens, wanted.choices.at(choice).tokens);
      EXPECT_TRUE(equal(got.choices[choice].logprobs, wanted.choices.at(choice).logprobs));
    }
    return got.choices[0].finish->usage;
  }
  // Prompts of a family begin alike.
  static Request prompt_of(int tokens, int family = 1) {
    Request request;
    SeqRandom text(static_cast<std::uint64_t>(family));
    for (int i = 0; i < tokens; ++i) {
      request.prompt.push_back(static_cast<TokenId>(text.between(0, kVocab - 1)));
    }
    request.max_tokens = 4;
    request.sampling.logprobs = 2;
    return request;
  }
  static ChainKey key(const Request& request, std::size_t pages) {
    return chain_keys(chain_root("secret", request.tenant), request.prompt)[pages - 1];
  }
  std::map<ChainKey, Record> records() const {
    std::map<ChainKey, Record> out;
    for (auto& record : store_->records()) out[record.facts.key] = record;
    return out;
  }
  std::vector<Record> windows() const {
    std::vector<Record> out;
    for (auto& record : store_->records()) {
      if (record.facts.kind == kvstore::RecordKind::kWindow) out.push_back(record);
    }
    return out;
  }
  void expect_accounts_add_up() const {
    const Status status = rig_->status();
    const std::int64_t missed =
        std::accumulate(status.miss_tokens.begin(), status.miss_tokens.end(), std::int64_t{0});
    EXPECT_EQ(status.hit_tokens_ram + status.hit_tokens_disk + missed, status.prompt_tokens);
    EXPECT_EQ(status.loads, status.loads_whole + status.loads_partial);
  }
  std::int64_t missed(MissReason why) const {
    return rig_->status().miss_tokens[static_cast<std::size_t>(why)];
  }

  SimClock clock_;
  std::shared_ptr<testing::MemRecordStore> store_ =
      std::make_shared<testing::MemRecordStore>(clock_);
  Load load_;
  std::optional<CoreRig> rig_;
};

}  // namespace artery::engine
