#pragma once
// Which drafts a decode step verifies: what the user asked for, how often drafts came true so far,
// and whether a longer step is worth it by the measured cost of steps. Never changes output, only
// how many rows a step has. Engine thread only.

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "engine/spec/config.h"
#include "engine/spec/ngram.h"
#include "engine/step_cost.h"

namespace artery::engine {

// Drafts of one choice, and how they fared.
class Drafter {
 public:
  explicit Drafter(const SpeculationConfig& config);

  // At most `count` tokens that may follow `text`, which only ever grows.
  std::span<const TokenId> propose(std::span<const TokenId> text, int count) {
    return ngrams_.propose(text, count);
  }
  // The chance that a drafted token is accepted when those before it were.
  double acceptance() const { return accepted_ / (accepted_ + rejected_); }
  void observe(int drafted, int accepted);
  // A draft was there and not verified: the memory of bad ones fades, so that it is tried again.
  void pass();

 private:
  NgramIndex ngrams_;
  double accepted_, rejected_;  // of late, in tokens
};

// 1 + a + a^2 + ... + a^drafts: tokens that a step with so many drafts is expected to give.
double expected_tokens(double acceptance, int drafts);

// A decoding sequence's draft.
struct DraftWish {
  int drafts = 0;
  double acceptance = 0;
};

// The step that drafts would join: its rows and the positions they read, and how much longer steps
// with drafts took than `cost` says.
struct DraftCosts {
  const StepCost* cost = nullptr;
  std::int64_t rows = 0;
  std::int64_t context = 0;
  double bias = 1;
};

// The length 0 .. `most` to which all drafts are cut that gives the most tokens a second; 0: they
// do not pay.
int draft_length_that_pays(std::span<const DraftWish> wishes, const DraftCosts& costs, int most);

}  // namespace artery::engine
