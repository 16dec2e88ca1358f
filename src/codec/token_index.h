#pragma once
// Text of a token to its id, over a subset of a vocabulary. Keeps views of the vocabulary's
// strings, which must outlive it. Immutable after construction, any thread.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace artery::codec {

class TokenIndex {
 public:
  // Of `tokens`, those whose `take` flag is set. Of two equal texts the lower id is found.
  TokenIndex(const std::vector<std::string>& tokens, const std::vector<bool>& take);

  TokenId find(std::string_view text) const;  // -1 when there is none
  std::size_t text_bytes_max() const { return text_bytes_max_; }

 private:
  const std::vector<std::string>* tokens_;
  std::vector<TokenId> slots_;  // open addressing, a power of two, at most half full
  std::size_t text_bytes_max_ = 0;
};

}  // namespace artery::codec
