#pragma once
// `eval --compare A,B`: what a way to go on after a prefix hit costs in quality. The same prompt is
// run twice from the same hit, once each way, and the distributions of the next token are compared
// row by row behind the hit. One thread.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/forward_driver.h"
#include "engine/window_shape.h"
#include "model/model.h"

namespace artery::cli {

struct HitSetting {
  enum class Way {
    kCold,    // no hit: every row runs
    kExact,   // windows are gone; as many rows run again as make them exact
    kReplay,  // windows are gone; the last `rows` run again
  };
  Way way = Way::kExact;
  int rows = 0;      // kReplay
  std::string name;  // as written
};

constexpr int kReplayRows = 128;  // DeepSeek's own bound

// "A,B", each of: cold, exact, replay, replay:N. `rows` stands for replay's N.
Result<std::array<HitSetting, 2>> parse_comparison(std::string_view text, int rows);

struct HitCase {
  std::vector<TokenId> tokens;
  std::int64_t hit = 0;     // tokens; cut to whole pages and to leave one token to compute
  std::int64_t greedy = 0;  // tokens to continue with after the last row
};

struct HitDifference {
  std::int64_t hit = 0;    // whole pages, in tokens
  std::vector<double> kl;  // a row: KL(A || B) in nats, from row `hit` on
  std::int64_t top1_equal = 0;
  std::int64_t greedy = 0;                       // tokens that each continued with
  std::int64_t greedy_equal = 0;                 // of them, before the first that differs
  std::array<std::int64_t, 2> rows_before = {};  // rows that ran before `hit`
};

class HitComparer {
 public:
  // `model` outlives it. `chunk`: most rows of a step. kOutOfMemory.
  static Result<std::unique_ptr<HitComparer>> make(
      model::Model& model, const std::array<HitSetting, 2>& settings, int chunk
  );

  // kInvalidArgument: the prompt has no whole page before its last token; kContextLength.
  Result<HitDifference> run(const HitCase& wanted);

 private:
  // One way through a prompt.
  struct Run {
    std::vector<TokenId> tokens;
    std::size_t done = 0;   // positions computed
    std::size_t ready = 0;  // positions whose global entries are there
    std::vector<PageId> pages;
    std::vector<PageId> window_pages;  // with `apart`
    bool apart = false;                // windows were gone at `window_first`
    std::size_t window_first = 0;
  };

  HitComparer(
      model::Model& model,
      const std::array<HitSetting, 2>& settings,
      std::size_t chunk,
      bench::KvMemory memory
  );
  Run begin(const HitSetting& setting, const Run& base, std::size_t hit) const;
  PageId take();
  void release(Run& run);
  // Runs `count` more rows; their logits [count, vocab] when `wanted`.
  void advance(Run& run, std::size_t count, bool wanted, std::vector<float>& logits);
  void advance_to(Run& run, std::size_t end);
  void compare_rows(std::array<Run, 2>& runs, HitDifference& out);
  void compare_greedy(std::array<Run, 2>& runs, const HitCase& wanted, HitDifference& out);

  model::Model& model_;
  const std::array<HitSetting, 2> settings_;
  const engine::WindowShape shape_;
  const std::size_t chunk_;
  mutable bench::KvMemory memory_;
  std::array<std::vector<float>, 2> logits_;
};

// KL(A || B) in nats between the softmax of two rows of logits; 0 exactly when they are equal.
double kl_divergence(std::span<const float> a, std::span<const float> b);

}  // namespace artery::cli
