#pragma once
// Runs token sequences through a model for `eval`: several at once, prompts in chunks, prefixes
// from shared pages. By the row-invariance rule none of these settings changes a bit of the result;
// this is where a user, a test or a measurement can see it. One thread.

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/chain_key.h"
#include "base/result.h"
#include "bench/forward_driver.h"
#include "cli/eval_store.h"
#include "engine/window_shape.h"
#include "model/model.h"

namespace artery::cli {

struct EvalSettings {
  int batch = 1;       // sequences run together
  int chunk = 512;     // most prompt tokens of one sequence in a step
  bool cache = false;  // keep pages of finished sequences and start later ones from them
  // Sliding-window layers: a hit finds the entries of global groups only, and rows before it run
  // again: as many as make it exact, or with `swa_replay` >= 0 so many, which changes bits.
  bool windows_gone = false;
  int swa_replay = -1;
  // Where prefixes come from and go to instead of `cache`; outlives the runner. Null: nowhere. Of
  // sliding-window layers nothing is there: with windows_gone only.
  EvalStore* store = nullptr;
};

struct EvalCase {
  std::vector<TokenId> tokens;     // the prompt, then the forced tokens; not empty
  std::size_t prompt_count = 0;    // forced tokens are fed one a step, as decoding does
  std::vector<std::int64_t> rows;  // positions whose logits are wanted
  std::int64_t greedy = 0;         // tokens to continue with
  std::int64_t hit = 0;  // first compute this many tokens, then start again from their whole pages
};

struct EvalResult {
  std::vector<float> logits;  // [rows, vocab_size], in the order of EvalCase::rows
  std::vector<TokenId> greedy_tokens;
  std::vector<double> margins;     // best minus second logit of each greedy step
  std::int64_t cached_tokens = 0;  // whose rows were not run, thanks to shared pages
};

// Whole pages of finished sequences by chain key, oldest dropped first.
class EvalPageCache {
 public:
  explicit EvalPageCache(bench::KvMemory& memory) : memory_(&memory) {}
  ~EvalPageCache();
  EvalPageCache(const EvalPageCache&) = delete;
  EvalPageCache& operator=(const EvalPageCache&) = delete;

  // Pages of the longest known prefix, at most `pages_max`, each held once for the caller.
  std::vector<PageId> match(std::span<const TokenId> tokens, std::size_t pages_max);
  void insert(std::span<const TokenId> tokens, std::span<const PageId> pages);
  // Drops the oldest page that nobody else holds; false when there is none.
  bool drop_one();

 private:
  bench::KvMemory* memory_;
  std::list<std::pair<ChainKey, PageId>> entries_;  // oldest first
  std::unordered_map<ChainKey, PageId, ChainKeyHash> by_key_;
};

class EvalRunner {
 public:
  // `model` outlives the runner. `cache_bytes`: most KV kept for later sequences.
  static Result<std::unique_ptr<EvalRunner>> make(
      model::Model& model, EvalSettings settings, std::int64_t cache_bytes
  );

  bool has_room() const;
  bool is_idle() const { return lanes_.empty(); }
  // kContextLength, kInvalidArgument (a row or hit outside the tokens). Only when there is room.
  Result<> start(std::int64_t ticket, EvalCase wanted);
  // One forward call over all running sequences. Returns what finished.
  std::vector<std::pair<std::int64_t, EvalResult>> step();

 private:
  struct Lane {
    std::int64_t ticket = 0;
    EvalCase wanted;
    std::vector<TokenId> tokens;  // wanted.tokens and what was generated
    std::size_t done = 0;         // positions computed
    std::size_t stop = 0;         // phase one of a hit ends here; tokens.size() else
    std::vector<PageId> pages;
    // Where windows were gone: pages of the window groups from `window_first` on, and up to where
    // `pages` came with the hit.
    std::vector<PageId> window_pages;
    bool apart = false;
    std::size_t window_first = 0, ready = 0;
    std::vector<std::pair<std::int64_t, std::size_t>> rows;  // (position, output row), ascending
    EvalResult result;
  };
  EvalRunner(model::Model& model, EvalSettings settings, bench::KvMemory memory);
  Result<> check(const EvalCase& wanted) const;
  void start_from_cache(Lane& lane);
  bench::Slice next_slice(Lane& lane);
  void take_logits(Lane& lane, const bench::Slice& slice, std::span<const float> logits);
  void add_greedy(Lane& lane, std::span<const float> logits);
  void restart_from_hit(Lane& lane);
  void begin_at_hit(Lane& lane);
  void release_windows(Lane& lane);
  static bool continues_after(const Lane& lane, std::size_t position);
  bool finished(const Lane& lane) const;
  void finish(Lane& lane);
  PageId take_page();

  model::Model& model_;
  EvalSettings settings_;
  engine::WindowShape shape_;
  bench::KvMemory memory_;
  std::optional<EvalPageCache> cache_;  // uses memory_
  std::vector<Lane> lanes_;
  std::vector<float> logits_;
};

}  // namespace artery::cli
