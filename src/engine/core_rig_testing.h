#pragma once
// What property tests of Core share: Core over a fake model whose every bit depends on the KV it
// reads back, random requests and loads, and the comparison of every answer with the same request's
// answer alone. The parts of steps are interleaved as two threads could, on one thread, so a
// failing seed repeats. Pages that nobody holds are overwritten with garbage between the parts.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <deque>
#include <string>

#include "engine/core.h"
#include "engine/engine_harness.h"
#include "engine/pool_size.h"
#include "testing/fake_token_matcher.h"
#include "testing/hash_model.h"
#include "testing/seq_random.h"
#include "testing/sim_clock.h"
#include "testing/window_model.h"

namespace artery::engine {

using testing::HashModel;
using testing::SeqRandom;
using testing::SimClock;

inline constexpr std::int64_t kVocab = 61;
inline constexpr std::int64_t kPagesMin = 12;  // of a random pool; the context is as long

struct Load {
  Config config;
  std::int64_t pages = 64;
  std::uint64_t interleave = 0;  // not 0: steps are planned ahead, their parts mixed by this seed
  // Not empty: a WindowModel of these layers.
  std::string layers = {};
  int window = 0;
  bool empty_global = true;
  std::int64_t saved_pages = 0;  // window pages beyond those that running sequences can take
  int record_pages = 16;
  SimClock* clock = nullptr;  // one that outlives the rig, as a store in config needs
};

inline std::unique_ptr<model::Model> make_model(const Load& load) {
  if (load.layers.empty()) {
    auto model = std::make_unique<testing::HashModel>(kVocab, 4096);
    model->set_record_pages(load.record_pages);
    return model;
  }
  auto model = std::make_unique<testing::WindowModel>(
      kVocab, 4096, load.layers, load.window, load.empty_global
  );
  model->set_record_pages(load.record_pages);
  return model;
}

class CoreRig {
 public:
  explicit CoreRig(const Load& load)
      : config_(complete(load)),
        ahead_(load.interleave != 0),
        random_(load.interleave),
        clock_(load.clock != nullptr ? *load.clock : own_clock_),
        model_(make_model(load)),
        core_(
            *model_,
            std::move(*KvSpaces::make(model_->kv_layout(), load.pages, window_pages(load))),
            config_,
            clock_,
            Observer{}
        ) {}

  std::shared_ptr<EventStream> add(const Request& request) {
    Submission submission;
    submission.id = RequestId{next_id_++};
    submission.request = request;
    submission.events = std::make_shared<EventStream>();
    submission.submitted_ns = clock_.monotonic_ns();
    submission.root = chain_root("secret", request.tenant);
    submission.use_cache =
        config_.enable_prefix_caching && request.use_prefix_cache && request.prompt_logprobs < 0;
    if (submission.use_cache) {
      submission.request.chain_keys = chain_keys(submission.root, request.prompt);
    }
    for (int choice = 0; request.make_matcher && choice < request.n; ++choice) {
      submission.matchers.push_back(request.make_matcher(choice));
    }
    auto events = submission.events;
    core_.add(std::move(submission));
    return events;
  }
  RequestId last_id() const { return RequestId{next_id_ - 1}; }
  Core& core() { return core_; }
  SimClock& clock() { return clock_; }
  ~CoreRig() {
    while (!posted_.empty()) advance();
  }
  // One step; ahead: until one is completed or nothing is left to do.
  void step() {
    if (!ahead_) {
      core_.step();
    } else {
      while (!advance() && !core_.idle()) {
      }
      if (random_.chance(0.7) || core_.idle()) core_.deliver();
    }
    core_.check_integrity();
    spoil_free_pages();
    clock_.advance(0.01);
  }
  // What another thread's order does: plans anew what has not begun.
  void retract() {
    if (posted_.empty() || posted_.back().forwarded) return;
    core_.unprepare(std::move(posted_.back().work));
    posted_.pop_back();
    core_.check_integrity();
    if (core_.idle()) core_.deliver();
  }
  Status status() const {
    Status status;
    core_.fill(status);
    return status;
  }

 private:
  struct Posted {
    std::unique_ptr<StepWork> work;
    bool forwarded = false, armed = false, sampled = false;
  };

  // One of the parts that may come next, as two threads could run them. True: a step is completed.
  bool advance() {
    core_.check_integrity();
    spoil_free_pages();
    if (random_.chance(0.05)) retract();
    if (posted_.size() < 2 && (posted_.empty() || random_.chance(0.5))) {
      if (auto work = core_.prepare()) posted_.push_back({std::move(work)});
      return false;
    }
    Posted& first = posted_.front();
    const bool second_may = posted_.size() == 2 && first.sampled && !posted_[1].forwarded;
    if (second_may && random_.chance(0.5)) {
      run_forward(posted_[1]);
    } else if (!first.forwarded) {
      run_forward(first);
    } else if (!first.sampled) {
      if (!first.armed) core_.arm(*first.work);
      core_.runner().sample(*first.work);
      first.sampled = true;
    } else {
      core_.complete(std::move(first.work));
      posted_.pop_front();
      if (!posted_.empty() && random_.chance(0.5)) {
        core_.arm(*posted_.front().work);
        posted_.front().armed = true;
      }
      return true;
    }
    return false;
  }
  void run_forward(Posted& posted) {
    core_.runner().forward(*posted.work);
    posted.forwarded = true;
  }

  static void spoil(const KvPool& pool) {
    for (PageId page = 0; page < static_cast<PageId>(pool.pages_total()); ++page) {
      if (pool.references(page) > 0) continue;
      for (const tensor::KvPages& kv : pool.kv()) {
        const std::int64_t bytes = kv.geometry.page_bytes();
        if (bytes > 0) std::memset(kv.base + page * bytes, 0xA5, static_cast<std::size_t>(bytes));
      }
    }
  }
  // Not before a step ran that may read pages given back since it was planned.
  void spoil_free_pages() {
    for (const Posted& posted : posted_) {
      if (!posted.forwarded) return;
    }
    spoil(core_.spaces().global());
    if (core_.spaces().shape()) spoil(core_.spaces().window());
  }

  std::int64_t window_pages(const Load& load) const {
    const WindowShape shape = WindowShape::of(model_->kv_layout());
    if (!shape) return 0;
    return load.saved_pages +
           window_pages_running(
               shape, config_.max_num_seqs, config_.max_num_batched_tokens, config_.max_model_len
           );
  }
  static Config complete(const Load& load) {
    Config config = load.config;
    config.max_model_len = std::min(load.pages, kPagesMin) * kPageTokens;
    config.max_num_seqs = std::min(config.max_num_seqs, config.max_num_batched_tokens);
    return config;
  }

  const Config config_;
  const bool ahead_;
  SeqRandom random_;
  SimClock own_clock_;
  SimClock& clock_;
  std::unique_ptr<model::Model> model_;
  Core core_;
  std::deque<Posted> posted_;
  std::uint64_t next_id_ = 1;
};

// The request alone: plenty of pages, whole chunks, no cache.
inline Answer alone(Request request, const Load& of = {}) {
  request.deadline_ns = 0;
  Load load;
  load.layers = of.layers;
  load.window = of.window;
  load.config.enable_prefix_caching = false;
  load.config.max_num_seqs = 1;
  CoreRig rig(load);
  const auto events = rig.add(request);
  while (!rig.core().idle()) rig.step();
  return collect(*events, request.n, 0);
}

// Up to ten sets of allowed tokens, then token 5 without end; now and then a dead end.
inline std::function<std::unique_ptr<codec::TokenMatcher>(int)> random_grammar(std::uint64_t seed) {
  return [seed](int choice) {
    SeqRandom random(seed + static_cast<std::uint64_t>(choice));
    std::vector<std::vector<TokenId>> sets;
    for (std::int64_t left = random.between(0, 10); left > 0; --left) {
      std::vector<TokenId> allowed;
      for (std::int64_t i = random.chance(0.05) ? 0 : random.between(1, 20); i > 0; --i) {
        allowed.push_back(static_cast<TokenId>(random.between(0, kVocab - 1)));
      }
      sets.push_back(std::move(allowed));
    }
    return std::make_unique<testing::FakeTokenMatcher>(std::move(sets), 5);
  };
}

// Requests of a few families, so that prefixes are shared, cut and continued.
inline Request random_request(SeqRandom& random, std::int64_t tokens_max) {
  Request request;
  const auto family = static_cast<std::uint64_t>(random.between(1, 3));
  SeqRandom text(family);
  std::vector<TokenId> prompt;
  const std::int64_t length = random.between(1, tokens_max - 2);
  for (std::int64_t i = 0; i < length; ++i) {
    prompt.push_back(static_cast<TokenId>(text.between(0, kVocab - 1)));
  }
  // Pages with equal tokens at different places: only the chain tells them apart.
  if (random.chance(0.15)) std::fill(prompt.begin(), prompt.end(), 9);
  if (random.chance(0.4)) {
    auto& changed = prompt[static_cast<std::size_t>(random.between(0, length - 1))];
    changed = (changed + 1) % kVocab;
  }
  request.prompt = std::move(prompt);
  request.max_tokens = random.between(1, 40);
  request.priority = static_cast<int>(random.between(0, 2));
  request.n = random.chance(0.25) ? static_cast<int>(random.between(2, 4)) : 1;
  request.use_prefix_cache = random.chance(0.85);
  request.tenant = random.chance(0.2) ? "other" : "";
  SamplingParams& params = request.sampling;
  params.seed = random.next();
  params.temperature = random.chance(0.4) ? 0 : 1.2;
  if (random.chance(0.3)) params.top_k = static_cast<int>(random.between(1, 30));
  if (random.chance(0.3)) params.top_p = 0.7;
  if (random.chance(0.2)) params.repetition_penalty = 1.3;
  if (random.chance(0.2)) params.presence_penalty = 0.5;
  if (random.chance(0.3)) params.logprobs = 2;
  if (random.chance(0.3)) {
    params.stop_ids = {3, 7};
    params.min_tokens = static_cast<int>(random.between(0, 6));
  }
  // One or two tokens again and again: drafts come true, wholly or in part.
  if (random.chance(0.3)) {
    const std::int64_t kinds = random.between(1, 2);
    for (std::int64_t i = 0; i < kinds; ++i) {
      params.logit_bias.push_back({static_cast<TokenId>(random.between(0, kVocab - 1)), 100.0F});
    }
  }
  if (random.chance(0.2)) request.make_matcher = random_grammar(random.next());
  if (random.chance(0.1)) {
    request.prompt_logprobs = 1;
    if (random.chance(0.5)) request.max_tokens = 0;
  }
  return request;
}

inline bool equal(const PositionLogprobs& a, const PositionLogprobs& b) {
  if (a.chosen.token != b.chosen.token || a.chosen.logprob != b.chosen.logprob) return false;
  if (a.rank != b.rank || a.top.size() != b.top.size()) return false;
  for (std::size_t i = 0; i < a.top.size(); ++i) {
    if (a.top[i].token != b.top[i].token || a.top[i].logprob != b.top[i].logprob) return false;
  }
  return true;
}

inline bool equal(const std::vector<PositionLogprobs>& a, const std::vector<PositionLogprobs>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return equal(x, y);
         });
}

inline void check_equal(const Load& load, const Request& request, Answer got) {
  Answer wanted = alone(request, load);
  RC_ASSERT(!got.timed_out && !wanted.timed_out);
  for (int choice = 0; choice < request.n; ++choice) {
    const ChoiceAnswer& a = got.choices[choice];
    const ChoiceAnswer& b = wanted.choices[choice];
    RC_ASSERT(a.tokens == b.tokens);
    RC_ASSERT(a.in_order);
    RC_ASSERT(equal(a.logprobs, b.logprobs));
    RC_ASSERT(equal(a.prompt_logprobs, b.prompt_logprobs));
    RC_ASSERT(a.finish->reason == b.finish->reason);
    RC_ASSERT(a.finish->stop_token == b.finish->stop_token);
    RC_ASSERT(a.finish->message == b.finish->message);
    const Usage& usage = a.finish->usage;
    RC_ASSERT(usage.prompt_tokens == static_cast<std::int64_t>(request.prompt.size()));
    RC_ASSERT(usage.cached_tokens < usage.prompt_tokens);
    RC_ASSERT(usage.cached_tokens % kPageTokens == 0);
    RC_ASSERT(usage.generated_tokens == static_cast<std::int64_t>(a.tokens.size()));
  }
}

inline Load random_load(SeqRandom& random) {
  Load load;
  // Small enough that a few requests fill it.
  load.pages = random.chance(0.6) ? random.between(kPagesMin, 30) : 120;
  load.config.max_num_seqs = static_cast<int>(random.between(1, 12));
  load.config.max_num_batched_tokens = static_cast<int>(random.between(1, 200));
  constexpr int kChunks[] = {0, 1, 17, 64, 512};
  load.config.prefill_chunk_max = kChunks[random.between(0, 4)];
  load.config.enable_prefix_caching = random.chance(0.75);
  if (random.chance(0.7)) load.interleave = random.next() | 1;
  SpeculationConfig& drafts = load.config.speculation;
  if (random.chance(0.5)) drafts.mode = SpeculationMode::kAlways;
  if (random.chance(0.2)) drafts.mode = SpeculationMode::kWherePays;
  drafts.tokens = static_cast<int>(random.between(1, 6));
  drafts.match_min = static_cast<int>(random.between(1, 2));
  return load;
}

struct Pending {
  Request request;
  RequestId id;
  std::shared_ptr<EventStream> events;
};

// What an ended request said is the start of what it would have said, each choice was told its end,
// and ends it came to by itself are those of the whole answer.
inline void check_prefix(const Load& load, const Pending& one) {
  Answer got = collect(*one.events, one.request.n, 0);
  Answer wanted = alone(one.request, load);
  RC_ASSERT(!got.timed_out);
  for (int choice = 0; choice < one.request.n; ++choice) {
    const ChoiceAnswer& a = got.choices[choice];
    const ChoiceAnswer& b = wanted.choices[choice];
    RC_ASSERT(a.in_order && a.tokens.size() <= b.tokens.size());
    RC_ASSERT(std::equal(a.tokens.begin(), a.tokens.end(), b.tokens.begin()));
    RC_ASSERT(a.logprobs.empty() || a.logprobs.size() == a.tokens.size());
    const bool was_ended = a.finish->reason == FinishReason::kCancelled ||
                           (a.finish->reason == FinishReason::kStop && a.finish->stop_token < 0) ||
                           a.finish->reason == FinishReason::kDeadline;
    RC_ASSERT(was_ended || a.tokens == b.tokens);
  }
}

inline void run_load(const Load& load, SeqRandom& random, int requests, double cancel_chance) {
  CoreRig rig(load);
  std::vector<Pending> pending;
  std::vector<Pending> cancelled;
  int left = requests;
  while (left > 0 || !rig.core().idle()) {
    while (left > 0 && (rig.core().idle() || random.chance(0.3))) {
      Pending one;
      one.request = random_request(random, std::min<std::int64_t>(load.pages * kPageTokens, 180));
      if (cancel_chance > 0 && random.chance(0.1)) {
        one.request.deadline_ns = rig.clock().monotonic_ns() + random.between(1, 300'000'000);
      }
      one.events = rig.add(one.request);
      one.id = rig.last_id();
      (one.request.deadline_ns == 0 ? pending : cancelled).push_back(one);
      --left;
    }
    rig.step();
    if (random.chance(0.02)) rig.core().reset_prefix_cache();
    if (random.chance(0.1)) rig.retract();
    if (pending.empty() || !random.chance(cancel_chance)) continue;
    const auto at = random.between(0, static_cast<std::int64_t>(pending.size()) - 1);
    const Pending& chosen = pending[static_cast<std::size_t>(at)];
    if (random.chance(0.7)) {
      rig.core().cancel(chosen.id);
    } else {
      for (int choice = 0; choice < chosen.request.n; ++choice) {
        if (choice == 0 || random.chance(0.5)) rig.core().finish_choice(chosen.id, choice);
      }
    }
    rig.core().check_integrity();
    cancelled.push_back(pending[static_cast<std::size_t>(at)]);
    pending.erase(pending.begin() + at);
  }
  RC_ASSERT(rig.status().pages_in_use == 0);
  RC_ASSERT(rig.status().running == 0 && rig.status().waiting == 0);
  // Every prompt token of those that were admitted is a hit or a miss.
  const Status status = rig.status();
  std::int64_t tokens = status.hit_tokens_ram + status.hit_tokens_disk;
  for (const std::int64_t missed : status.miss_tokens) tokens += missed;
  RC_ASSERT(tokens <= status.prompt_tokens);
  if (cancel_chance == 0) RC_ASSERT(tokens == status.prompt_tokens);
  RC_ASSERT(status.loads == status.loads_whole + status.loads_partial);
  const bool exact = load.config.swa_replay < 0;
  for (const Pending& one : pending) {
    if (exact) check_equal(load, one.request, collect(*one.events, one.request.n, 0));
  }
  for (const Pending& one : cancelled) {
    if (exact) check_prefix(load, one);
  }
  rig.core().reset_prefix_cache();
  RC_ASSERT(rig.status().pages_cached == 0);
  RC_ASSERT(rig.status().window_pages_in_use == 0 && rig.status().window_pages_saved == 0);
}

}  // namespace artery::engine
