#pragma once
// What the engine knows about a request and its choices while they live. Plain state of the engine
// thread; the rules are in core.cc.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/chain_key.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/sequence_kv.h"
#include "engine/spec/speculation.h"
#include "engine/store_link.h"

namespace artery::engine {

// A checked request on its way to the engine thread.
struct Submission {
  RequestId id;
  Request request;
  std::shared_ptr<EventStream> events;                         // shared with the consumer
  std::vector<std::unique_ptr<codec::TokenMatcher>> matchers;  // one per choice, or empty
  ChainKey root{};                                             // of the request's namespace
  bool use_cache = false;                                      // prefix cache: match and offer
  MissReason bypass = MissReason::kNone;                       // why not, when !use_cache
  std::int64_t submitted_ns = 0;
};

struct Choice {
  Choice(KvSpaces& spaces, int number) : choice(number), kv(spaces) {}

  const int choice;
  SequenceKv kv;
  std::vector<TokenId> tokens;  // prompt, resumed and generated
  std::vector<ChainKey> keys;   // of whole pages, as far as known; with the prefix cache only
  bool running = false;
  bool blocked = false;  // the leader computes the shared prompt first
  bool done = false;     // its pages go once no step computes with it
  bool offering = true;  // false once the cache declined a page: its successors hang on nothing
  std::unique_ptr<codec::TokenMatcher> matcher;
  TokenHistory history;
  // Steps prepared and not completed that have rows of this choice, what they add to computed()
  // and to the tokens.
  int flights = 0;
  std::int64_t flight_rows = 0;
  std::int64_t flight_tokens = 0;
  std::size_t flight_item = 0;       // its place in the last of them that samples
  std::unique_ptr<Drafter> drafter;  // null: no speculation
  std::vector<TokenId> drafts;       // to be verified in the step being prepared
  bool promising = false;            // what is known now has a draft worth a step
  bool awaited = false;        // preempted in flight: not planned again before that step landed
  std::uint64_t kv_epoch = 0;  // counts the times its pages were given back
  // Window groups: what its start was chosen from, and whether a saved window lies there.
  std::int64_t start_pages = 0;
  std::uint64_t start_generation = 0;
  bool start_saved = false;
  // Windows in the store: the load it waits for, since when, and for how many pages it was decided.
  kvstore::LoadId window_load = 0;
  std::int64_t window_since_ns = 0;
  std::int64_t window_looked = 0;
  MissReason window_miss = MissReason::kNone;  // why it did not come
  StoreUse stored;
  std::int64_t preemptions = 0;
  std::int64_t admitted_ns = 0;     // 0: not yet
  std::int64_t first_token_ns = 0;  // 0: not yet
};

struct RequestState {
  explicit RequestState(Submission from) : in(std::move(from)) {}

  Submission in;
  std::uint64_t arrival = 0;
  std::vector<std::unique_ptr<Choice>> choices;
  std::size_t leader = 0;  // computes the prompt for the others
  bool forked = false;     // the prompt is computed; nobody waits for the leader
  std::int64_t max_tokens = 0;
  bool matched = false;  // the first look-up is done; cached_tokens and miss are final
  std::int64_t cached_tokens = 0;
  std::int64_t disk_tokens = 0;  // of cached_tokens
  MissReason miss = MissReason::kNone;
  double cache_lookup_s = 0, load_s = 0;
  std::int64_t guaranteed_until_s = 0;
  std::vector<PositionLogprobs> prompt_logprobs;  // of prompt tokens 1, 2, ... as they come

  std::int64_t prompt_tokens() const { return static_cast<std::int64_t>(in.request.prompt.size()); }
  bool wants_prompt_logprobs(const Choice& choice) const {
    return in.request.prompt_logprobs >= 0 && !forked && choice.choice == static_cast<int>(leader);
  }
  std::int64_t generated(const Choice& choice) const {
    return static_cast<std::int64_t>(choice.tokens.size()) - prompt_tokens();
  }
};

}  // namespace artery::engine
