// Speculation: which drafts a step verifies, and what its rows change when it comes back.

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/core.h"
#include "engine/core_parts.h"

namespace artery::engine {

// A draft starts from the last token, so a choice with one worth verifying waits for the step that
// computes, and all others with it: steps of one half of the batch each would read the weights
// twice.
bool Core::drafts_wait() const {
  if (outstanding_ == 0) return false;
  return draft_rows_ > 0 || std::any_of(live_.begin(), live_.end(), [](const Live& each) {
           return each.choice->running && each.choice->promising;
         });
}

// Most drafted tokens of a choice: the row after the last of them still gives a wanted token.
std::int64_t Core::drafts_wanted(const Live& live) const {
  const std::int64_t left = live.request->max_tokens - live.request->generated(*live.choice) - 1;
  return std::min<std::int64_t>(config_.speculation.tokens, left);
}

void Core::propose_drafts() {
  if (config_.speculation.mode == SpeculationMode::kOff) return;
  std::vector<DraftWish> wishes;
  DraftCosts costs{&cost_, 0, 0, draft_cost_bias_};
  for (const Live& each : live_) {
    Choice& choice = *each.choice;
    choice.drafts.clear();
    const bool decodes = choice.running && choice.kv.computed() + 1 == total(choice) &&
                         each.request->generated(choice) > 0;
    if (outstanding_ > 0 || !decodes) continue;
    ++costs.rows;
    costs.context += total(choice);
    if (choice.drafter == nullptr) continue;
    const auto found =
        choice.drafter->propose(choice.tokens, static_cast<int>(drafts_wanted(each)));
    choice.drafts.assign(found.begin(), found.end());
    wishes.push_back({static_cast<int>(found.size()), choice.drafter->acceptance()});
  }
  if (config_.speculation.mode == SpeculationMode::kAlways || wishes.empty()) return;
  const int length = draft_length_that_pays(wishes, costs, config_.speculation.tokens);
  for (const Live& each : live_) {
    std::vector<TokenId>& drafts = each.choice->drafts;
    drafts.resize(std::min(drafts.size(), static_cast<std::size_t>(length)));
  }
}

// After a token: whether the next step of this choice should wait for its draft.
void Core::look_for_draft(const Live& live) {
  Choice& choice = *live.choice;
  const auto found = choice.drafter->propose(choice.tokens, static_cast<int>(drafts_wanted(live)));
  choice.promising = !found.empty();
  if (found.empty() || config_.speculation.mode == SpeculationMode::kAlways) return;
  const DraftWish wish[] = {{static_cast<int>(found.size()), choice.drafter->acceptance()}};
  const std::int64_t rows = std::max<std::int64_t>(1, last_decode_rows_);
  const DraftCosts costs{&cost_, rows, rows * total(choice), draft_cost_bias_};
  choice.promising = draft_length_that_pays(wish, costs, config_.speculation.tokens) > 0;
  if (!choice.promising) choice.drafter->pass();
}

// Row by row, as the steps without drafts would have come. The KV of the rows after the last
// accepted draft stays in the pages, beyond what is computed, until it is written again.
void Core::land_verified(StepItem& item) {
  const Live live{item.request, item.choice};
  Choice& choice = *item.choice;
  const bool same_pages = item.kv_epoch == choice.kv_epoch;
  take_back(item);
  if (choice.done) return;
  CHECK(item.first + item.rows - std::ssize(item.drafts) == total(choice));
  const auto drafted = std::ssize(item.drafts);
  const auto accepted = std::ssize(item.verified);
  choice.drafter->observe(static_cast<int>(drafted), static_cast<int>(accepted));
  ++counters_.drafts;
  counters_.draft_tokens += drafted;
  counters_.accepted_tokens += accepted;
  for (std::ptrdiff_t i = 0; i < accepted; ++i) {
    ++counters_.accepted_at[static_cast<std::size_t>(i)];
  }
  for (std::ptrdiff_t i = 0; i <= accepted && !choice.done; ++i) {
    if (same_pages) {
      const std::int64_t before = choice.kv.computed();
      choice.kv.set_computed(total(choice));
      offer_pages(live, before);
      write_through(live, false);
      if (windows_ != nullptr) land_windows(live, before);
    }
    CHECK(item.sampled, "rows without a sample");
    Result<Sampled>& sampled =
        i == 0 ? *item.sampled : item.verified[static_cast<std::size_t>(i - 1)];
    take_sample(live, static_cast<Position>(total(choice)), sampled);
  }
}

void Core::learn_draft_cost(const StepWork& work, double seconds) {
  last_decode_rows_ = work.decode_rows - work.draft_rows;
  if (work.draft_rows == 0 || work.seconds_predicted <= 0) return;
  constexpr double kNew = 0.2;
  const double ratio = std::clamp(seconds / work.seconds_predicted, 0.2, 5.0);
  draft_cost_bias_ += kNew * (ratio - draft_cost_bias_);
}

}  // namespace artery::engine
