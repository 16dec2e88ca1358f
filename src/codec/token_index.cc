#include "codec/token_index.h"

#include <algorithm>
#include <bit>

namespace artery::codec {

TokenIndex::TokenIndex(std::size_t tokens, std::size_t bytes)
    : slots_(std::bit_ceil(tokens + tokens / 2 + 2)), mask_(slots_.size() - 1) {
  texts_.reserve(bytes);
}

void TokenIndex::add(std::string_view text, TokenId id) {
  const std::uint64_t hash = hash_bytes(text);
  std::size_t at = hash & mask_;
  for (; slots_[at].id >= 0; at = (at + 1) & mask_)
    if (slots_[at].tag == tag_of(hash, text.size()) && text_of(slots_[at]) == text) return;
  slots_[at] = Slot{
      tag_of(hash, text.size()),
      id,
      static_cast<std::uint32_t>(texts_.size()),
      static_cast<std::uint32_t>(text.size()),
  };
  texts_.insert(texts_.end(), text.begin(), text.end());
  text_bytes_max_ = std::max(text_bytes_max_, text.size());
}

}  // namespace artery::codec
