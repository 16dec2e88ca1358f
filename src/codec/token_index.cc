#include "codec/token_index.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace artery::codec {

TokenIndex::TokenIndex(const std::vector<std::string>& tokens, const std::vector<bool>& take)
    : tokens_(&tokens) {
  const auto count = static_cast<std::size_t>(std::count(take.begin(), take.end(), true));
  slots_.assign(std::bit_ceil(std::max<std::size_t>(2 * count, 2)), -1);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (!take[id]) continue;
    std::size_t slot = std::hash<std::string_view>{}(tokens[id]) & mask;
    bool known = false;
    while (slots_[slot] >= 0 && !known) {
      known = tokens[static_cast<std::size_t>(slots_[slot])] == tokens[id];
      if (!known) slot = (slot + 1) & mask;
    }
    if (known) continue;
    slots_[slot] = static_cast<TokenId>(id);
    text_bytes_max_ = std::max(text_bytes_max_, tokens[id].size());
  }
}

TokenId TokenIndex::find(std::string_view text) const {
  if (text.size() > text_bytes_max_) return -1;
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = std::hash<std::string_view>{}(text)&mask;
  while (slots_[slot] >= 0) {
    if ((*tokens_)[static_cast<std::size_t>(slots_[slot])] == text) return slots_[slot];
    slot = (slot + 1) & mask;
  }
  return -1;
}

}  // namespace artery::codec
