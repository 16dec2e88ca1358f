#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/philox.h"
#include "tensor/math.h"

namespace artery::engine {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// NaN and -inf lose against everything; +inf must not turn differences into NaN.
float usable(float logit) {
  if (!(logit > kNever)) return kNever;
  return std::min(logit, std::numeric_limits<float>::max());
}

// Index of the largest value, the lowest on a tie; -1 when nothing is above -inf.
TokenId argmax(std::span<const float> logits) {
  float best = kNever;
  TokenId token = -1;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best) {
      best = logits[i];
      token = static_cast<TokenId>(i);
    }
  }
  return token;
}

// exp((logit - max) / temperature), 0 for what was ruled out.
double weight(float logit, float max, double temperature) {
  const double x = (static_cast<double>(usable(logit)) - max) / temperature;
  return x < -700 ? 0.0 : tensor::exp_d(x);
}

// A token with score z needs noise of at least t = best - z to win. The table gives, for
// floor(t), bits that every uniform with such noise reaches: high words below it cannot win, and
// the two logarithms are saved. Slightly too low, so no winner is ever passed over.
class NoiseFloor {
 public:
  NoiseFloor() {
    for (int k = kLow; k < kHigh; ++k) {
      const double u = tensor::exp_d(-tensor::exp_d(-static_cast<double>(k)));
      const double bits = std::floor(u * (1.0 - 1e-9) * 0x1p32) - 2.0;
      floor_[static_cast<std::size_t>(k - kLow)] = bits > 0 ? static_cast<std::uint32_t>(bits) : 0;
    }
  }
  // Most tokens end here without even drawing noise.
  static bool hopeless(double t) { return t > kGumbelMax; }
  bool too_low(std::uint32_t high_word, double t) const {
    if (t < kLow + 1) return false;
    return high_word < floor_[static_cast<std::size_t>(static_cast<int>(t) - kLow)];
  }

 private:
  static constexpr int kLow = -1;  // floor(t) is cut toward zero, so only t >= 0 is looked up
  static constexpr int kHigh = 38;
  std::array<std::uint32_t, kHigh - kLow> floor_{};
};

const NoiseFloor& noise_floor() {
  static const NoiseFloor table;
  return table;
}

// argmax of logit / T + noise over the candidates that `at(i)` gives.
class GumbelRace {
 public:
  GumbelRace(const SampleContext& context, TokenId first, float logit)
      : context_(context), temperature_(context.params.temperature), winner_(first) {
    best_ = score(first, logit);
  }

  void enter(TokenId token, float logit) {
    const double t = best_ - static_cast<double>(usable(logit)) / temperature_;
    if (!(logit > kNever) || NoiseFloor::hopeless(t)) return;
    const std::uint64_t bits = noise_bits(block(token), token);
    if (floor_.too_low(static_cast<std::uint32_t>(bits >> 32), t)) return;
    const double value =
        static_cast<double>(usable(logit)) / temperature_ + gumbel_of(uniform_of(bits));
    if (value > best_ || (value == best_ && token < winner_)) {
      best_ = value;
      winner_ = token;
    }
  }
  TokenId winner() const { return winner_; }

 private:
  double score(TokenId token, float logit) {
    return static_cast<double>(usable(logit)) / temperature_ +
           gumbel_of(uniform_of(noise_bits(block(token), token)));
  }
  const PhiloxBlock& block(TokenId token) {
    if (token >> 1 != pair_) {
      pair_ = token >> 1;
      block_ = noise_block(
          context_.params.seed,
          static_cast<std::uint32_t>(context_.choice),
          context_.position,
          pair_
      );
    }
    return block_;
  }

  const SampleContext& context_;
  const double temperature_;
  const NoiseFloor& floor_ = noise_floor();
  TokenId winner_;
  double best_ = 0;
  std::int32_t pair_ = -1;
  PhiloxBlock block_{};
};

}  // namespace

void TokenHistory::add_prompt(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) counts_.try_emplace(token, 0);
}

bool uses_penalties(const SamplingParams& params) {
  return params.presence_penalty != 0 || params.frequency_penalty != 0 ||
         params.repetition_penalty != 1;
}

Result<Sampled> Sampler::sample(std::span<const float> logits, const SampleContext& context) {
  const std::span<const float> row = adjust(logits, context);
  const TokenId best = argmax(row);
  if (best < 0) {
    return fail(
        Code::kInvalidArgument,
        "no token can follow at position {}: logit_bias, the grammar and min_tokens together rule "
        "out every token; relax one of them",
        context.position
    );
  }
  Sampled out;
  out.token = context.params.temperature > 0 ? draw(row, best, context) : best;
  if (context.params.logprobs >= 0) {
    out.logprobs = this->logprobs(logits, out.token, context.params.logprobs);
  }
  return out;
}

// The row itself when nothing changes it, else a changed copy.
std::span<const float> Sampler::adjust(
    std::span<const float> logits, const SampleContext& context
) {
  const SamplingParams& params = context.params;
  const bool short_of_min = context.generated < params.min_tokens && !params.stop_ids.empty();
  const bool penalties = context.history != nullptr && uses_penalties(params);
  if (params.logit_bias.empty() && !penalties && context.matcher == nullptr && !short_of_min) {
    return logits;
  }
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [token, bias] : params.logit_bias) {
    if (static_cast<std::size_t>(token) < adjusted_.size()) {
      adjusted_[static_cast<std::size_t>(token)] += bias;
    }
  }
  if (penalties) apply_penalties(context);
  if (context.matcher != nullptr) apply_mask(*context.matcher);
  if (short_of_min) {
    for (const TokenId token : params.stop_ids) {
      if (static_cast<std::size_t>(token) < adjusted_.size()) {
        adjusted_[static_cast<std::size_t>(token)] = kNever;
      }
    }
  }
  return adjusted_;
}

// Repetition as in CTRL (arXiv 1909.05858, as transformers computes it: divide what is positive,
// multiply what is negative); frequency and presence as OpenAI documents them.
void Sampler::apply_penalties(const SampleContext& context) {
  const SamplingParams& params = context.params;
  for (const auto& [token, count] : context.history->counts()) {
    if (static_cast<std::size_t>(token) >= adjusted_.size()) continue;
    float& logit = adjusted_[static_cast<std::size_t>(token)];
    double value = logit;
    if (params.repetition_penalty != 1) {
      value = value > 0 ? value / params.repetition_penalty : value * params.repetition_penalty;
    }
    if (count > 0) value -= params.frequency_penalty * count + params.presence_penalty;
    logit = static_cast<float>(value);
  }
}

void Sampler::apply_mask(codec::TokenMatcher& matcher) {
  mask_.assign((adjusted_.size() + 31) / 32, 0);
  matcher.fill_mask(mask_);
  for (std::size_t i = 0; i < adjusted_.size(); ++i) {
    if ((mask_[i / 32] >> (i % 32) & 1) == 0) adjusted_[i] = kNever;
  }
}

TokenId Sampler::draw(std::span<const float> logits, TokenId best, const SampleContext& context) {
  const SamplingParams& params = context.params;
  const float max = logits[static_cast<std::size_t>(best)];
  GumbelRace race(context, best, max);
  const bool top_k = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits.size();
  if (!top_k && params.top_p >= 1 && params.min_p <= 0) {
    for (std::size_t i = 0; i < logits.size(); ++i) race.enter(static_cast<TokenId>(i), logits[i]);
    return race.winner();
  }
  filter(logits, best, context);
  for (const Candidate& candidate : candidates_) race.enter(candidate.token, candidate.logit);
  return race.winner();
}

// Leaves the filtered set in candidates_. Each filter sees what the one before left.
void Sampler::filter(std::span<const float> logits, TokenId best, const SampleContext& context) {
  const SamplingParams& params = context.params;
  const float max = usable(logits[static_cast<std::size_t>(best)]);
  const bool top_k = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits.size();
  if (top_k) select_top(logits, static_cast<std::size_t>(params.top_k));
  if (params.top_p < 1) {
    filter_top_p(logits, max, context);
  } else if (!top_k) {
    candidates_.clear();
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] > kNever) candidates_.push_back({logits[i], static_cast<TokenId>(i)});
    }
  }
  if (params.min_p > 0) {
    std::erase_if(candidates_, [&](const Candidate& candidate) {
      return weight(candidate.logit, max, params.temperature) < params.min_p;
    });
  }
}

// The smallest set, best first, whose mass reaches top_p of the whole. The whole is what top-k left
// or the vocabulary; of the latter only as much is sorted as the set needs.
void Sampler::filter_top_p(std::span<const float> logits, float max, const SampleContext& context) {
  const SamplingParams& params = context.params;
  const bool top_k = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits.size();
  double whole = 0;
  if (top_k) {
    for (const Candidate& c : candidates_) whole += weight(c.logit, max, params.temperature);
  } else {
    for (const float logit : logits) whole += weight(logit, max, params.temperature);
  }
  const double wanted = params.top_p * whole;
  for (std::size_t count = 128;; count *= 8) {
    if (!top_k) select_top(logits, count);
    double mass = 0;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      mass += weight(candidates_[i].logit, max, params.temperature);
      if (mass >= wanted) {
        candidates_.resize(i + 1);
        return;
      }
    }
    if (top_k || count >= logits.size()) return;
  }
}

// The `count` best of the row into candidates_, best first, without sorting the row: a buffer of
// twice the size is cut to its best half whenever it is full. A later equal value has a higher id
// and loses, so it never passes the cut.
void Sampler::select_top(std::span<const float> logits, std::size_t count) {
  candidates_.clear();
  if (count == 0) return;
  const std::size_t full = 2 * count + 64;
  bool cut = false;
  float lowest = kNever;
  const auto nth = static_cast<std::ptrdiff_t>(count);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > kNever) || (cut && !(logits[i] > lowest))) continue;
    candidates_.push_back({logits[i], static_cast<TokenId>(i)});
    if (candidates_.size() < full) continue;
    std::nth_element(candidates_.begin(), candidates_.begin() + nth - 1, candidates_.end(), better);
    candidates_.resize(count);
    lowest = candidates_.back().logit;
    cut = true;
  }
  if (candidates_.size() > count) {
    std::nth_element(candidates_.begin(), candidates_.begin() + nth - 1, candidates_.end(), better);
    candidates_.resize(count);
  }
  std::sort(candidates_.begin(), candidates_.end(), better);
}

PositionLogprobs Sampler::logprobs(std::span<const float> logits, TokenId chosen, int top) {
  PositionLogprobs out;
  const TokenId best = argmax(logits);
  const float max = best < 0 ? 0 : usable(logits[static_cast<std::size_t>(best)]);
  double sum = 0;
  for (const float logit : logits) sum += weight(logit, max, 1.0);
  const double log_sum = tensor::log_d(sum);
  const auto of = [&](float logit) {
    const float value = usable(logit);
    if (best < 0 || value == kNever) return kNever;
    return static_cast<float>(static_cast<double>(value) - max - log_sum);
  };
  const float own = usable(logits[static_cast<std::size_t>(chosen)]);
  out.chosen = {chosen, of(own)};
  out.rank = 1;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float other = usable(logits[i]);
    if (other > own || (other == own && static_cast<TokenId>(i) < chosen)) ++out.rank;
  }
  select_top(logits, static_cast<std::size_t>(std::max(0, top)));
  for (const Candidate& c : candidates_) out.top.push_back({c.token, of(c.logit)});
  return out;
}

}  // namespace artery::engine
