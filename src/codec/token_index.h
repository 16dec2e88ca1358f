#pragma once
// Text of a token to its id, over a subset of a vocabulary. Owns a copy of the texts. Immutable
// once filled, any thread.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "codec/byte_hash.h"

namespace artery::codec {

class TokenIndex {
 public:
  // Room for `tokens` texts of together `bytes` bytes, below 4 GiB: the most that add() is given.
  TokenIndex(std::size_t tokens, std::size_t bytes);

  // `id` >= 0. Of two equal texts the first stays.
  void add(std::string_view text, TokenId id);

  TokenId find(std::string_view text) const { return find(text, hash_bytes(text)); }  // -1: none
  // The same for one who knows hash_bytes(text) already.
  TokenId find(std::string_view text, std::uint64_t hash) const {
    for (std::size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.id < 0) return -1;
      if (slot.tag == tag_of(hash, text.size()) && text_of(slot) == text) return slot.id;
    }
  }
  std::size_t text_bytes_max() const { return text_bytes_max_; }

 private:
  struct Slot {
    std::uint32_t tag = 0;  // the high half of the hash, and the length
    TokenId id = -1;
    std::uint32_t begin = 0;  // in texts_
    std::uint32_t bytes = 0;
  };
  static std::uint32_t tag_of(std::uint64_t hash, std::size_t bytes) {
    return static_cast<std::uint32_t>(hash >> 32) ^ static_cast<std::uint32_t>(bytes);
  }
  std::string_view text_of(const Slot& slot) const {
    return {texts_.data() + slot.begin, slot.bytes};
  }

  std::vector<Slot> slots_;  // open addressing, a power of two, never full
  std::size_t mask_;
  std::vector<char> texts_;
  std::size_t text_bytes_max_ = 0;
};

}  // namespace artery::codec
