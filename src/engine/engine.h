#pragma once
// The engine's one public header: Engine, Request, Event (design.md section 2; docs:
// ARCHITECTURE.md "one request"). An Engine owns one thread, the only one that changes engine
// state. submit() and cancel() may be called from any thread; events come back through each
// request's own EventStream. Prompts and replies are token ids here: the engine knows no text, no
// JSON and no sockets.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/chain_key.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/result.h"
#include "codec/grammar/token_matcher.h"
#include "engine/page_store.h"
#include "engine/spec/config.h"
#include "kvstore/record_store.h"
#include "model/model.h"

namespace artery::engine {

// How one choice is sampled. All noise is noise(seed, choice, position, token) (engine/noise.h), so
// a seed fixes the tokens whatever else runs.
struct SamplingParams {
  double temperature = 1.0;         // 0: greedy (argmax, lowest id wins a tie)
  double top_p = 1.0;               // (0, 1]
  int top_k = 0;                    // 0 or -1: off
  double min_p = 0.0;               // [0, 1]
  double presence_penalty = 0.0;    // over generated tokens
  double frequency_penalty = 0.0;   // over generated tokens
  double repetition_penalty = 1.0;  // over prompt and generated tokens; > 0
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::uint64_t seed = 0;  // the server draws one when the request has none
  int logprobs = -1;       // -1: none; k >= 0: the chosen token and the k best
  std::vector<TokenId>
      stop_ids;        // generation ends when one is sampled (end tokens unless ignore_eos)
  int min_tokens = 0;  // stop_ids cannot be sampled before this many tokens
};

using kvstore::MissReason;  // why a prompt, or its rest, was not served from cache
using kvstore::TtlClass;    // how long what a request leaves in the store lives after its last use

struct Request {
  std::string external_id;  // x-request-id, for logs only
  std::string tenant;       // no prefix is shared across tenants
  std::string salt;         // cache_salt narrows the tenant
  TtlClass ttl_class = TtlClass::kHour;
  bool guarantee = false;        // ttl_class was asked for: promise it (Usage::guaranteed_until_s)
  int priority = 0;              // lower runs first (vLLM's meaning)
  std::int64_t deadline_ns = 0;  // Clock::monotonic_ns; 0: none
  std::vector<TokenId> prompt;   // not empty
  std::vector<ChainKey> chain_keys;  // of the prompt's whole pages; empty: the engine computes them
  std::vector<TokenId>
      resume_tokens;  // already generated elsewhere; continues after them (fail-over)
  int n = 1;
  std::int64_t max_tokens =
      -1;  // -1: all that fits; clipped to the context; 0 only with prompt_logprobs (echo)
  SamplingParams sampling;
  int prompt_logprobs = -1;  // as logprobs, for every prompt token; bypasses the prefix cache
  bool use_prefix_cache = true;
  std::function<std::unique_ptr<codec::TokenMatcher>(int choice)>
      make_matcher;  // empty: unconstrained
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob =
      0;  // of the model's own distribution: before temperature, penalties, bias and truncation
};
struct PositionLogprobs {
  TokenLogprob chosen;
  std::int64_t rank = 0;          // 1 = most probable
  std::vector<TokenLogprob> top;  // best first, `logprobs` entries
};

enum class FinishReason { kStop, kLength, kCancelled, kDeadline, kError };
std::string_view name(FinishReason reason);  // "stop", "length", "abort", "deadline", "error"

using kvstore::name;

// queue_s: until the first admission, without load_s: waiting for the store.
struct Timings {
  double queue_s = 0, cache_lookup_s = 0, load_s = 0, prefill_s = 0, decode_s = 0;
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  // Prompt tokens whose rows were not run, thanks to the cache; <= prompt_tokens - 1. Rows that run
  // again to rebuild the windows of sliding-window layers are not among them.
  std::int64_t cached_tokens = 0;
  // Of cached_tokens: those that this request's own load brought from the store.
  std::int64_t disk_tokens = 0;
  std::int64_t generated_tokens = 0;  // of this choice, resumed ones too, its stop id not
  std::int64_t preemptions = 0;
  MissReason miss = MissReason::kNone;
  std::int64_t guaranteed_until_s = 0;  // unix seconds; 0: no promise was asked for, or refused
  Timings timings;
};

struct Finish {
  FinishReason reason = FinishReason::kStop;
  TokenId stop_token = -1;  // the stop id that ended it, not part of token_ids
  std::string message;      // kError
  Usage usage;
};

// What happened to one choice since the last event. Events of a choice come in order of position.
struct Event {
  int choice = 0;
  Position first_position = 0;  // position in the sequence of token_ids[0]
  std::vector<TokenId> token_ids;
  // Of the prompt, found in the cache; from the first token on. As Usage has it at the end.
  std::int64_t cached_tokens = 0;
  std::vector<PositionLogprobs> logprobs;  // one per token id, when asked for
  std::vector<PositionLogprobs>
      prompt_logprobs;           // one per prompt token but the first, once, when asked for
  std::optional<Finish> finish;  // last event of the choice
};

// The bounded link from the engine to one consumer: one pending event per choice; tokens that the
// consumer has not fetched yet are merged into it, so its size is bounded by max_tokens and the
// engine never waits for a consumer.
class EventStream {
 public:
  // Engine thread.
  void push(Event event);
  // Any one consumer thread. nullopt: nothing pending.
  std::optional<Event> poll();
  // Blocks until an event is pending or `timeout_ms` passed.
  std::optional<Event> wait(int timeout_ms);
  // Called (from the engine thread, without locks held) when an event becomes pending; must not
  // block.
  void set_notify(std::function<void()> notify);

 private:
  Mutex mu_;
  CondVar pending_cv_;
  std::map<int, Event> pending_ GUARDED_BY(mu_);
  std::function<void()> notify_ GUARDED_BY(mu_);
};

struct Config {
  std::int64_t max_model_len = 0;    // tokens; 0: the model's own context
  int max_num_seqs = 64;             // sequences running at once
  int max_num_batched_tokens = 512;  // tokens of one step
  std::int64_t kv_pool_bytes =
      0;                // 0: enough for max_model_len x 2, at most a quarter of free memory
  int inbox_max = 256;  // requests waiting; beyond: kOverloaded
  double step_seconds_max = 0.2;  // the chunk budget aims below this
  bool enable_prefix_caching = true;
  std::string cache_secret;  // root of the key chain; empty: random at start
  // The tier behind the RAM prefix cache; null: none. Then cache_secret is the store's.
  std::shared_ptr<kvstore::RecordStore> store;
  double window_ttl_s = 180;  // > 0; saved windows of sliding-window layers, since their last use
  bool windows_in_store = false;  // keep them in the store too
  // Rows run again before a hit whose window is gone, instead of as many as make it exact; -1:
  // exact. Other bits than a cold run: numerics_id says so, and nothing is shared with exact runs.
  // Without effect where there are no windows or where so many rows are exact.
  int swa_replay = -1;
  int prefill_chunk_max = 0;  // 0: free (tests force 1, 17, 64, 512)
  // Plan the next step, make its masks and deliver events while the current one computes, on a
  // thread of its own. Off: one after the other, the plain twin with the same answers.
  bool async_scheduling = true;
  // Drafts change how many rows a step has, never the output. Choices with a grammar or penalties
  // go without.
  SpeculationConfig speculation;
};

struct Status {
  int running = 0, waiting = 0;
  std::int64_t pages_total = 0;
  std::int64_t pages_in_use = 0;  // referenced by running sequences
  std::int64_t pages_cached = 0;  // kept only for the prefix cache, reclaimable
  // The page space of sliding-window layers, 0 without them: what running sequences hold, what only
  // saved windows hold (reclaimable), and how many of these there are.
  std::int64_t window_pages_total = 0, window_pages_in_use = 0, window_pages_saved = 0;
  std::int64_t windows_saved = 0;
  // Counters: prefix hits that went on from a saved window, and that had none; rows of prompts that
  // ran again to rebuild windows; saved windows whose time passed.
  std::int64_t windows_restored = 0, windows_rebuilt = 0, window_rows = 0, windows_expired = 0;
  // With swa_replay: rebuilds that were not exact, and the rows that exact ones had run more.
  std::int64_t windows_replayed = 0, window_rows_spared = 0;
  // With windows_in_store: windows offered and taken, found there and read, and given up.
  std::int64_t windows_stored = 0, windows_loaded = 0, windows_load_failed = 0;
  std::int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;  // counters since start
  std::int64_t preemptions = 0, aborted = 0, steps = 0, rejected = 0;
  std::int64_t prefix_queries = 0, prefix_hits = 0;  // tokens asked for and found
  // Of all prompts: tokens served by each tier, and the rest by reason. Their sum is prompt_tokens
  // of the requests that were admitted.
  std::int64_t hit_tokens_ram = 0, hit_tokens_disk = 0;
  std::array<std::int64_t, kvstore::kMissReasons> miss_tokens{};
  // The store: loads begun, ended whole, ended early; seconds that requests waited for them; loads
  // not begun because computing was predicted to be faster.
  std::int64_t loads = 0, loads_whole = 0, loads_partial = 0, loads_declined = 0;
  double load_wait_s = 0;
  std::int64_t records_offered = 0, records_refused = 0;
  double last_step_age_s =
      0;  // since the engine thread last finished a step or looked at its inbox
  bool draining = false;
  std::int64_t max_model_len = 0;
  double busy_s = 0, step_s_max = 0;  // seconds in forward and sampling; the longest step
  // Seconds in which there was work: of sampling; from the end of a forward to the next one's
  // start; of that, neither computing nor sampling. busy_s + idle_s is the whole.
  double sampling_s = 0, gap_s = 0, idle_s = 0;
  double idle_share = 0;  // idle_s of the whole, over the last 10 s or so of work
  int inbox_max = 0;      // Config's; a request with more prompts can never be taken
  // Speculation: verified drafts, their tokens, those accepted, and these by place in the draft.
  std::int64_t drafts = 0, draft_tokens = 0, accepted_tokens = 0;
  std::array<std::int64_t, kDraftTokensMax> accepted_at{};
};

// Observes what metrics count, on the engine thread; must not block.
struct StepStats {
  double seconds = 0;  // forward and sampling
  int prefill_tokens = 0, decode_tokens = 0;
  double sampling_seconds = 0;  // of `seconds`
  // Since the step before: from the end of its forward to the start of this one's, and of that
  // neither computing nor sampling. 0 when the engine had no work before.
  double gap_seconds = 0, idle_seconds = 0;
};
struct Observer {
  std::function<void(const StepStats&)> on_step;
};

class Engine {
 public:
  virtual ~Engine() = default;  // cancels what runs and joins the thread

  // Checks and enqueues. The prompt beyond the context: kContextLength with both numbers in the
  // message. Inbox full: kOverloaded. Draining: kUnavailable. Wrong values: kInvalidArgument.
  // `events` gets every event of the request.
  virtual Result<RequestId> submit(Request request, std::shared_ptr<EventStream> events) = 0;
  // Ends the request within one step; its choices finish with kCancelled. Unknown or finished ids
  // are ignored.
  virtual void cancel(RequestId id) = 0;
  // Ends one choice (a stop string matched in the text): it finishes with kStop and its pages stay
  // cached.
  virtual void finish_choice(RequestId id, int choice) = 0;

  virtual Status status() const = 0;
  virtual const model::ModelInfo& model_info() const = 0;
  virtual std::string numerics_id() const = 0;
  // Of the tier behind the RAM prefix cache; nullopt: there is none.
  virtual std::optional<kvstore::StoreStatus> store_status() const { return std::nullopt; }
  // Drops all unreferenced cached pages in RAM; waits for a step that has no request any more.
  // False when some are still in use.
  virtual bool reset_prefix_cache() = 0;
  // Refuses new requests, lets the running ones end. True when empty before `timeout_s`.
  virtual bool drain(double timeout_s) = 0;
  // Refuses new requests at once.
  virtual void begin_drain() = 0;
};

// `model` and `backend` are used by the engine thread only, from here on. kOutOfMemory when the
// pool does not fit.
Result<std::unique_ptr<Engine>> make_engine(
    std::unique_ptr<model::Model> model,
    Config config,
    const Clock& clock = system_clock(),
    Observer observer = {}
);

}  // namespace artery::engine
