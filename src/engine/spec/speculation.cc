#include "engine/spec/speculation.h"

#include <algorithm>

namespace artery::engine {
namespace {

// What is believed of a choice whose drafts were not tried: four of five tokens come true, as much
// as a handful of drafts can overturn.
constexpr double kAcceptedAtFirst = 4;
constexpr double kRejectedAtFirst = 1;
constexpr double kRemembered = 0.85;  // share of what was known that a verified draft leaves
constexpr double kForgiven = 0.02;    // share that a draft passed over moves towards the beginning
constexpr double kMargin = 1.05;      // gain below which a prediction is not trusted

}  // namespace

Drafter::Drafter(const SpeculationConfig& config)
    : ngrams_(config.match_min, config.match_max),
      accepted_(kAcceptedAtFirst),
      rejected_(kRejectedAtFirst) {}

void Drafter::observe(int drafted, int accepted) {
  accepted_ = kRemembered * accepted_ + accepted;
  rejected_ = kRemembered * rejected_ + (accepted < drafted ? 1 : 0);
  // Never sure: one more draft must be able to change it.
  accepted_ = std::max(accepted_, 0.05);
  rejected_ = std::max(rejected_, 0.05);
}

void Drafter::pass() {
  accepted_ += kForgiven * (kAcceptedAtFirst - accepted_);
  rejected_ += kForgiven * (kRejectedAtFirst - rejected_);
}

double expected_tokens(double acceptance, int drafts) {
  double sum = 1;
  double chance = 1;
  for (int i = 0; i < drafts; ++i) {
    chance *= acceptance;
    sum += chance;
  }
  return sum;
}

int draft_length_that_pays(std::span<const DraftWish> wishes, const DraftCosts& costs, int most) {
  const auto seconds = [&](std::int64_t more) {
    const double mean = static_cast<double>(costs.context) /
                        static_cast<double>(std::max<std::int64_t>(1, costs.rows));
    const auto context = costs.context + static_cast<std::int64_t>(mean) * more;
    return costs.cost->predict(costs.rows + more, context) * (more > 0 ? costs.bias : 1);
  };
  const double tokens_plain = static_cast<double>(costs.rows);
  double best_rate = kMargin * tokens_plain / seconds(0);
  int best = 0;
  for (int length = 1; length <= most; ++length) {
    double tokens = tokens_plain;
    std::int64_t more = 0;
    for (const DraftWish& wish : wishes) {
      const int drafts = std::min(length, wish.drafts);
      tokens += expected_tokens(wish.acceptance, drafts) - 1;
      more += drafts;
    }
    const double rate = tokens / seconds(more);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = length;
  }
  return best;
}

}  // namespace artery::engine
