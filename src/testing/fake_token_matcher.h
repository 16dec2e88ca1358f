#pragma once
// A TokenMatcher that follows a list of allowed sets: token i must be in sets[i]; after the last
// set only `end_token` is allowed. Engine thread, like any matcher.

#include <algorithm>
#include <utility>
#include <vector>

#include "codec/grammar/token_matcher.h"

namespace artery::testing {

class FakeTokenMatcher final : public codec::TokenMatcher {
 public:
  FakeTokenMatcher(std::vector<std::vector<TokenId>> sets, TokenId end_token)
      : sets_(std::move(sets)), end_token_(end_token) {}

  bool accept(TokenId token) override {
    const std::vector<TokenId> allowed = now();
    if (std::find(allowed.begin(), allowed.end(), token) == allowed.end()) return false;
    ++at_;
    return true;
  }
  void fill_mask(std::span<std::uint32_t> mask) override {
    for (const TokenId token : now()) {
      const auto t = static_cast<std::size_t>(token);
      mask[t / 32] |= 1u << (t % 32);
    }
  }
  void rollback(int count) override { at_ -= static_cast<std::size_t>(count); }

 private:
  std::vector<TokenId> now() const {
    return at_ < sets_.size() ? sets_[at_] : std::vector<TokenId>{end_token_};
  }

  std::vector<std::vector<TokenId>> sets_;
  TokenId end_token_;
  std::size_t at_ = 0;
};

}  // namespace artery::testing
