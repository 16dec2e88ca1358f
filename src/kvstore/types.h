#pragma once
// Words that the store, the engine and the APIs share: classes of life time and reasons for a miss.
// Plain values, any thread. (design.md section 5)

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace artery::kvstore {

// How long a record lives after its last hit.
enum class TtlClass : std::uint8_t { kTenMinutes, kHour, kAgent, kChat, kPinned };
constexpr int kTtlClasses = 5;
inline constexpr std::array kAllTtlClasses = {
    TtlClass::kTenMinutes, TtlClass::kHour, TtlClass::kAgent, TtlClass::kChat, TtlClass::kPinned
};

// 600, 3600, 72 h, 7 d; kPinned: about 292 years.
std::int64_t ttl_seconds(TtlClass ttl);
// "10m", "1h", "72h", "7d", "pinned".
std::string_view name(TtlClass ttl);
// The shortest class that lives at least so long; nullopt: longer than 7 d, or not positive.
std::optional<TtlClass> ttl_class_for(std::int64_t seconds);

// Why a prompt, or the rest of it, was not served from cache. One reason a request: that of the
// first page which was looked for and not found.
enum class MissReason : std::uint8_t {
  kNone,      // nothing was missing
  kCold,      // never seen
  kDiverged,  // known text up to here, which goes on otherwise
  kEvicted,   // was there, gave way to others
  kExpired,   // was there, its time had passed
  kBoundary,  // the rest of a page or record: too short to be kept
  kVersion,   // of another layout, numerics or format
  kChecksum,  // damaged; dropped
  kTenant,    // dropped with its tenant, or over the tenant's quota
  kBudget,    // not written or not read: a budget, a full queue, or a tier out of service
  kSlow,      // loading would have taken, or took, longer than computing
  kBypassed,  // the request cannot use the cache
  kDisabled,  // the server runs without one
  kShort,     // a prompt of less than a page
};
constexpr int kMissReasons = 14;
// "", "cold", "diverged", "evicted", ...
std::string_view name(MissReason reason);

}  // namespace artery::kvstore
