#pragma once
// What constrained decoding looks like to the engine: the implementation lives in codec/grammar
// (structured output, a later issue); `testing` has a fake. One matcher per choice, used by the
// engine thread only.

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace artery::codec {

class TokenMatcher {
 public:
  virtual ~TokenMatcher() = default;
  // Advances by a generated token; false when the grammar does not allow it (state unchanged).
  virtual bool accept(TokenId token) = 0;
  // Sets bit t of `mask` [ceil(vocab / 32)] for every allowed token.
  virtual void fill_mask(std::span<std::uint32_t> mask) = 0;
  // Takes back the last `count` accepted tokens (speculation).
  virtual void rollback(int count) = 0;
};

}  // namespace artery::codec
