#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <thread>

#include "engine/engine_harness.h"
#include "testing/fake_token_matcher.h"
#include "testing/hash_model.h"
#include "testing/scripted_model.h"
#include "testing/seq_random.h"

namespace artery::engine {
namespace {

using testing::FakeTokenMatcher;
using testing::HashModel;
using testing::ScriptedModel;
using testing::SeqRandom;

constexpr std::int64_t kVocab = 97;

std::vector<TokenId> prompt_of(std::uint64_t seed, int length) {
  SeqRandom random(seed);
  std::vector<TokenId> tokens;
  for (int i = 0; i < length; ++i) {
    tokens.push_back(static_cast<TokenId>(random.between(0, kVocab - 1)));
  }
  return tokens;
}

Request greedy(std::vector<TokenId> prompt, std::int64_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  return request;
}

Config small_config(std::int64_t pages = 64) {
  Config config;
  config.max_model_len = 512;
  config.kv_pool_bytes = pages * HashModel::page_bytes();
  if (pages * kPageTokens < config.max_model_len) config.max_model_len = pages * kPageTokens;
  config.cache_secret = "test";
  return config;
}

std::unique_ptr<Engine> hash_engine(const Config& config) {
  auto engine = make_engine(std::make_unique<HashModel>(kVocab, 1024), config);
  EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
  return std::move(*engine);
}

TEST(Engine, SaysTheScript) {
  testing::ScriptedModelConfig script;
  script.vocab_size = 32;
  script.end_token = 2;
  script.script = {5, 6, 7, 5, 6, 8};
  auto model = std::make_unique<ScriptedModel>(script);
  model->add({20, 21}, {9, 10});
  auto engine = make_engine(std::move(model), Config{});
  ASSERT_TRUE(engine) << engine.error().message;
  Request request = greedy({3, 4, 3}, 20);
  request.sampling.stop_ids = {2};
  Answer answer = ask(**engine, request);
  EXPECT_EQ(answer.choices[0].tokens, script.script);
  EXPECT_EQ(answer.choices[0].finish->reason, FinishReason::kStop);
  EXPECT_EQ(answer.choices[0].finish->stop_token, 2);
  request.prompt = {3, 20, 21, 3};
  answer = ask(**engine, request);
  EXPECT_EQ(answer.choices[0].tokens, (std::vector<TokenId>{9, 10}));
}

TEST(Engine, GreedyAnswersRepeat) {
  auto engine = hash_engine(small_config());
  const Answer first = ask(*engine, greedy(prompt_of(1, 40), 30));
  ASSERT_EQ(first.choices.at(0).tokens.size(), 30u);
  EXPECT_EQ(first.choices.at(0).finish->reason, FinishReason::kLength);
  EXPECT_EQ(first.choices.at(0).finish->usage.cached_tokens, 0);
  EXPECT_EQ(first.choices.at(0).finish->usage.miss, MissReason::kCold);
  const Answer again = ask(*engine, greedy(prompt_of(1, 40), 30));
  EXPECT_EQ(again.choices.at(0).tokens, first.choices.at(0).tokens);
  EXPECT_EQ(again.choices.at(0).finish->usage.cached_tokens, 32);
  EXPECT_EQ(again.choices.at(0).finish->usage.miss, MissReason::kNone);
}

Result<RequestId> try_submit(Engine& engine, const Request& request) {
  return engine.submit(request, std::make_shared<EventStream>());
}

TEST(EngineSubmit, NamesWhatIsWrong) {
  auto engine = hash_engine(small_config());
  const auto field_of = [&](const std::function<void(Request&)>& change) {
    Request request = greedy({1, 2, 3}, 5);
    change(request);
    const auto id = try_submit(*engine, request);
    if (id) return std::string("accepted");
    EXPECT_EQ(id.error().code, Code::kInvalidArgument) << id.error().message;
    EXPECT_FALSE(id.error().message.empty());
    return id.error().field;
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(field_of([](Request& r) { r.prompt.clear(); }), "prompt");
  EXPECT_EQ(field_of([](Request& r) { r.prompt[1] = kVocab; }), "prompt");
  EXPECT_EQ(field_of([](Request& r) { r.prompt[1] = -1; }), "prompt");
  EXPECT_EQ(field_of([](Request& r) { r.n = 0; }), "n");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.min_tokens = 6; }), "min_tokens");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.min_tokens = 5; }), "accepted");
  EXPECT_EQ(field_of([](Request& r) { r.n = 1'000'000; }), "n");
  EXPECT_EQ(field_of([](Request& r) { r.max_tokens = 0; }), "max_tokens");
  EXPECT_EQ(field_of([](Request& r) { r.max_tokens = -2; }), "max_tokens");
  EXPECT_EQ(field_of([=](Request& r) { r.sampling.temperature = kNan; }), "temperature");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.temperature = -1; }), "temperature");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.top_p = 0; }), "top_p");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.top_p = 1.01; }), "top_p");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.min_p = -0.1; }), "min_p");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.top_k = -2; }), "top_k");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.repetition_penalty = 0; }), "repetition_penalty");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.logit_bias = {{-4, 1.0f}}; }), "logit_bias");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.stop_ids = {1000}; }), "stop_token_ids");
  EXPECT_EQ(field_of([](Request& r) { r.resume_tokens = {1}, r.n = 2; }), "resume_tokens");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.top_k = -1; }), "accepted");
  EXPECT_TRUE(engine->drain(10));
}

TEST(EngineSubmit, PromptBeyondTheContextSaysBothNumbers) {
  auto engine = hash_engine(small_config());
  const auto id = try_submit(*engine, greedy(prompt_of(1, 600), 5));
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code, Code::kContextLength);
  EXPECT_NE(id.error().message.find("600"), std::string::npos);
  EXPECT_NE(id.error().message.find("512"), std::string::npos);
  EXPECT_FALSE(try_submit(*engine, greedy(prompt_of(1, 512), 5)));
  // The last place of the context can be generated, and max_tokens is clipped to it (FR-E2).
  const Answer answer = ask(*engine, greedy(prompt_of(1, 500), 100'000));
  EXPECT_EQ(answer.choices.at(0).tokens.size(), 12u);
  EXPECT_EQ(answer.choices.at(0).finish->reason, FinishReason::kLength);
  EXPECT_EQ(ask(*engine, greedy(prompt_of(1, 511), -1)).choices.at(0).tokens.size(), 1u);
}

// A model whose forward waits until it is let go.
struct Gate {
  Mutex mu;
  CondVar cv;
  bool open GUARDED_BY(mu) = false;
  int entered GUARDED_BY(mu) = 0;

  void pass() {
    MutexLock lock(mu);
    ++entered;
    cv.notify_all();
    while (!open) cv.wait(mu);
  }
  void release() {
    MutexLock lock(mu);
    open = true;
    cv.notify_all();
  }
  void wait_entered() {
    MutexLock lock(mu);
    while (entered == 0) cv.wait(mu);
  }
};

std::unique_ptr<Engine> gated_engine(Gate& gate, const Config& config) {
  auto model = std::make_unique<HashModel>(kVocab, 1024);
  model->set_on_forward([&gate](const model::ForwardBatch&) { gate.pass(); });
  return std::move(*make_engine(std::move(model), config));
}

TEST(EngineSubmit, FullInboxRefusesAndDrainEnds) {
  Gate gate;
  Config config = small_config();
  config.inbox_max = 3;
  config.max_num_seqs = 1;
  auto engine = gated_engine(gate, config);
  auto first = std::make_shared<EventStream>();
  ASSERT_TRUE(engine->submit(greedy({1, 2}, 3), first));
  gate.wait_entered();
  std::vector<std::shared_ptr<EventStream>> queued;
  Result<RequestId> id = RequestId{};
  int accepted = 0;
  for (int i = 0; i < 10; ++i) {
    queued.push_back(std::make_shared<EventStream>());
    id = engine->submit(greedy({1, 2}, 3), queued.back());
    accepted += id ? 1 : 0;
  }
  // The engine thread counts the first one as running only after its step.
  EXPECT_GE(accepted, 2);
  EXPECT_LE(accepted, 3);
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code, Code::kOverloaded);
  EXPECT_EQ(engine->status().rejected, 10 - accepted);
  EXPECT_FALSE(engine->drain(0.01));
  const auto late = try_submit(*engine, greedy({1}, 1));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kUnavailable);
  EXPECT_TRUE(engine->status().draining);
  gate.release();
  EXPECT_TRUE(engine->drain(30));
  EXPECT_EQ(collect(*first, 1).choices[0].tokens.size(), 3u);
  for (int i = 0; i < accepted; ++i) {
    EXPECT_EQ(collect(*queued[static_cast<std::size_t>(i)], 1).choices[0].tokens.size(), 3u);
  }
  EXPECT_EQ(engine->status().running + engine->status().waiting, 0);
}

TEST(EngineCancelThreaded, QueuedAndRunningEndAndPagesReturn) {
  Gate gate;
  Config config = small_config();
  config.max_num_seqs = 1;
  auto engine = gated_engine(gate, config);
  auto running = std::make_shared<EventStream>();
  auto queued = std::make_shared<EventStream>();
  const auto a = engine->submit(greedy(prompt_of(1, 100), 400), running);
  const auto b = engine->submit(greedy(prompt_of(2, 100), 400), queued);
  gate.wait_entered();
  engine->cancel(*b);
  engine->cancel(*a);
  engine->cancel(*a);
  engine->cancel(RequestId{4711});
  gate.release();
  Answer answer = collect(*running, 1);
  EXPECT_EQ(answer.choices[0].finish->reason, FinishReason::kCancelled);
  EXPECT_LE(answer.choices[0].tokens.size(), 1u);
  EXPECT_EQ(collect(*queued, 1).choices[0].finish->reason, FinishReason::kCancelled);
  EXPECT_TRUE(engine->drain(10));
  EXPECT_EQ(engine->status().pages_in_use, 0);
  EXPECT_EQ(engine->status().aborted, 2);
  EXPECT_GE(engine->status().pages_cached, 6);  // the finished prefix stays in the cache
}

TEST(EngineCancelThreaded, FinishChoiceIsAStop) {
  Gate gate;
  auto engine = gated_engine(gate, small_config());
  auto events = std::make_shared<EventStream>();
  Request request = greedy({1, 2, 3}, 50);
  request.n = 2;
  const auto id = engine->submit(request, events);
  gate.wait_entered();
  engine->finish_choice(*id, 1);
  engine->finish_choice(*id, 7);
  gate.release();
  Answer answer = collect(*events, 2);
  EXPECT_EQ(answer.choices[1].finish->reason, FinishReason::kStop);
  EXPECT_EQ(answer.choices[1].finish->stop_token, -1);
  EXPECT_LT(answer.choices[1].tokens.size(), 50u);
  EXPECT_EQ(answer.choices[0].tokens.size(), 50u);
}

TEST(EngineEnd, DestructionCancelsWhatRuns) {
  auto events = std::make_shared<EventStream>();
  {
    auto engine = hash_engine(small_config());
    ASSERT_TRUE(engine->submit(greedy({1, 2, 3}, 500), events));
  }
  const Answer answer = collect(*events, 1);
  ASSERT_FALSE(answer.timed_out);
  const FinishReason reason = answer.choices.at(0).finish->reason;
  EXPECT_TRUE(reason == FinishReason::kCancelled || reason == FinishReason::kLength);
}

TEST(EngineEcho, PromptLogprobsBypassTheCache) {
  auto engine = hash_engine(small_config());
  Request request = greedy(prompt_of(3, 150), 4);
  ask(*engine, request);
  request.prompt_logprobs = 2;
  const Answer answer = ask(*engine, request);
  const ChoiceAnswer& choice = answer.choices.at(0);
  ASSERT_EQ(choice.prompt_logprobs.size(), 149u);
  for (std::size_t i = 0; i < 149; ++i) {
    EXPECT_EQ(choice.prompt_logprobs[i].chosen.token, request.prompt[i + 1]);
    EXPECT_LT(choice.prompt_logprobs[i].chosen.logprob, 0);
    EXPECT_EQ(choice.prompt_logprobs[i].top.size(), 2u);
  }
  EXPECT_EQ(choice.finish->usage.cached_tokens, 0);
  EXPECT_EQ(choice.finish->usage.miss, MissReason::kBypassed);
  EXPECT_EQ(choice.tokens.size(), 4u);
  request.max_tokens = 0;
  request.n = 2;
  const Answer only = ask(*engine, request);
  EXPECT_EQ(only.choices.at(0).prompt_logprobs.size(), 149u);
  EXPECT_TRUE(only.choices.at(0).tokens.empty());
  EXPECT_EQ(only.choices.at(1).finish->reason, FinishReason::kLength);
}

TEST(EngineStop, AnyOfTheStopIdsEnds) {  // FR-D6
  for (const TokenId end : {10, 11, 12}) {
    auto engine = hash_engine(small_config());
    Request request = greedy({1, 2, 3}, 32);
    request.sampling.logit_bias = {{end, 100.0f}};
    const Answer ignored = ask(*engine, request);
    EXPECT_EQ(ignored.choices.at(0).tokens.size(), 32u);
    EXPECT_EQ(ignored.choices.at(0).finish->reason, FinishReason::kLength);
    request.sampling.stop_ids = {10, 11, 12};
    const Answer answer = ask(*engine, request);
    EXPECT_TRUE(answer.choices.at(0).tokens.empty());
    EXPECT_EQ(answer.choices.at(0).finish->reason, FinishReason::kStop);
    EXPECT_EQ(answer.choices.at(0).finish->stop_token, end);
  }
}

TEST(EngineGrammar, HoldsAndErrsAlone) {
  auto engine = hash_engine(small_config());
  Request request = greedy({1, 2, 3}, 10);
  request.sampling.stop_ids = {0};
  request.make_matcher = [](int choice) {
    std::vector<std::vector<TokenId>> sets = {{5, 6}, {7}, {8, 9}};
    if (choice == 1) sets[1].clear();  // nothing may follow
    return std::make_unique<FakeTokenMatcher>(sets, 0);
  };
  request.n = 2;
  const Answer answer = ask(*engine, request);
  const ChoiceAnswer& good = answer.choices.at(0);
  ASSERT_EQ(good.tokens.size(), 3u);
  EXPECT_EQ(good.tokens[1], 7);
  EXPECT_EQ(good.finish->reason, FinishReason::kStop);
  const ChoiceAnswer& stuck = answer.choices.at(1);
  EXPECT_EQ(stuck.tokens.size(), 1u);
  EXPECT_EQ(stuck.finish->reason, FinishReason::kError);
  EXPECT_NE(stuck.finish->message.find("no token can follow"), std::string::npos);
  EXPECT_EQ(ask(*engine, greedy({1, 2, 3}, 10)).choices.at(0).tokens.size(), 10u);
}

TEST(EngineCache, UsageAndCountersAreHonest) {  // FR-E4
  auto engine = hash_engine(small_config());
  for (int round = 0; round < 2; ++round) {
    const Answer answer = ask(*engine, greedy(prompt_of(8, 400), 2));
    const Usage& usage = answer.choices.at(0).finish->usage;
    EXPECT_EQ(usage.prompt_tokens, 400);
    EXPECT_EQ(usage.cached_tokens, round == 0 ? 0 : 384);  // never the last token's page
    EXPECT_EQ(usage.generated_tokens, 2);
  }
  EXPECT_TRUE(engine->drain(10));
  const Status status = engine->status();
  EXPECT_EQ(status.prompt_tokens, 800);
  EXPECT_EQ(status.cached_tokens, 384);
  EXPECT_EQ(status.prefix_queries, 800);
  EXPECT_EQ(status.prefix_hits, 384);
  EXPECT_EQ(status.generated_tokens, 4);
  EXPECT_EQ(status.pages_in_use, 0);
  EXPECT_EQ(status.max_model_len, 512);
}

TEST(EngineCache, GeneratedTextIsFoundByTheNextTurn) {
  auto engine = hash_engine(small_config());
  std::vector<TokenId> prompt = prompt_of(8, 30);
  const Answer first = ask(*engine, greedy(prompt, 60));
  const auto& reply = first.choices.at(0).tokens;
  prompt.insert(prompt.end(), reply.begin(), reply.end());
  prompt.push_back(1);
  const Answer second = ask(*engine, greedy(prompt, 5));
  EXPECT_EQ(second.choices.at(0).finish->usage.cached_tokens, 80);
}

TEST(EngineCache, TenantsSaltsAndSwitchesSeparate) {
  auto engine = hash_engine(small_config());
  Request request = greedy(prompt_of(8, 100), 2);
  const auto cached = [&] {
    const Answer answer = ask(*engine, request);
    return std::pair(
        answer.choices.at(0).finish->usage.cached_tokens, answer.choices.at(0).finish->usage.miss
    );
  };
  EXPECT_EQ(cached(), std::pair(std::int64_t{0}, MissReason::kCold));
  EXPECT_EQ(cached(), std::pair(std::int64_t{96}, MissReason::kNone));
  request.tenant = "a";
  EXPECT_EQ(cached(), std::pair(std::int64_t{0}, MissReason::kCold));
  request.salt = "s";
  EXPECT_EQ(cached(), std::pair(std::int64_t{0}, MissReason::kCold));
  request.tenant = "as";
  request.salt = "";
  EXPECT_EQ(cached(), std::pair(std::int64_t{0}, MissReason::kCold));
  request.tenant = "";
  request.use_prefix_cache = false;
  EXPECT_EQ(cached(), std::pair(std::int64_t{0}, MissReason::kBypassed));
  request.use_prefix_cache = true;
  EXPECT_EQ(cached(), std::pair(std::int64_t{96}, MissReason::kNone));
  request.prompt[40] ^= 1;
  EXPECT_EQ(cached(), std::pair(std::int64_t{32}, MissReason::kDiverged));
  EXPECT_TRUE(engine->reset_prefix_cache());
  EXPECT_EQ(cached(), std::pair(std::int64_t{0}, MissReason::kEvicted));
  request.prompt.resize(16);
  EXPECT_EQ(cached(), std::pair(std::int64_t{0}, MissReason::kShort));
  Config off = small_config();
  off.enable_prefix_caching = false;
  engine = hash_engine(off);
  EXPECT_EQ(cached(), std::pair(std::int64_t{0}, MissReason::kDisabled));
  EXPECT_EQ(cached(), std::pair(std::int64_t{0}, MissReason::kDisabled));
}

// FR-E1: prompts that overflow the cache, mixed old and new, many at once.
TEST(EngineCache, OverflowUnderLoadNeverMixesConversations) {
  Config config = small_config(40);
  config.max_num_seqs = 32;
  auto engine = hash_engine(config);
  Config plain = small_config();
  plain.enable_prefix_caching = false;
  auto fresh = hash_engine(plain);
  std::map<std::uint64_t, std::vector<TokenId>> wanted;
  SeqRandom random(3);
  for (const int together : {2, 7, 32}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::pair<std::uint64_t, std::shared_ptr<EventStream>>> asked;
      for (int i = 0; i < together; ++i) {
        const auto seed = static_cast<std::uint64_t>(random.between(1, 60));
        const Request request = greedy(prompt_of(seed, 50), 8);
        if (!wanted.contains(seed)) wanted[seed] = ask(*fresh, request).choices.at(0).tokens;
        asked.emplace_back(seed, std::make_shared<EventStream>());
        ASSERT_TRUE(engine->submit(request, asked.back().second));
      }
      for (const auto& [seed, events] : asked) {
        const Answer answer = collect(*events, 1);
        ASSERT_EQ(answer.choices.at(0).tokens, wanted[seed]) << "prompt " << seed;
        EXPECT_LE(answer.choices.at(0).finish->usage.cached_tokens, 48);
      }
    }
  }
  EXPECT_GT(engine->status().prefix_hits, 0);
}

TEST(EngineThreads, ManyClientsSubmitCancelAndWatch) {
  Config config = small_config(80);
  config.max_num_seqs = 8;
  config.inbox_max = 1000;
  auto engine = hash_engine(config);
  std::atomic<int> wrong = 0;
  std::atomic<int> answered = 0;
  std::atomic<int> calls = 0;  // the last one may come after its event was taken
  const std::vector<TokenId> wanted = ask(*engine, greedy(prompt_of(77, 60), 12)).choices[0].tokens;
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      SeqRandom random(static_cast<std::uint64_t>(client));
      for (int i = 0; i < 60; ++i) {
        auto events = std::make_shared<EventStream>();
        events->set_notify([&calls] { ++calls; });
        const bool cancel = random.chance(0.4);
        const auto id = engine->submit(
            cancel ? greedy(prompt_of(random.next(), 60), 100) : greedy(prompt_of(77, 60), 12),
            events
        );
        if (!id) continue;
        if (cancel) engine->cancel(*id);
        const Answer answer = collect(*events, 1);
        if (answer.timed_out) ++wrong;
        ++answered;
        if (!cancel && answer.choices.at(0).tokens != wanted) ++wrong;
        if (engine->status().pages_total != 80) ++wrong;
        if (random.chance(0.1)) engine->reset_prefix_cache();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(engine->drain(10));
  EXPECT_EQ(engine->status().pages_in_use, 0);
  engine.reset();
  EXPECT_GE(calls, answered);
}

TEST(EngineObserver, CountsRowsOfEveryStep) {
  std::atomic<int> prefill = 0;
  std::atomic<int> decode = 0;
  Observer observer;
  observer.on_step = [&](const StepStats& stats) {
    prefill += stats.prefill_tokens;
    decode += stats.decode_tokens;
  };
  auto engine = std::move(*make_engine(
      std::make_unique<HashModel>(kVocab, 1024), small_config(), system_clock(), observer
  ));
  ask(*engine, greedy(prompt_of(1, 100), 10));
  EXPECT_TRUE(engine->drain(10));
  EXPECT_EQ(prefill, 100);
  EXPECT_EQ(decode, 9);
  EXPECT_GT(engine->status().steps, 9);
  EXPECT_EQ(engine->status().last_step_age_s, 0);
}

// A model whose every row takes half a millisecond: 80 rows would fill the 40 ms to the brim, where
// any delay makes the step too long.
TEST(EngineSteps, StayWellBelowTheirLimit) {
  auto model = std::make_unique<HashModel>(kVocab, 1024);
  model->set_on_forward([](const model::ForwardBatch& batch) {
    std::this_thread::sleep_for(std::chrono::microseconds(500 * batch.tokens.size()));
  });
  Config config = small_config();
  config.step_seconds_max = 0.04;
  std::atomic<int> most = 0;
  Observer observer;
  observer.on_step = [&](const StepStats& stats) {
    most = std::max(most.load(), stats.prefill_tokens);
  };
  auto engine = std::move(*make_engine(std::move(model), config, system_clock(), observer));
  ask(*engine, greedy(prompt_of(1, 400), 10));  // learns what rows cost
  most = 0;
  ask(*engine, greedy(prompt_of(2, 480), 2));
  EXPECT_GE(most, 2);
  EXPECT_LE(most, 60);
}

// A model that unpacks its weights in every step: no chunk keeps the limit, so a prompt must not go
// row by row.
TEST(EngineSteps, DearStepsTakeManyRows) {
  auto model = std::make_unique<HashModel>(kVocab, 1024);
  model->set_on_forward([](const model::ForwardBatch& batch) {
    std::this_thread::sleep_for(std::chrono::microseconds(30000 + 20 * batch.tokens.size()));
  });
  Config config = small_config();
  config.step_seconds_max = 0.02;
  auto engine = std::move(*make_engine(std::move(model), config));
  ask(*engine, greedy(prompt_of(1, 60), 4));
  const auto before = engine->status().steps;
  ask(*engine, greedy(prompt_of(2, 480), 1));
  EXPECT_LE(engine->status().steps - before, 40);
}

TEST(EventStream, MergesWhatAConsumerHasNotFetched) {
  EventStream events;
  int notified = 0;
  events.set_notify([&] { ++notified; });
  for (Position i = 0; i < 100; ++i) {
    Event event;
    event.choice = i % 2;
    event.first_position = i / 2 + 10;
    event.token_ids = {i};
    if (i == 99) event.finish = Finish{};
    events.push(std::move(event));
  }
  EXPECT_EQ(notified, 100);
  const auto first = events.poll();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->choice, 0);
  EXPECT_EQ(first->first_position, 10);
  EXPECT_EQ(first->token_ids.size(), 50u);
  EXPECT_FALSE(first->finish);
  const auto second = events.wait(0);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->token_ids[49], 99);
  EXPECT_TRUE(second->finish);
  EXPECT_FALSE(events.poll());
  EXPECT_FALSE(events.wait(1));
}

}  // namespace
}  // namespace artery::engine
