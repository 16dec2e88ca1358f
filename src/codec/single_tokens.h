#pragma once
// Which words that are the text of a token also become that one token. Merges decide that, not the
// text, and it is found out when such a word first occurs: neither a start nor a text pays for the
// whole vocabulary. Any thread; all find the same, and nothing else hangs on it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/ids.h"

namespace artery::codec {

class SingleTokens {
 public:
  explicit SingleTokens(std::size_t tokens)
      : known_(std::make_unique<std::atomic<std::uint8_t>[]>(tokens)) {}

  // False for -1, and while nobody has noted `token`.
  bool known(TokenId token) const {
    return token >= 0 &&
           known_[static_cast<std::size_t>(token)].load(std::memory_order_relaxed) != 0;
  }
  // The text of `token`, as a word, has become `token`.
  void note(TokenId token) const {
    known_[static_cast<std::size_t>(token)].store(1, std::memory_order_relaxed);
  }

 private:
  std::unique_ptr<std::atomic<std::uint8_t>[]> known_;  // [tokens]
};

}  // namespace artery::codec
