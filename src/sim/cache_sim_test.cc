#include "sim/cache_sim.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "base/file_system.h"

namespace artery::sim {
namespace {

using kvstore::MissReason;
using kvstore::TtlClass;

CacheRequest request(
    double time_s, std::uint32_t root, std::int64_t tokens, const std::vector<Run>& runs
) {
  CacheRequest out;
  out.time_s = time_s;
  out.root = root;
  out.input_tokens = tokens;
  out.output_tokens = 10;
  out.runs = runs;
  for (const Run& run : runs) out.blocks += run.count;
  return out;
}

CacheTrace trace_of(std::vector<CacheRequest> requests) {
  CacheTrace out;
  out.format = "made here";
  out.block_tokens = 64;
  out.requests = std::move(requests);
  return out;
}

std::int64_t tokens_missed(const CacheSimResult& result, MissReason why) {
  return result.missed_tokens[static_cast<std::size_t>(why)];
}

CacheSimResult run(const CacheTrace& trace, const CacheSimConfig& config) {
  Result<CacheSimResult> result = simulate_cache(trace, config);
  EXPECT_TRUE(result) << result.error().message;
  return result ? *result : CacheSimResult{};
}

TEST(CacheSim, CountsByHandWhatItCounts) {
  // Records of 256 tokens: 4 blocks. 1,000 tokens: 15 blocks, 3 records; 40 tokens have no id.
  const CacheTrace trace = trace_of({
      request(0, 1, 1000, {{0, 15}}),
      request(10, 1, 1400, {{0, 21}}),            // goes on: 3 records hit, 5 whole ones
      request(20, 1, 1400, {{0, 10}, {50, 11}}),  // parts from it after 2
      request(30, 2, 1000, {{0, 15}}),            // the same ids of another session
      request(40, 1, 1000, {{0, 15}}),
      request(50, 1, 100, {{0, 1}}),
  });
  for (const Policy policy : {Policy::kSegments, Policy::kLru}) {
    CacheSimConfig config;
    config.policy = policy;
    const CacheSimResult result = run(trace, config);
    EXPECT_EQ(result.requests, 6);
    EXPECT_EQ(result.input_tokens, 1000 + 1400 + 1400 + 1000 + 1000 + 100);
    EXPECT_EQ(result.hit_tokens, 3 * 256 + 2 * 256 + 3 * 256);
    EXPECT_EQ(result.records_written, 3 + 2 + 3 + 3);
    EXPECT_EQ(result.bytes_written, 11 * 229'376);
    EXPECT_EQ(result.write_amplification(), 1);
    EXPECT_EQ(*distinct_bytes(trace, config), 11 * 229'376);
    if (policy == Policy::kLru) continue;
    EXPECT_EQ(tokens_missed(result, MissReason::kCold), 1000 + (1400 - 768) + 1000);
    EXPECT_EQ(tokens_missed(result, MissReason::kDiverged), 1400 - 512);
    EXPECT_EQ(tokens_missed(result, MissReason::kBoundary), 1000 - 768);
    EXPECT_EQ(tokens_missed(result, MissReason::kShort), 100);
  }
}

TEST(CacheSim, TailsOfPromptsHitTheirNextTurn) {
  const CacheTrace trace = trace_of({
      request(0, 1, 1000, {{0, 15}}),
      request(10, 1, 1300, {{0, 20}}),
      request(20, 1, 1000, {{0, 15}}),
  });
  CacheSimConfig config;
  config.tails = true;
  const CacheSimResult result = run(trace, config);
  EXPECT_EQ(result.hit_tokens, 2 * 15 * 64);
  EXPECT_EQ(result.records_written, 4 + 2);
}

TEST(CacheSim, TimeToLiveCountsFromTheLastUse) {
  std::vector<CacheRequest> requests;
  for (const double time : {0.0, 3000.0, 6000.0, 10'000.0, 14'001.0})
    requests.push_back(request(time, 1, 512, {{0, 8}}));
  CacheTrace trace = trace_of(std::move(requests));
  CacheSimConfig config;
  config.ttl = TtlClass::kHour;
  for (const Policy policy : {Policy::kSegments, Policy::kLru}) {
    config.policy = policy;
    EXPECT_EQ(run(trace, config).hit_tokens, 2 * 512);
  }
  config.policy = Policy::kSegments;
  EXPECT_EQ(tokens_missed(run(trace, config), MissReason::kExpired), 2 * 512);
  EXPECT_EQ(run(trace, config).segments_expired, 2);
  config.ttl.reset();  // a chat from its second turn on
  EXPECT_EQ(run(trace, config).hit_tokens, 4 * 512);
}

TEST(CacheSim, ASmallCapEvictsAndNeverGrows) {
  std::vector<CacheRequest> requests;
  for (std::uint32_t i = 0; i < 4000; ++i)
    requests.push_back(request(i, 1 + i % 50, 256 * 4, {{0, 16}}));
  const CacheTrace trace = trace_of(std::move(requests));
  CacheSimConfig config;
  config.capacity_bytes = 100 * 229'376;  // half of the 200 records that come round
  config.policy = Policy::kLru;
  EXPECT_EQ(run(trace, config).hit_tokens, 0);  // the oldest is always the next
  config.policy = Policy::kSegments;
  CacheSimResult result = run(trace, config);
  EXPECT_LE(result.peak_bytes, config.capacity_bytes);
  EXPECT_GT(result.segments_reclaimed, 100);
  EXPECT_EQ(result.records_refused, 0);
  EXPECT_GT(tokens_missed(result, MissReason::kEvicted), 0);
  config.capacity_bytes = 300 * 229'376;
  result = run(trace, config);
  EXPECT_EQ(result.hit_tokens, 3950 * 1024);
  EXPECT_EQ(result.segments_reclaimed, 0);
}

TEST(CacheSim, RefusesSizesThatDoNotFit) {
  const CacheTrace trace = trace_of({request(0, 1, 64, {{0, 1}})});
  CacheSimConfig config;
  config.record_tokens = 100;
  EXPECT_EQ(simulate_cache(trace, config).error().field, "record-tokens");
  config.record_tokens = 64 * 256;
  EXPECT_EQ(distinct_bytes(trace, config).error().field, "record-tokens");
  config.record_tokens = 64;
  config.segment_bytes = 8192;
  EXPECT_EQ(simulate_cache(trace, config).error().field, "segment-bytes");
  config.segment_bytes = 1'000'000;
  EXPECT_EQ(simulate_cache(trace, config).error().field, "segment-bytes");
}

TEST(CacheSim, RefusesACapacityWithoutRoomForSegments) {
  const CacheTrace trace = trace_of({request(0, 1, 1024, {{0, 16}})});
  CacheSimConfig config;
  config.segment_bytes = 1 << 20;
  config.capacity_bytes = 3 << 20;
  EXPECT_EQ(run(trace, config).records_written, 4);
  EXPECT_EQ(run(trace, config).records_refused, 0);
  for (const std::int64_t bytes : {(3 << 20) - 1, 1 << 20, 4096, 1}) {
    config.capacity_bytes = bytes;
    const auto refused = simulate_cache(trace, config);
    ASSERT_FALSE(refused) << bytes;
    EXPECT_EQ(refused.error().field, "capacity");
    EXPECT_NE(refused.error().message.find("3145728"), std::string::npos)
        << refused.error().message;
  }
  config.segment_bytes = 0;  // four records each
  const auto refused = simulate_cache(trace, config);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message.find("--segment-bytes"), std::string::npos);
  config.policy = Policy::kLru;  // has no segments
  config.capacity_bytes = 1 << 20;
  EXPECT_TRUE(simulate_cache(trace, config));
}

// The figures of README and docs/simulate.md, on the recorded workloads themselves. Under a
// sanitizer they would take minutes and show nothing more.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSlowBuild = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kIsSlowBuild = true;
#else
constexpr bool kIsSlowBuild = false;
#endif
#else
constexpr bool kIsSlowBuild = false;
#endif

class RecordedTraces : public testing::Test {
 protected:
  void SetUp() override {
    if (kIsSlowBuild) GTEST_SKIP() << "held by the builds without a sanitizer";
  }
  // False: not here.
  bool read(const std::string& name) {
    const std::string path = ARTERY_SOURCE_DIR "/../shared/traces/" + name + ".jsonl.zst";
    Result<CacheTrace> read = read_cache_trace(path, system_file_system(), 1);
    if (!read && read.error().code == Code::kNotFound) return false;
    EXPECT_TRUE(read) << read.error().message;
    if (!read) return true;
    trace_ = read.take();
    distinct_ = *distinct_bytes(trace_, {});
    return true;
  }
  CacheSimResult at(Policy policy, double share) {
    CacheSimConfig config;
    config.policy = policy;
    config.capacity_bytes = static_cast<std::int64_t>(share * static_cast<double>(distinct_));
    const CacheSimResult result = run(trace_, config);
    std::printf(
        "%s at %g: %.4f hit, write amplification %.3f\n",
        policy == Policy::kLru ? "lru" : "segments",
        share,
        result.hit_share(),
        result.write_amplification()
    );
    return result;
  }
  void compare(double share) {
    const CacheSimResult twin = at(Policy::kLru, share), own = at(Policy::kSegments, share);
    EXPECT_GE(own.hit_share(), twin.hit_share() - 0.01);
    EXPECT_LE(own.write_amplification(), 1.7);
    EXPECT_LE(own.peak_bytes, static_cast<std::int64_t>(share * static_cast<double>(distinct_)));
  }
  CacheTrace trace_;
  std::int64_t distinct_ = 0;
};

TEST_F(RecordedTraces, AgentsHitAlmostAllWithoutACap) {
  if (!read("claude_code_sessions_rle")) GTEST_SKIP() << "no ../shared/traces";
  EXPECT_EQ(trace_.requests.size(), 49'334U);
  const CacheSimResult result = at(Policy::kSegments, 0);
  EXPECT_GE(result.hit_share(), 0.961);
  EXPECT_LE(result.hit_share(), 0.9625);  // what an endless cache of such records hits
  EXPECT_EQ(result.write_amplification(), 1);
}

TEST_F(RecordedTraces, SegmentsOfAgentsStayNearAnLruOfRecordsAtTwoPercent) {
  if (!read("claude_code_sessions_rle")) GTEST_SKIP() << "no ../shared/traces";
  compare(0.02);
}

TEST_F(RecordedTraces, SegmentsOfAgentsStayNearAnLruOfRecordsAtFivePercent) {
  if (!read("claude_code_sessions_rle")) GTEST_SKIP() << "no ../shared/traces";
  compare(0.05);
}

TEST_F(RecordedTraces, ChatsAndApiCallsHitWhatThereIs) {
  if (!read("mooncake_conversation_trace")) GTEST_SKIP() << "no ../shared/traces";
  EXPECT_GE(at(Policy::kSegments, 0).hit_share(), 0.37);
  compare(0.05);
  ASSERT_TRUE(read("rtpllm_flexlb_trace_30min"));
  EXPECT_GE(at(Policy::kSegments, 0).hit_share(), 0.204);
  compare(0.05);
  ASSERT_TRUE(read("mooncake_synthetic_trace"));
  EXPECT_GE(at(Policy::kSegments, 0).hit_share(), 0.65);
}

}  // namespace
}  // namespace artery::sim
