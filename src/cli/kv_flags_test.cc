// The flags of the KV store: what they mean together, sizes that are chosen, opening a folder.

#include "cli/kv_flags.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "cli/verbs.h"

namespace artery::cli {
namespace {

constexpr std::int64_t kMiB = 1 << 20, kGiB = 1 << 30;

const char* nothing_set(const char*) { return nullptr; }

Result<KvWish> wish_of(const std::map<std::string, std::string>& given) {
  static const Verb serve = serve_verb();
  auto options = Options::make(serve, given, nothing_set);
  if (!options) return tl::unexpected<Error>(options.error());
  return kv_wish(*options);
}

class KvFlags : public testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kOff);
    std::string name = (std::filesystem::temp_directory_path() / "artery-kv-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::filesystem::path folder_;
};

TEST_F(KvFlags, DefaultFolderIsInTheUsersCache) {
  const char* before = getenv("XDG_CACHE_HOME");
  const std::string kept = before == nullptr ? "" : before;
  setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  const auto wish = wish_of({});
  before == nullptr ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", kept.c_str(), 1);
  ASSERT_TRUE(wish) << wish.error().message;
  EXPECT_EQ(wish->store.folder, (folder_ / "artery/kv").string());
  EXPECT_TRUE(wish->is_default);
  EXPECT_FALSE(wish->ttl.has_value());
  EXPECT_EQ(wish->swa_replay, -1);
  EXPECT_FALSE(wish->store.encrypt);
}

TEST_F(KvFlags, EveryFlagArrives) {
  const auto wish = wish_of({
      {"kv-dir", "/a/b"},
      {"kv-max-bytes", "2G"},
      {"kv-free-floor", "3G"},
      {"kv-ttl", "72h"},
      {"kv-read-only", "true"},
      {"kv-encryption-key-file", "/k"},
      {"kv-write-bytes-per-s", "5M"},
      {"kv-read-bytes-per-s", "6M"},
      {"kv-io", "threads"},
      {"kv-windows", "store"},
      {"kv-window-ttl", "20"},
      {"swa-replay", "128"},
  });
  ASSERT_TRUE(wish) << wish.error().message;
  EXPECT_EQ(wish->store.folder, "/a/b");
  EXPECT_FALSE(wish->is_default);
  EXPECT_EQ(wish->store.bytes_max, 2 * kGiB);
  EXPECT_EQ(wish->store.free_floor_bytes, 3 * kGiB);
  EXPECT_EQ(wish->ttl, kvstore::TtlClass::kAgent);
  EXPECT_TRUE(wish->store.read_only);
  EXPECT_TRUE(wish->store.encrypt);
  EXPECT_EQ(wish->store.encryption_key_file, "/k");
  EXPECT_EQ(wish->store.write_bytes_per_s, 5 * kMiB);
  EXPECT_EQ(wish->store.read_bytes_per_s, 6 * kMiB);
  EXPECT_EQ(wish->store.io, kvstore::StoreConfig::Io::kThreads);
  EXPECT_TRUE(wish->windows_in_store);
  EXPECT_EQ(wish->window_ttl_s, 20);
  EXPECT_EQ(wish->swa_replay, 128);
}

TEST_F(KvFlags, EveryClassHasItsName) {
  for (const kvstore::TtlClass ttl : kvstore::kAllTtlClasses) {
    const auto wish = wish_of({{"kv-ttl", std::string(kvstore::name(ttl))}});
    ASSERT_TRUE(wish) << wish.error().message;
    EXPECT_EQ(wish->ttl, ttl);
  }
  EXPECT_FALSE(wish_of({{"kv-ttl", "2h"}}).has_value());
}

TEST_F(KvFlags, ThereAreThreeWaysToHaveNone) {
  for (const auto& given : std::vector<std::map<std::string, std::string>>{
           {{"kv-dir", "none"}}, {{"kv-store", "false"}}, {{"enable-prefix-caching", "false"}}
       }) {
    const auto wish = wish_of(given);
    ASSERT_TRUE(wish) << wish.error().message;
    EXPECT_FALSE(wish->on()) << given.begin()->first;
  }
}

TEST_F(KvFlags, ContradictionsAreRefusedByName) {
  const std::tuple<std::map<std::string, std::string>, const char*, const char*> cases[] = {
      {{{"kv-dir", "/a"}, {"kv-store", "false"}}, "--kv-dir", "--no-kv-store"},
      {{{"kv-dir", "/a"}, {"enable-prefix-caching", "false"}}, "--kv-dir", "prefix cache"},
      {{{"kv-exact", "true"}, {"swa-replay", "64"}}, "--swa-replay", "--kv-exact"},
      {{{"kv-dir", "none"}, {"kv-encryption-key-file", "/k"}}, "--kv-encryption-key-file", "no KV"},
      {{{"kv-dir", ""}}, "--kv-dir", "is empty"},
  };
  for (const auto& [given, field, part] : cases) {
    const auto wish = wish_of(given);
    ASSERT_FALSE(wish.has_value()) << field;
    EXPECT_EQ(wish.error().code, Code::kInvalidArgument);
    EXPECT_EQ(wish.error().field, field);
    EXPECT_NE(wish.error().message.find(part), std::string::npos) << wish.error().message;
  }
  EXPECT_TRUE(wish_of({{"kv-exact", "true"}}).has_value());
}

TEST_F(KvFlags, SizesAreAShareOfTheDisk) {
  EXPECT_EQ(kv_bytes_max(100 * kGiB, 0), 10 * kGiB);
  EXPECT_EQ(kv_bytes_max(90 * kGiB, 10 * kGiB), 10 * kGiB) << "a full folder keeps its size";
  EXPECT_EQ(kv_bytes_max(10'000 * kGiB, 0), 32 * kGiB);
  EXPECT_EQ(kv_bytes_max(0, 0), 0);
  EXPECT_EQ(kv_free_floor(100 * kGiB), 5 * kGiB);
  EXPECT_EQ(kv_free_floor(5 * kGiB), kGiB);
}

TEST_F(KvFlags, WhatWasAskedForStays) {
  kvstore::StoreConfig config;
  config.folder = (folder_ / "not/there/yet").string();
  choose_sizes(config);
  EXPECT_GT(config.bytes_max, 0);
  EXPECT_GE(config.free_floor_bytes, kGiB);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "not")) << "looking makes nothing";
  config.bytes_max = 7;
  config.free_floor_bytes = 8;
  choose_sizes(config);
  EXPECT_EQ(config.bytes_max, 7);
  EXPECT_EQ(config.free_floor_bytes, 8);
}

TEST_F(KvFlags, QuotasAreATenantsLargest) {
  std::vector<server::ApiKey> keys(4);
  keys[0].tenant = keys[1].tenant = "team";
  keys[0].kv_quota_bytes = kGiB;
  keys[1].kv_quota_bytes = 2 * kGiB;
  keys[2].tenant = "alone";
  keys[2].kv_quota_bytes = kMiB;
  keys[3].tenant = "free";
  EXPECT_EQ(
      kv_quotas(keys),
      (std::map<std::string, std::int64_t>{{"alone", kMiB}, {"free", 0}, {"team", 2 * kGiB}})
  );
}

model::KvLayout layout_of_one_layer() {
  model::KvLayout layout;
  layout.groups.push_back({});
  layout.groups[0].geometry = {1, 1, 64, tensor::KvType::kF16};
  layout.groups[0].entry_bytes = 256;
  layout.record_pages = 4;
  return layout;
}

class OpenedKvStore : public KvFlags {
 protected:
  // What open_kv_store() gives and logs.
  Result<std::shared_ptr<kvstore::DiskStore>> open(const KvWish& wish) {
    set_log_level(LogLevel::kWarn);
    testing::internal::CaptureStderr();
    auto opened = open_kv_store(wish, layout_of_one_layer(), system_file_system(), system_clock());
    log_ = testing::internal::GetCapturedStderr();
    set_log_level(LogLevel::kOff);
    return opened;
  }
  KvWish wish(const std::string& name, bool is_default) const {
    KvWish out;
    out.store.folder = (folder_ / name).string();
    out.store.io = kvstore::StoreConfig::Io::kThreads;
    out.store.bytes_max = 64 * kMiB;
    out.is_default = is_default;
    return out;
  }
  bool logged(const std::string& part) const { return log_.find(part) != std::string::npos; }
  std::string log_;
};

TEST_F(OpenedKvStore, ASizeThatWasAskedForIsNoDefault) {
  for (const bool is_default : {true, false}) {
    KvWish small = wish("kv", is_default);
    small.store.bytes_max = kMiB / 64;
    const auto opened = open(small);
    ASSERT_FALSE(opened.has_value()) << is_default;
    EXPECT_EQ(opened.error().code, Code::kInvalidArgument);
    EXPECT_NE(opened.error().message.find("raise --kv-max-bytes to "), std::string::npos)
        << opened.error().message;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "kv"));
  }
}

TEST_F(OpenedKvStore, AFolderThatCannotBeMadeSaysSo) {
  std::ofstream(folder_ / "file") << "x";
  for (const std::int64_t bytes : {std::int64_t{0}, 64 * kMiB}) {
    KvWish inside = wish("file/kv", false);
    inside.store.bytes_max = bytes;
    const auto opened = open(inside);
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().code, Code::kIo);
    EXPECT_NE(opened.error().message.find("cannot be made: "), std::string::npos)
        << opened.error().message;
    inside.is_default = true;
    const auto without = open(inside);
    ASSERT_TRUE(without.has_value());
    EXPECT_EQ(*without, nullptr);
    EXPECT_TRUE(logged("cannot be made: ")) << log_;
  }
}

TEST_F(OpenedKvStore, TheSecondServerIsAdvisedOnce) {
  const auto first = open(wish("kv", true));
  ASSERT_TRUE(first.has_value() && *first != nullptr);
  const auto second = open(wish("kv", true));
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(*second, nullptr);
  EXPECT_TRUE(logged("--kv-dir")) << log_;
  EXPECT_EQ(log_.find("--kv-read-only"), log_.rfind("--kv-read-only")) << log_;
}

TEST_F(OpenedKvStore, AnEncryptedFolderIsNotGoneOnWithInPlainText) {
  KvWish encrypted = wish("kv", true);
  encrypted.store.encrypt = true;
  encrypted.store.encryption_key_file = (folder_ / "key").string();
  std::ofstream(encrypted.store.encryption_key_file) << std::string(32, 'k');
  std::filesystem::permissions(encrypted.store.encryption_key_file, std::filesystem::perms{0644});
  {
    const auto opened = open(encrypted);
    ASSERT_TRUE(opened.has_value() && *opened != nullptr);
    EXPECT_TRUE(logged("--kv-encryption-key-file")) << log_;
    EXPECT_TRUE(logged("chmod 600")) << log_;
  }
  const auto named = open(wish("kv", false));
  ASSERT_FALSE(named.has_value());
  EXPECT_EQ(named.error().code, Code::kBadFile);
  const auto without = open(wish("kv", true));
  ASSERT_TRUE(without.has_value());
  EXPECT_EQ(*without, nullptr);
  EXPECT_TRUE(logged("is encrypted: give --kv-encryption-key-file; this server runs without"))
      << log_;
}

// "kv" for "./kv": nothing is above it but the folder one is in.
TEST_F(KvFlags, ANewFolderWithAPlainNameIsBelowThisOne) {
  for (const char* name : {"artery-no-such-folder", "artery-no-such-folder/kv", "./no/such"}) {
    kvstore::StoreConfig config;
    config.folder = name;
    choose_sizes(config);
    EXPECT_GT(config.bytes_max, 0) << name;
    EXPECT_GT(config.free_floor_bytes, 0) << name;
  }
}

TEST_F(KvFlags, MemoryIsBuffersAndAnIndexThatGrowsWithTheCap) {
  kvstore::StoreConfig config;
  config.buffer_bytes = 64 * kMiB;
  config.bytes_max = kGiB;
  const model::KvLayout layout = layout_of_one_layer();
  EXPECT_EQ(record_bytes_max(layout), 4 * 16 * 256);
  const std::int64_t small = kv_memory_bytes(config, layout);
  EXPECT_GT(small, 64 * kMiB);
  EXPECT_LT(small, 128 * kMiB);
  config.bytes_max = 4 * kGiB;
  EXPECT_EQ(kv_memory_bytes(config, layout) - 64 * kMiB, 4 * (small - 64 * kMiB));
}

}  // namespace
}  // namespace artery::cli
