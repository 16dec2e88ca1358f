#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "engine/philox.h"
#include "engine/scan/logit_scan.h"
#include "tensor/math.h"

namespace artery::engine {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// NaN and -inf lose against everything; +inf must not turn differences into NaN.
float usable(float logit) {
  if (!(logit > kNever)) return kNever;
  return std::min(logit, std::numeric_limits<float>::max());
}

// Temperatures below this are as good as greedy; its inverse keeps 0 * scale = 0.
constexpr double kTemperatureMin = 1e-30;
float scale_of(double temperature) {
  return static_cast<float>(1.0 / std::max(temperature, kTemperatureMin));
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
  // 0: anything may win.
  std::uint32_t floor_of(double t) const {
    if (t < kLow + 1) return 0;
    return floor_[static_cast<std::size_t>(static_cast<int>(t) - kLow)];
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
    if (static_cast<std::uint32_t>(bits >> 32) < floor_.floor_of(t)) return;
    const double value =
        static_cast<double>(usable(logit)) / temperature_ + gumbel_of(uniform_of(bits));
    if (value > best_ || (value == best_ && token < winner_)) {
      best_ = value;
      winner_ = token;
    }
  }
  // All tokens of the row, which `maxima` describes, down to `cut`. Noise is drawn for 64 at a
  // time, and only those whose noise could make the best logit among them win are looked at.
  void enter_row(
      std::span<const float> logits, std::span<const float> maxima, const Sampler::Candidate& cut
  ) {
    const scan::NoiseKey key{
        context_.params.seed,
        static_cast<std::uint32_t>(context_.position),
        static_cast<std::uint32_t>(context_.choice)
    };
    for (std::size_t block = 0; block < maxima.size(); ++block) {
      const double t = best_ - static_cast<double>(usable(maxima[block])) / temperature_;
      if (!(maxima[block] > kNever) || maxima[block] < cut.logit || NoiseFloor::hopeless(t))
        continue;
      const std::size_t first = block * scan::kBlock;
      std::uint64_t able = scan_.noise_above(key, static_cast<TokenId>(first), floor_.floor_of(t));
      for (; able != 0; able &= able - 1) {
        const std::size_t at = first + static_cast<std::size_t>(std::countr_zero(able));
        if (at >= logits.size()) break;
        const auto token = static_cast<TokenId>(at);
        if (logits[at] > cut.logit || (logits[at] == cut.logit && token <= cut.token)) {
          enter(token, logits[at]);
        }
      }
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
  const scan::Kernels& scan_ = scan::kernels();
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
  look_at(row);
  if (best_ < 0) {
    return fail(
        Code::kInvalidArgument,
        "no token can follow at position {}: logit_bias, the grammar and min_tokens together rule "
        "out every token; relax one of them",
        context.position
    );
  }
  Sampled out;
  out.token = context.params.temperature > 0 ? draw(row, context) : best_;
  if (context.params.logprobs >= 0) {
    if (row.data() != logits.data()) look_at(logits);
    out.logprobs = describe(logits, out.token, context.params.logprobs);
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
  if (params.logit_bias.empty() && !penalties && context.mask == nullptr && !short_of_min) {
    return logits;
  }
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [token, bias] : params.logit_bias) {
    if (static_cast<std::size_t>(token) < adjusted_.size()) {
      adjusted_[static_cast<std::size_t>(token)] += bias;
    }
  }
  if (penalties) apply_penalties(context);
  if (context.mask != nullptr) apply_mask(*context.mask);
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

void Sampler::apply_mask(std::span<const std::uint32_t> mask) {
  for (std::size_t word = 0; word < mask.size(); ++word) {
    if (mask[word] == ~0u) continue;
    const std::size_t first = word * 32;
    const std::size_t end = std::min(first + 32, adjusted_.size());
    for (std::size_t i = first; i < end; ++i) {
      if ((mask[word] >> (i - first) & 1) == 0) adjusted_[i] = kNever;
    }
  }
}

void Sampler::look_at(std::span<const float> logits) {
  maxima_.resize((logits.size() + scan::kBlock - 1) / scan::kBlock);
  scan_.block_max(logits.data(), static_cast<std::int64_t>(logits.size()), maxima_.data());
  best_ = -1;
  const auto top = std::max_element(maxima_.begin(), maxima_.end());
  if (top == maxima_.end() || !(*top > kNever)) return;
  const std::size_t first = static_cast<std::size_t>(top - maxima_.begin()) * scan::kBlock;
  const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(first);
  best_ = static_cast<TokenId>(std::find(begin, logits.end(), *top) - logits.begin());
}

TokenId Sampler::draw(std::span<const float> logits, const SampleContext& context) {
  const SamplingParams& params = context.params;
  GumbelRace race(context, best_, logits[static_cast<std::size_t>(best_)]);
  const bool top_k = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits.size();
  if (!top_k && params.top_p >= 1 && params.min_p <= 0) {
    race.enter_row(logits, maxima_, {kNever, -1});
    return race.winner();
  }
  if (!top_k && params.min_p <= 0 && !few_make_top_p(logits, context)) {
    race.enter_row(logits, maxima_, top_p_cut(logits, context));
    return race.winner();
  }
  filter(logits, context);
  for (const Candidate& candidate : candidates_) race.enter(candidate.token, candidate.logit);
  return race.winner();
}

// Leaves the filtered set in candidates_. Each filter sees what the one before left.
void Sampler::filter(std::span<const float> logits, const SampleContext& context) {
  const SamplingParams& params = context.params;
  const float max = usable(logits[static_cast<std::size_t>(best_)]);
  const float scale = scale_of(params.temperature);
  const bool top_k = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits.size();
  if (top_k) {
    select_top(logits, static_cast<std::size_t>(params.top_k));
    if (params.top_p < 1) {
      double whole = 0;
      for (const Candidate& c : candidates_) whole += scan::weight(c.logit, max, scale);
      keep_mass(params.top_p * whole, max, scale);
    }
  } else if (params.top_p < 1) {
    if (!few_make_top_p(logits, context)) {
      const Candidate cut = top_p_cut(logits, context);
      collect_from(logits, cut.logit);
      std::erase_if(candidates_, [&](const Candidate& c) { return better(cut, c); });
    }
  } else {
    // What min-p leaves lies above this; a little lower, so that rounding loses none.
    const double least = max + params.temperature * (tensor::log_d(params.min_p) - 1e-3);
    collect_from(logits, static_cast<float>(least));
  }
  if (params.min_p > 0) {
    std::erase_if(candidates_, [&](const Candidate& candidate) {
      return static_cast<double>(scan::weight(candidate.logit, max, scale)) < params.min_p;
    });
  }
}

// Cuts candidates_, best first, behind the one with which their mass reaches `wanted`. False: it
// does not.
bool Sampler::keep_mass(double wanted, float max, float scale) {
  double mass = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    mass += scan::weight(candidates_[i].logit, max, scale);
    if (mass < wanted) continue;
    candidates_.resize(i + 1);
    return true;
  }
  return false;
}

// Top-p keeps the smallest set, best first, whose mass reaches top_p of the whole vocabulary's.
// Where a few tokens do, as in most text, they are left in candidates_.
bool Sampler::few_make_top_p(std::span<const float> logits, const SampleContext& context) {
  constexpr std::size_t kFew = 128;
  const float max = usable(logits[static_cast<std::size_t>(best_)]);
  const float scale = scale_of(context.params.temperature);
  const auto n = static_cast<std::int64_t>(logits.size());
  whole_ = scan_.sum_weights(logits.data(), n, max, scale);
  select_top(logits, kFew);
  return keep_mass(context.params.top_p * whole_, max, scale);
}

// The last token of that set where it is larger, after few_make_top_p. No sorting: the mass is
// counted in buckets of the logit, and only the bucket where it reaches top_p is put in order.
Sampler::Candidate Sampler::top_p_cut(std::span<const float> logits, const SampleContext& context) {
  constexpr std::size_t kBuckets = 1024;
  const double top_p = context.params.top_p;
  const float max = usable(logits[static_cast<std::size_t>(best_)]);
  const float scale = scale_of(context.params.temperature);
  // All tokens below this together weigh less than what top-p leaves out.
  const double share = (1 - top_p) * whole_ / static_cast<double>(logits.size());
  const double range = context.params.temperature * (1e-3 - tensor::log_d(share));
  collect_from(logits, static_cast<float>(max - range));
  const auto per_logit = static_cast<float>(static_cast<double>(kBuckets - 1) / range);
  const auto bucket_of = [&](const Candidate& c) {
    const float place = (max - usable(c.logit)) * per_logit;
    return std::min(kBuckets - 1, static_cast<std::size_t>(std::max(place, 0.0f)));
  };
  buckets_.assign(kBuckets, 0.0);
  for (const Candidate& c : candidates_)
    buckets_[bucket_of(c)] += scan::weight(c.logit, max, scale);
  double wanted = top_p * whole_;
  std::size_t last = 0;
  while (last + 1 < kBuckets && buckets_[last] < wanted) wanted -= buckets_[last++];
  std::erase_if(candidates_, [&](const Candidate& c) { return bucket_of(c) != last; });
  std::sort(candidates_.begin(), candidates_.end(), better);
  keep_mass(wanted, max, scale);
  // Nothing in the bucket: rounding at the very end of the mass, everything is kept.
  return candidates_.empty() ? Candidate{kNever, -1} : candidates_.back();
}

// All at `least` or above into candidates_, ascending by id. maxima_ tells which blocks have any.
void Sampler::collect_from(std::span<const float> logits, float least) {
  candidates_.clear();
  for (std::size_t block = 0; block < maxima_.size(); ++block) {
    if (!(maxima_[block] >= least) || !(maxima_[block] > kNever)) continue;
    const std::size_t first = block * scan::kBlock;
    const std::size_t end = std::min(first + scan::kBlock, logits.size());
    for (std::size_t i = first; i < end; ++i) {
      if (logits[i] >= least && logits[i] > kNever) {
        candidates_.push_back({logits[i], static_cast<TokenId>(i)});
      }
    }
  }
}

// The `count` best of the row into candidates_, best first, without sorting the row: `count` blocks
// have a maximum of at least the count-th largest one, so no worse value is among the best.
void Sampler::select_top(std::span<const float> logits, std::size_t count) {
  candidates_.clear();
  if (count == 0) return;
  float least = kNever;
  if (count < maxima_.size()) {
    order_ = maxima_;
    const auto nth = order_.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(order_.begin(), nth, order_.end(), std::greater<>());
    least = *nth;
  }
  collect_from(logits, least);
  if (candidates_.size() > count) {
    const auto nth = candidates_.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(candidates_.begin(), nth, candidates_.end(), better);
    candidates_.resize(count);
  }
  std::sort(candidates_.begin(), candidates_.end(), better);
}

PositionLogprobs Sampler::logprobs(std::span<const float> logits, TokenId chosen, int top) {
  look_at(logits);
  return describe(logits, chosen, top);
}

PositionLogprobs Sampler::describe(std::span<const float> logits, TokenId chosen, int top) {
  PositionLogprobs out;
  const auto n = static_cast<std::int64_t>(logits.size());
  const float max = best_ < 0 ? 0 : usable(logits[static_cast<std::size_t>(best_)]);
  const double log_sum = tensor::log_d(scan_.sum_weights(logits.data(), n, max, 1.0f));
  const auto of = [&](float logit) {
    const float value = usable(logit);
    if (best_ < 0 || value == kNever) return kNever;
    return static_cast<float>(static_cast<double>(value) - max - log_sum);
  };
  const float own = logits[static_cast<std::size_t>(chosen)];
  out.chosen = {chosen, of(own)};
  out.rank = rank_of(logits, chosen);
  select_top(logits, static_cast<std::size_t>(std::max(0, top)));
  for (const Candidate& c : candidates_) out.top.push_back({c.token, of(c.logit)});
  return out;
}

// 1 + how many are better, equal ones with a lower id among them. +inf counts as the largest float.
std::int64_t Sampler::rank_of(std::span<const float> logits, TokenId chosen) const {
  const auto at = static_cast<std::int64_t>(chosen);
  const auto after = static_cast<std::int64_t>(logits.size()) - at;
  const float own = usable(logits[static_cast<std::size_t>(chosen)]);
  std::int64_t rank = 1;
  if (own == kNever) {
    rank += at;
  } else {
    rank += scan_.count_above(logits.data(), at, std::nextafterf(own, kNever));
  }
  if (own < std::numeric_limits<float>::max()) {
    rank += scan_.count_above(logits.data() + at, after, own);
  }
  return rank;
}

}  // namespace artery::engine
