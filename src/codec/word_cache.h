#pragma once
// Words of one text that were already merged, and where among the output their tokens are: a word
// of a text mostly occurs again. Bounded and lossy: of two words that want one place the later
// stays. Lives for one encode call, keeps views of its text, not shared.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace artery::codec {

class WordCache {
 public:
  // Short texts get none: filling it would cost more than it saves.
  explicit WordCache(std::size_t text_bytes)
      : size_(text_bytes < kTextBytesMin ? 0 : std::bit_ceil(std::min(text_bytes / 8, kMax))) {}

  struct Entry {
    std::string_view word;
    std::size_t first = 0, count = 0;
  };
  // The place for `word`, which is not empty, by its hash; nullptr when it is not worth keeping.
  Entry* place(std::string_view word, std::uint64_t hash) {
    if (size_ == 0 || word.size() > kWordBytesMax) return nullptr;
    if (entries_.empty()) entries_.resize(size_);
    return &entries_[hash & (size_ - 1)];
  }

  // Repeats the tokens of `word` when `place` has it.
  static bool append_known(const Entry* place, std::string_view word, std::vector<TokenId>& ids) {
    if (place == nullptr || place->word != word) return false;
    for (std::size_t i = 0; i < place->count; ++i) ids.push_back(ids[place->first + i]);
    return true;
  }

 private:
  static constexpr std::size_t kTextBytesMin = 256, kMax = 16384, kWordBytesMax = 128;
  std::size_t size_;
  std::vector<Entry> entries_;  // [size_] once one is asked for
};

}  // namespace artery::codec
