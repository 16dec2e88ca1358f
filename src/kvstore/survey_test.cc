// What a store's files tell: surveys and `kv verify` over stores that DiskStore has written.

#include "kvstore/survey.h"

#include <gtest/gtest.h>

#include <fstream>

#include "kvstore/record_format.h"
#include "kvstore/store_testing.h"

namespace artery::kvstore {
namespace {

using store_testing::kPageBytes;
using store_testing::kRecordPages;
using store_testing::Prompt;

std::int64_t now_s() { return system_clock().unix_ms() / 1000; }

class SurveyTest : public ::testing::Test {
 protected:
  // Two tenants, two classes; closed in order unless it is kept.
  void write() {
    auto store = store_testing::open_store(config());
    offer(*store, 1, "ann", TtlClass::kHour);
    offer(*store, 2, "ann", TtlClass::kChat);
    offer(*store, 3, "ben", TtlClass::kChat);
    ASSERT_TRUE(store->flush());
  }
  static void offer(DiskStore& store, int seed, const std::string& tenant, TtlClass ttl) {
    const Prompt prompt(store, seed, 10, tenant);  // 4 + 4 pages and a tail of 2
    const SpaceId space = store.open_space(store_testing::spec_of(tenant));
    EXPECT_EQ(store_testing::offer_all(store, space, prompt, ttl).taken, 3);
  }
  StoreConfig config() const {
    StoreConfig out = store_testing::small_config(folder_.path());
    out.io = StoreConfig::Io::kThreads;
    return out;
  }
  Survey survey(std::int64_t at_s) {
    auto result = survey_store(folder_.path(), system_file_system(), at_s);
    EXPECT_TRUE(result) << result.error().message;
    return result.take();
  }
  Verified verify() {
    auto result = verify_store(folder_.path(), system_file_system(), {.now_s = now_s()});
    EXPECT_TRUE(result) << result.error().message;
    return result.take();
  }
  void flip(const std::string& name, std::int64_t at) {
    std::fstream file(folder_.file(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 0x20));
    ASSERT_TRUE(file.good());
  }

  store_testing::TempFolder folder_;
};

const TenantStatus* of(const Survey& survey, const std::string& tenant) {
  for (const TenantStatus& status : survey.status.tenants)
    if (status.tenant == tenant) return &status;
  return nullptr;
}

TEST_F(SurveyTest, CountsWhatIsThere) {
  write();
  const Survey found = survey(now_s());
  EXPECT_EQ(found.status.records, 9);
  EXPECT_EQ(found.status.classes[static_cast<std::size_t>(TtlClass::kHour)].records, 3);
  EXPECT_EQ(found.status.classes[static_cast<std::size_t>(TtlClass::kChat)].records, 6);
  EXPECT_EQ(found.status.classes[static_cast<std::size_t>(TtlClass::kHour)].tokens, 160);
  ASSERT_NE(of(found, "ann"), nullptr);
  EXPECT_EQ(of(found, "ann")->records, 6);
  EXPECT_EQ(of(found, "ben")->records, 3);
  const std::int64_t bytes =
      2 * record_bytes(64, 4 * kPageBytes) + record_bytes(32, 2 * kPageBytes);
  EXPECT_EQ(found.status.bytes_live, 3 * bytes);
  EXPECT_GE(found.status.bytes_used, found.status.bytes_live);
  EXPECT_TRUE(found.super.is_clean);
  EXPECT_FALSE(found.is_live);
  EXPECT_FALSE(found.is_encrypted);
  EXPECT_TRUE(found.troubles.empty());
  ASSERT_EQ(found.spaces.size(), 2u);
  EXPECT_EQ(found.spaces[0].spec.model, "toy");
  EXPECT_EQ(found.spaces[0].records + found.spaces[1].records, 9);

  const Survey later = survey(now_s() + 2 * 3600);  // the hour is over
  EXPECT_EQ(later.status.records, 6);
  EXPECT_EQ(later.expired_records, 3);
  EXPECT_EQ(later.expired_bytes, bytes);
}

TEST_F(SurveyTest, BesideAnOpenStore) {
  auto store = store_testing::open_store(config());
  offer(*store, 1, "ann", TtlClass::kHour);
  ASSERT_TRUE(store->flush());
  const Survey found = survey(now_s());
  EXPECT_TRUE(found.is_live);
  EXPECT_NE(found.holder.find(std::to_string(::getpid())), std::string::npos) << found.holder;
  EXPECT_EQ(found.status.records, 3);
  EXPECT_TRUE(verify().is_clean());
  offer(*store, 2, "ann", TtlClass::kHour);  // the look has not disturbed it
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(survey(now_s()).status.records, 6);
}

TEST_F(SurveyTest, ASoundStoreIsClean) {
  write();
  const Verified verified = verify();
  EXPECT_TRUE(verified.is_clean());
  EXPECT_EQ(verified.records, 9);
  EXPECT_EQ(verified.bytes, verified.survey.status.bytes_live);
}

TEST_F(SurveyTest, EveryKindOfDamageIsNamed) {
  write();
  const std::string segment = folder_.names("seg-").front();
  const std::int64_t record = kBlock;  // the first one
  struct Case {
    std::int64_t at;
    const char* what;
  };
  for (const Case& bad : {
           Case{record + 3, "header"},                                        // magic
           Case{record + 130, "header"},                                      // key
           Case{record + kRecordHeaderBytes + 5, "header"},                   // an id
           Case{record + payload_offset(64) + 7, "payload"},                  // first quarter
           Case{record + payload_offset(64) + 4 * kPageBytes - 1, "payload"}  // last quarter
       }) {
    flip(segment, bad.at);
    const Verified verified = verify();
    EXPECT_FALSE(verified.is_clean()) << bad.at;
    ASSERT_EQ(verified.damaged.size(), 1u) << bad.at;
    EXPECT_EQ(verified.damaged[0].offset, record);
    EXPECT_NE(verified.damaged[0].what.find(bad.what), std::string::npos)
        << verified.damaged[0].what;
    flip(segment, bad.at);
  }
  EXPECT_TRUE(verify().is_clean());
}

TEST_F(SurveyTest, ALostSegmentAndDamagedSpacesAreTroubles) {
  write();
  flip("spaces.json", 40);
  Verified verified = verify();
  EXPECT_FALSE(verified.is_clean());
  EXPECT_GT(verified.survey.unknown_records, 0);
  EXPECT_TRUE(verified.damaged.empty());
  flip("spaces.json", 40);
  std::filesystem::remove(folder_.file(folder_.names("seg-").front()));
  verified = verify();
  ASSERT_EQ(verified.survey.troubles.size(), 1u);
  EXPECT_NE(verified.survey.troubles[0].find("seg-"), std::string::npos);
}

TEST_F(SurveyTest, ProgressAndStop) {
  write();
  std::int64_t last = -1, all = 0;
  VerifyOptions options;
  options.now_s = now_s();
  options.progress = [&](std::int64_t done, std::int64_t total) {
    EXPECT_GT(done, last);
    last = done;
    all = total;
    return true;
  };
  const auto verified = verify_store(folder_.path(), system_file_system(), options);
  ASSERT_TRUE(verified);
  EXPECT_EQ(all, verified->bytes);
  options.progress = [](std::int64_t, std::int64_t) { return false; };
  const auto stopped = verify_store(folder_.path(), system_file_system(), options);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
}

TEST_F(SurveyTest, WhatIsNoStore) {
  FileSystem& files = system_file_system();
  EXPECT_FALSE(is_store_folder(folder_.path(), files));
  EXPECT_EQ(survey_store(folder_.path(), files, 0).error().code, Code::kNotFound);
  std::filesystem::create_directory(folder_.path());
  EXPECT_FALSE(is_store_folder(folder_.path(), files));
  EXPECT_EQ(survey_store(folder_.path(), files, 0).error().code, Code::kBadFile);
  std::ofstream(folder_.file("config.json")) << "{}";
  EXPECT_FALSE(is_store_folder(folder_.path(), files));
  write();
  EXPECT_TRUE(is_store_folder(folder_.path(), files));
  EXPECT_EQ(survey(now_s()).unknown_files, std::vector<std::string>{"config.json"});
}

}  // namespace
}  // namespace artery::kvstore
