#pragma once
// Gumbel-max sampling (design, "Numerics"): the token is the argmax over the filtered set of
// logit / T + noise(seed, choice, position, token). Order of the filters: logit bias, penalties,
// grammar mask, minimum length; then greedy, or temperature, top-k, top-p, min-p. Sums run in a
// fixed order (scan/logit_scan.h) with our own exp and log, so equal logits give equal tokens
// anywhere. Ties go to the lower id; NaN never wins. Owns scratch buffers of one thread: a step's
// rows are sampled by several, each with its own Sampler.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/scan/logit_scan.h"

namespace artery::engine {

// How often tokens occurred in one choice's text; what the penalties read.
class TokenHistory {
 public:
  void add_prompt(std::span<const TokenId> tokens);
  void add_generated(TokenId token) { ++counts_[token]; }
  // Occurrences among the generated tokens by id; 0 for those only in the prompt.
  const std::unordered_map<TokenId, std::int32_t>& counts() const { return counts_; }

 private:
  std::unordered_map<TokenId, std::int32_t> counts_;
};

// Whether `params` read the history at all.
bool uses_penalties(const SamplingParams& params);

struct SampleContext {
  const SamplingParams& params;
  int choice = 0;
  Position position = 0;                   // of the token to be drawn
  std::int64_t generated = 0;              // tokens of the choice before this one
  const TokenHistory* history;             // null when !uses_penalties
  const std::vector<std::uint32_t>* mask;  // of allowed tokens, [ceil(vocab / 32)]; null: all
};

struct Sampled {
  TokenId token = 0;
  PositionLogprobs logprobs;  // filled when params.logprobs >= 0
};

class Sampler {
 public:
  // logits [vocab], left unchanged. kInvalidArgument when every token is ruled out.
  Result<Sampled> sample(std::span<const float> logits, const SampleContext& context);

  // Log probabilities of the distribution in `logits` [vocab]: of `chosen`, its rank and the `top`
  // best. -inf where the model gives no chance.
  PositionLogprobs logprobs(std::span<const float> logits, TokenId chosen, int top);

  struct Candidate {
    float logit;
    TokenId token;
  };

 private:
  static bool better(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  }

  std::span<const float> adjust(std::span<const float> logits, const SampleContext& context);
  void apply_penalties(const SampleContext& context);
  void apply_mask(std::span<const std::uint32_t> mask);
  // Sets maxima_ and best_, which everything below reads, to those of this row.
  void look_at(std::span<const float> logits);
  TokenId draw(std::span<const float> logits, const SampleContext& context);
  void filter(std::span<const float> logits, const SampleContext& context);
  bool keep_mass(double wanted, float max, float scale);
  bool few_make_top_p(std::span<const float> logits, const SampleContext& context);
  Candidate top_p_cut(std::span<const float> logits, const SampleContext& context);
  void collect_from(std::span<const float> logits, float least);
  void select_top(std::span<const float> logits, std::size_t count);
  PositionLogprobs describe(std::span<const float> logits, TokenId chosen, int top);
  std::int64_t rank_of(std::span<const float> logits, TokenId chosen) const;

  const scan::Kernels& scan_ = scan::kernels();
  std::vector<float> adjusted_;  // [vocab]
  std::vector<float> maxima_;    // [ceil(vocab / scan::kBlock)]
  std::vector<float> order_;     // the same, while it is partly sorted
  TokenId best_ = -1;            // the largest logit's, the lowest on a tie; -1: none
  double whole_ = 0;             // sum of the row's weights
  std::vector<double> buckets_;
  std::vector<Candidate> candidates_;  // best first
};

}  // namespace artery::engine
