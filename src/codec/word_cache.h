#pragma once
// Words of one text that were already merged, and where among the output their tokens are: a word
// of a text mostly occurs again. Bounded and lossy: of two words that want one place the later
// stays. Lives for one encode call, keeps views of its text, not shared.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace artery::codec {

class WordCache {
 public:
  // Short texts get none: filling it would cost more than it saves.
  explicit WordCache(std::size_t text_bytes)
      : entries_(text_bytes < kTextBytesMin ? 0 : std::bit_ceil(std::min(text_bytes / 8, kMax))) {}

  struct Entry {
    std::string_view word;
    std::size_t first = 0, count = 0;
  };
  // The place for `word`, which is not empty; nullptr when it is not worth keeping.
  Entry* place(std::string_view word) {
    if (entries_.empty() || word.size() > kWordBytesMax) return nullptr;
    return &entries_[std::hash<std::string_view>{}(word) & (entries_.size() - 1)];
  }

  // Repeats the tokens of `word` when `place` has it.
  static bool append_known(const Entry* place, std::string_view word, std::vector<TokenId>& ids) {
    if (place == nullptr || place->word != word) return false;
    for (std::size_t i = 0; i < place->count; ++i) ids.push_back(ids[place->first + i]);
    return true;
  }

 private:
  static constexpr std::size_t kTextBytesMin = 256, kMax = 4096, kWordBytesMax = 64;
  std::vector<Entry> entries_;
};

}  // namespace artery::codec
