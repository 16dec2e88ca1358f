#pragma once
// Strong integer types for the things that must not be mixed up. Plain values, any thread.

#include <compare>
#include <cstdint>
#include <functional>

namespace artery {

using TokenId = std::int32_t;   // index into the vocabulary
using Position = std::int32_t;  // absolute position in a sequence, from 0
using PageId = std::int32_t;    // index of a page in the KV pool; -1 is no page

constexpr PageId kNoPage = -1;

template <typename Tag>
struct StrongId {
  std::uint64_t value = 0;
  friend auto operator<=>(const StrongId&, const StrongId&) = default;
};

using RequestId = StrongId<struct RequestTag>;    // one submitted request, unique in the process
using SequenceId = StrongId<struct SequenceTag>;  // one choice of a request

}  // namespace artery

template <typename Tag>
struct std::hash<artery::StrongId<Tag>> {
  std::size_t operator()(artery::StrongId<Tag> id) const noexcept {
    return std::hash<std::uint64_t>{}(id.value);
  }
};
