#include "kvstore/types.h"

#include <gtest/gtest.h>

#include <limits>

namespace artery::kvstore {
namespace {

TEST(TtlClassTest, TimesRoundUpToAClass) {
  EXPECT_EQ(ttl_class_for(1), TtlClass::kTenMinutes);
  EXPECT_EQ(ttl_class_for(600), TtlClass::kTenMinutes);
  EXPECT_EQ(ttl_class_for(601), TtlClass::kHour);
  EXPECT_EQ(ttl_class_for(24 * 3600), TtlClass::kAgent);
  EXPECT_EQ(ttl_class_for(72 * 3600 + 1), TtlClass::kChat);
  EXPECT_EQ(ttl_class_for(7 * 24 * 3600), TtlClass::kChat);
  EXPECT_EQ(ttl_class_for(7 * 24 * 3600 + 1), std::nullopt);
  EXPECT_EQ(ttl_class_for(0), std::nullopt);
  EXPECT_EQ(ttl_class_for(-5), std::nullopt);
}

TEST(TtlClassTest, PinnedNeverOverflows) {
  constexpr std::int64_t kNow = 1'800'000'000;
  EXPECT_GT(kNow + ttl_seconds(TtlClass::kPinned), kNow + ttl_seconds(TtlClass::kChat));
}

TEST(MissReasonTest, EveryReasonHasItsOwnName) {
  for (int i = 0; i < kMissReasons; ++i) {
    for (int j = 0; j < i; ++j) {
      EXPECT_NE(name(static_cast<MissReason>(i)), name(static_cast<MissReason>(j)));
    }
  }
  EXPECT_EQ(name(MissReason::kChecksum), "checksum");
  EXPECT_EQ(name(MissReason::kShort), "short");
}

}  // namespace
}  // namespace artery::kvstore
