#include "kvstore/tenant_keys.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/hash.h"
#include "testing/fault_file_system.h"
#include "testing/seq_random.h"

namespace artery::kvstore {
namespace {

constexpr const char* kPath = "store/keys.json";

class TenantKeysTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(files_.make_folder("store"));
    for (std::size_t i = 0; i < master_.size(); ++i) master_[i] = static_cast<std::uint8_t>(i + 1);
  }
  std::unique_ptr<TenantKeys> open() {
    auto keys = TenantKeys::open("store", master_, files_, random_);
    EXPECT_TRUE(keys) << keys.error().message;
    return keys.take();
  }

  testing::FaultFileSystem files_;
  testing::SeqRandom random_{7};
  AeadKey master_{};
};

TEST_F(TenantKeysTest, OneKeyATenantThatSurvives) {
  TenantKeys::Key a, b;
  {
    const auto keys = open();
    a = keys->for_writing("a").take();
    b = keys->for_writing("b").take();
    EXPECT_EQ(keys->for_writing("a").take().id, a.id);
    EXPECT_NE(a.id, b.id);
    EXPECT_NE(a.bytes, b.bytes);
    EXPECT_FALSE(keys->find("a", b.id));
    EXPECT_FALSE(keys->find("c", a.id));
  }
  const std::string text = files_.text(kPath);
  for (const auto& key : {a, b}) {
    EXPECT_EQ(text.find(hex(key.bytes)), std::string::npos);
    EXPECT_EQ(
        text.find(std::string(key.bytes.begin(), key.bytes.end()).substr(0, 8)), std::string::npos
    );
  }
  const auto keys = open();
  ASSERT_TRUE(keys->find("a", a.id));
  EXPECT_EQ(keys->find("a", a.id)->bytes, a.bytes);
  EXPECT_EQ(keys->find("b", b.id)->bytes, b.bytes);
  EXPECT_EQ(keys->damaged_lines(), 0);
}

TEST_F(TenantKeysTest, AnotherMasterKeyIsRefusedAndNothingTouched) {
  open()->for_writing("a").take();
  const std::string text = files_.text(kPath);
  const std::int64_t events = files_.events();
  AeadKey other = master_;
  other[31] ^= 1;
  const auto keys = TenantKeys::open("store", other, files_, random_);
  ASSERT_FALSE(keys);
  EXPECT_EQ(keys.error().code, Code::kBadFile);
  EXPECT_NE(keys.error().message.find("store/keys.json"), std::string::npos);
  EXPECT_EQ(files_.text(kPath), text);
  EXPECT_EQ(files_.events(), events);
  files_.put(kPath, "no keys at all\n");
  EXPECT_FALSE(TenantKeys::open("store", master_, files_, random_));
  files_.put(kPath, "");
  EXPECT_FALSE(TenantKeys::open("store", master_, files_, random_));
}

TEST_F(TenantKeysTest, ADroppedKeyIsGoneAndTheTenantMayReturn) {
  const auto keys = open();
  const TenantKeys::Key a = keys->for_writing("leaver").take();
  const TenantKeys::Key b = keys->for_writing("stays").take();
  const auto held = files_.open_blocks(kPath, OpenMode::kWrite).take();  // the old file's blocks
  EXPECT_TRUE(keys->drop("leaver").take());
  EXPECT_FALSE(keys->drop("leaver").take());
  EXPECT_EQ(files_.text(kPath).find("leaver"), std::string::npos);
  struct alignas(4096) Block {
    std::array<std::byte, 4096> bytes{};
  } block;
  block.bytes.fill(std::byte{1});
  ASSERT_EQ(held->read_at(0, block.bytes), 4096);
  EXPECT_TRUE(std::ranges::all_of(block.bytes, [](std::byte b8) { return b8 == std::byte{0}; }));
  EXPECT_FALSE(keys->find("leaver", a.id));
  const TenantKeys::Key again = keys->for_writing("leaver").take();
  EXPECT_NE(again.id, a.id);
  EXPECT_NE(again.bytes, a.bytes);
  const auto back = open();
  EXPECT_FALSE(back->find("leaver", a.id));
  EXPECT_TRUE(back->find("leaver", again.id));
  EXPECT_TRUE(back->find("stays", b.id));
}

TEST_F(TenantKeysTest, ErasingNeedsNoMasterKey) {
  EXPECT_FALSE(erase_tenant_key("store", "a", files_).take());
  TenantKeys::Key b;
  {
    const auto keys = open();
    keys->for_writing("a").take();
    b = keys->for_writing("b").take();
  }
  files_.put(kPath, files_.text(kPath) + "a damaged line\n");
  EXPECT_FALSE(erase_tenant_key("store", "c", files_).take());
  EXPECT_TRUE(erase_tenant_key("store", "a", files_).take());
  const auto keys = open();
  EXPECT_FALSE(keys->has("a"));
  EXPECT_TRUE(keys->find("b", b.id));
  EXPECT_EQ(keys->damaged_lines(), 1);  // it stays: who knows
}

TEST_F(TenantKeysTest, DamageCostsOnlyItsLine) {
  const auto keys = open();
  const TenantKeys::Key a = keys->for_writing("a").take();
  const TenantKeys::Key b = keys->for_writing("b").take();
  const std::string sound = files_.text(kPath);
  const std::size_t begin = sound.find("{\"tenant\":\"a\"");
  const std::size_t end = sound.find('\n', begin);
  for (std::size_t at = 0; at < end; ++at) {
    std::string bad = sound;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    files_.put(kPath, bad);
    const auto back = open();
    EXPECT_TRUE(back->find("b", b.id)) << at;
    if (at < begin) {
      EXPECT_TRUE(at + 1 == begin || back->find("a", a.id)) << at;
    }
    // An 'A' for an 'a' is the same digit; anything else is another key, which must not open.
    const auto found = back->find("a", a.id);
    EXPECT_TRUE(!found || found->bytes == a.bytes) << at;
    EXPECT_TRUE(found || back->damaged_lines() > 0) << at;
  }
}

TEST_F(TenantKeysTest, AKeyThatCannotBeSavedIsNotUsed) {
  const auto keys = open();
  files_.inject({.ops = testing::Fault::kSync, .times = 1});
  EXPECT_FALSE(keys->for_writing("a"));
  EXPECT_FALSE(keys->has("a"));
  EXPECT_TRUE(keys->for_writing("a"));
  files_.inject({.ops = testing::Fault::kNames, .times = 1});
  EXPECT_FALSE(keys->drop("a"));
  EXPECT_TRUE(keys->has("a"));
  EXPECT_TRUE(open()->has("a"));
}

TEST_F(TenantKeysTest, ReadOnlyMakesNothing) {
  {
    auto keys = TenantKeys::open("store", master_, files_, random_, true).take();
    EXPECT_EQ(keys->for_writing("a").error().code, Code::kUnavailable);
    EXPECT_EQ(keys->drop("a").error().code, Code::kUnavailable);
  }
  EXPECT_TRUE(files_.text(kPath).empty());
}

TEST_F(TenantKeysTest, ACrashAtEveryEventKeepsKeysThatWereGiven) {
  std::int64_t n = 0;
  for (bool crashed = true; crashed;) {
    crashed = false;
    ++n;
    for (const testing::Crash crash : {testing::Crash::kProcess, testing::Crash::kPower}) {
      testing::FaultFileSystem files(static_cast<std::uint64_t>(n));
      ASSERT_TRUE(files.make_folder("store"));
      files.sync_all();
      files.crash_at(n);
      std::vector<std::pair<std::string, TenantKeys::Key>> given;
      if (auto keys = TenantKeys::open("store", master_, files, random_)) {
        for (const char* tenant : {"a", "b", "c"}) {
          const auto key = (*keys)->for_writing(tenant);
          if (!key) break;
          given.emplace_back(tenant, *key);
        }
      }
      crashed = crashed || files.crashed();
      const auto after = files.after_crash(crash, static_cast<std::uint64_t>(n) + 5);
      const auto back = TenantKeys::open("store", master_, *after, random_);
      ASSERT_TRUE(back) << back.error().message << " " << files.crash_point();
      for (const auto& [tenant, key] : given)
        EXPECT_TRUE((*back)->find(tenant, key.id)) << files.crash_point();
    }
  }
  EXPECT_GT(n, 16);
}

TEST_F(TenantKeysTest, TheFoldersSecretNeedsTheMasterKey) {
  const auto keys = open();
  const std::string secret(32, 's');
  EXPECT_EQ(keys->chain_secret(secret).size(), 32u);
  EXPECT_NE(keys->chain_secret(secret), secret);
  EXPECT_EQ(open()->chain_secret(secret), keys->chain_secret(secret));
  EXPECT_NE(keys->chain_secret(std::string(32, 't')), keys->chain_secret(secret));
}

TEST(MasterKeyTest, RawOrHexadecimal) {
  testing::FaultFileSystem files;
  ASSERT_TRUE(files.make_folder("keys"));
  files.put("keys/raw", std::string("\n\r") + std::string(30, 'k'));
  ASSERT_TRUE(read_master_key("keys/raw", files));
  EXPECT_EQ(read_master_key("keys/raw", files).take()[2], 'k');
  for (const char* end : {"", "\n", "\r\n"}) {
    files.put("keys/hex", "00ff" + std::string(60, 'A') + end);
    const auto key = read_master_key("keys/hex", files);
    ASSERT_TRUE(key);
    EXPECT_EQ((*key)[1], 0xff);
    EXPECT_EQ((*key)[31], 0xaa);
  }
  for (const std::string& bad :
       {std::string(),
        std::string(31, 'k'),
        std::string(33, 'k'),
        std::string(64, 'x'),
        std::string(66, 'a')}) {
    files.put("keys/bad", bad);
    const auto key = read_master_key("keys/bad", files);
    ASSERT_FALSE(key);
    EXPECT_EQ(key.error().code, Code::kBadFile);
    EXPECT_NE(key.error().message.find("/dev/urandom"), std::string::npos);
  }
  EXPECT_EQ(read_master_key("keys/none", files).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace artery::kvstore
