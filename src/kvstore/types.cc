#include "kvstore/types.h"

#include <limits>

#include "kvstore/status.h"

namespace artery::kvstore {

std::int64_t ttl_seconds(TtlClass ttl) {
  switch (ttl) {
    case TtlClass::kTenMinutes:
      return 600;
    case TtlClass::kHour:
      return 3600;
    case TtlClass::kAgent:
      return 72 * 3600;
    case TtlClass::kChat:
      return 7 * 24 * 3600;
    case TtlClass::kPinned:
      break;
  }
  return std::numeric_limits<std::int64_t>::max() / 1'000'000'000;  // any sum still fits
}

std::string_view name(TtlClass ttl) {
  constexpr std::array<std::string_view, kTtlClasses> kNames = {"10m", "1h", "72h", "7d", "pinned"};
  return kNames[static_cast<std::size_t>(ttl)];
}

std::optional<TtlClass> ttl_class_for(std::int64_t seconds) {
  if (seconds <= 0) return std::nullopt;
  for (const TtlClass ttl : kAllTtlClasses) {
    if (ttl != TtlClass::kPinned && seconds <= ttl_seconds(ttl)) return ttl;
  }
  return std::nullopt;
}

std::string_view name(MissReason reason) {
  constexpr std::array<std::string_view, kMissReasons> kNames = {
      "",
      "cold",
      "diverged",
      "evicted",
      "expired",
      "boundary",
      "version",
      "checksum",
      "tenant",
      "budget",
      "slow",
      "bypassed",
      "disabled",
      "short"
  };
  return kNames[static_cast<std::size_t>(reason)];
}

std::string_view name(Health health) {
  constexpr std::array<std::string_view, 3> kNames = {"ok", "read-only", "sick"};
  return kNames[static_cast<std::size_t>(health)];
}

}  // namespace artery::kvstore
