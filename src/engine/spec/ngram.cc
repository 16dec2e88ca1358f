#include "engine/spec/ngram.h"

#include <algorithm>

#include "base/check.h"

namespace artery::engine {
namespace {

// Places looked at for one proposal: text that repeats one n-gram for ever stays cheap.
constexpr int kPlacesMax = 64;

// Tokens that `text` has in common before `a` and before `b`, at most `most`.
std::size_t common_suffix(
    std::span<const TokenId> text, std::size_t a, std::size_t b, std::size_t most
) {
  std::size_t length = 0;
  while (length < most && length < a && text[a - 1 - length] == text[b - 1 - length]) ++length;
  return length;
}

}  // namespace

NgramIndex::NgramIndex(int match_min, int match_max)
    : match_min_(static_cast<std::size_t>(match_min)),
      match_max_(static_cast<std::size_t>(match_max)) {
  CHECK(match_min >= 1 && match_max >= match_min, "n-grams of {} to {}", match_min, match_max);
}

std::uint64_t NgramIndex::hash_before(std::span<const TokenId> text, std::size_t end) const {
  std::uint64_t hash = 0;
  for (std::size_t i = end - match_min_; i < end; ++i) {
    hash = (hash ^ static_cast<std::uint32_t>(text[i])) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

// Every place but the end of the text itself, which is what is looked for.
void NgramIndex::extend(std::span<const TokenId> text) {
  for (std::size_t end = before_.size(); end < text.size(); ++end) {
    before_.push_back(-1);
    if (end < match_min_) continue;
    const auto [it, fresh] =
        last_.try_emplace(hash_before(text, end), static_cast<std::int32_t>(end));
    if (!fresh) {
      before_[end] = it->second;
      it->second = static_cast<std::int32_t>(end);
    }
  }
}

std::span<const TokenId> NgramIndex::propose(std::span<const TokenId> text, int count) {
  CHECK(before_.size() <= text.size() && text.size() < INT32_MAX);
  extend(text);
  if (count <= 0 || text.size() < match_min_) return {};
  const auto found = last_.find(hash_before(text, text.size()));
  if (found == last_.end()) return {};
  std::size_t best_end = 0;
  std::size_t best_length = match_min_ - 1;
  std::int32_t place = found->second;
  for (int looked = 0; place >= 0 && looked < kPlacesMax && best_length < match_max_; ++looked) {
    const auto end = static_cast<std::size_t>(place);
    const std::size_t length = common_suffix(text, end, text.size(), match_max_);
    if (length > best_length) {
      best_length = length;
      best_end = end;
    }
    place = before_[end];
  }
  if (best_end == 0) return {};
  draft_.clear();
  const std::size_t period = text.size() - best_end;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    draft_.push_back(i < period ? text[best_end + i] : draft_[i - period]);
  }
  return draft_;
}

}  // namespace artery::engine
