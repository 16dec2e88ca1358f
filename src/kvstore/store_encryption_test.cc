// Encryption at rest through DiskStore: what the files show, who can read, what dropping leaves.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "kvstore/store_testing.h"
#include "kvstore/survey.h"

namespace artery::kvstore {
namespace {

using store_testing::Prompt;

class StoreEncryptionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(keys_.path());
    write_key("master", 'm');
  }
  void write_key(const std::string& name, char fill) {
    std::ofstream(keys_.file(name), std::ios::binary) << std::string(32, fill);
  }
  StoreConfig config(const std::string& key = "master") const {
    StoreConfig out = store_testing::small_config(folder_.path());
    out.io = StoreConfig::Io::kThreads;
    out.encrypt = !key.empty();
    if (out.encrypt) out.encryption_key_file = keys_.file(key);
    return out;
  }
  std::unique_ptr<DiskStore> open(const std::string& key = "master") const {
    return store_testing::open_store(config(key));
  }
  static SpaceId space(DiskStore& store, const std::string& tenant) {
    return store.open_space(store_testing::spec_of(tenant));
  }
  static void put(DiskStore& store, const Prompt& prompt, const std::string& tenant) {
    const auto offered = store_testing::offer_all(store, space(store, tenant), prompt);
    EXPECT_EQ(offered.refused, 0);
    ASSERT_TRUE(store.flush());
  }
  std::string all_bytes() const {
    std::ostringstream out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path()))
      if (entry.is_regular_file()) out << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    return out.str();
  }
  // Bytes of ids or payload that stand in the files.
  int traces(const Prompt& prompt) const {
    const std::string all = all_bytes();
    int found = 0;
    for (std::size_t at = 0; at + 2 <= prompt.ids.size(); at += 2) {
      const std::string_view ids(reinterpret_cast<const char*>(&prompt.ids[at]), 8);
      found += all.find(ids) != std::string::npos;
    }
    for (std::size_t page = 3; page < prompt.keys.size(); page += 4) {
      std::vector<std::byte> bytes(64);
      store_testing::fill_payload(prompt.keys[page], bytes);
      const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      found += all.find(text) != std::string::npos;
    }
    return found;
  }

  store_testing::TempFolder folder_, keys_;
};

TEST_F(StoreEncryptionTest, NothingShowsAndAllIsReadAfterARestart) {
  std::unique_ptr<Prompt> prompt;
  {
    auto store = open();
    prompt = std::make_unique<Prompt>(*store, 1, 12, "ann");
    put(*store, *prompt, "ann");
    store_testing::expect_whole(*store, space(*store, "ann"), *prompt);
  }
  EXPECT_EQ(traces(*prompt), 0);
  {
    auto store = open();
    const Prompt same(*store, 1, 12, "ann");
    EXPECT_EQ(same.keys, prompt->keys);
    store_testing::expect_whole(*store, space(*store, "ann"), same);
    ASSERT_EQ(store->status().tenants.size(), 1u);
    EXPECT_TRUE(store->status().tenants[0].encrypted);
  }
  // The finder of traces finds them where there are.
  std::filesystem::remove_all(folder_.path());
  {
    auto store = open("");
    prompt = std::make_unique<Prompt>(*store, 1, 12, "ann");
    put(*store, *prompt, "ann");
  }
  EXPECT_GT(traces(*prompt), 90);
}

TEST_F(StoreEncryptionTest, AnotherMasterKeyIsRefusedAndNothingTouched) {
  {
    auto store = open();
    put(*store, Prompt(*store, 1, 8, "ann"), "ann");
  }
  const std::string before = all_bytes();
  write_key("other", 'x');
  const auto refused = DiskStore::open(config("other"), system_file_system(), system_clock());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kBadFile);
  EXPECT_NE(refused.error().message.find("encryption key"), std::string::npos);
  EXPECT_EQ(all_bytes(), before);
  auto store = open();
  store_testing::expect_whole(*store, space(*store, "ann"), Prompt(*store, 1, 8, "ann"));
}

TEST_F(StoreEncryptionTest, WithoutTheKeyFileItIsRefusedAndNothingTouched) {
  {
    auto store = open();
    put(*store, Prompt(*store, 1, 8, "ann"), "ann");
  }
  const std::string before = all_bytes();
  for (const bool read_only : {false, true}) {
    StoreConfig plain = config("");
    plain.read_only = read_only;
    const auto refused = DiskStore::open(plain, system_file_system(), system_clock());
    ASSERT_FALSE(refused) << read_only;
    EXPECT_EQ(refused.error().code, Code::kBadFile);
    EXPECT_NE(
        refused.error().message.find("is encrypted: give --kv-encryption-key-file"),
        std::string::npos
    ) << refused.error().message;
    EXPECT_EQ(all_bytes(), before);
  }
  auto store = open();
  store_testing::expect_whole(*store, space(*store, "ann"), Prompt(*store, 1, 8, "ann"));
}

TEST_F(StoreEncryptionTest, PlainRecordsFromBeforeAreCountedInAWarning) {
  const auto warned = [&](const std::string& key) {
    testing::internal::CaptureStderr();
    auto store = open(key);
    const std::string text = testing::internal::GetCapturedStderr();
    put(*store, Prompt(*store, key.empty() ? 1 : 2, 8, "ann"), "ann");
    return text;
  };
  EXPECT_EQ(warned("").find("without encryption"), std::string::npos);
  const auto counts = [&] {
    const auto found = survey_store(folder_.path(), system_file_system(), 0);
    EXPECT_TRUE(found);
    return std::pair(found->encrypted_records, found->disk_records);
  };
  const std::int64_t plain = counts().second;
  ASSERT_GT(plain, 0);
  const std::string text = warned("master");
  EXPECT_NE(
      text.find(fmt::format("{0} of {0} records were written without encryption", plain)),
      std::string::npos
  ) << text;
  EXPECT_EQ(counts(), std::pair(plain, 2 * plain));
}

// The bare secret makes other chain keys than the one of the master key, so a prompt is only cold;
// who knows the keys gets nothing either.
TEST_F(StoreEncryptionTest, MaintenanceWithoutTheKeyFileSeesMissesOfVersion) {
  std::unique_ptr<Prompt> prompt;
  {
    auto store = open();
    prompt = std::make_unique<Prompt>(*store, 1, 8, "ann");
    put(*store, *prompt, "ann");
  }
  StoreConfig keyless = config("");
  keyless.keyless = true;
  auto store = store_testing::open_store(keyless);
  EXPECT_NE(Prompt(*store, 1, 8, "ann").keys, prompt->keys);
  const SpaceId ann = space(*store, "ann");
  const Found found = store->find(ann, prompt->keys);
  const auto loaded = store_testing::load_found(*store, ann, *prompt, found);
  EXPECT_EQ(loaded.pieces, 0);
  EXPECT_EQ(loaded.why, MissReason::kVersion);
}

TEST_F(StoreEncryptionTest, PlainRecordsInAnEncryptedStoreAreMissesOfVersion) {
  std::unique_ptr<Prompt> prompt;
  {
    auto store = open("");
    prompt = std::make_unique<Prompt>(*store, 1, 8, "ann");
    put(*store, *prompt, "ann");
  }
  auto store = open();
  const SpaceId ann = space(*store, "ann");
  const Found found = store->find(ann, prompt->keys);
  ASSERT_EQ(found.pages, 8);
  const auto loaded = store_testing::load_found(*store, ann, *prompt, found);
  EXPECT_EQ(loaded.pieces, 0);
  EXPECT_EQ(loaded.why, MissReason::kVersion);
  const Prompt own(*store, 2, 8, "ann");
  put(*store, own, "ann");
  store_testing::expect_whole(*store, ann, own);
}

TEST_F(StoreEncryptionTest, ATenantsKeyThatIsGoneMakesMisses) {
  std::unique_ptr<Prompt> ann, ben;
  {
    auto store = open();
    ann = std::make_unique<Prompt>(*store, 1, 8, "ann");
    ben = std::make_unique<Prompt>(*store, 2, 8, "ben");
    put(*store, *ann, "ann");
    put(*store, *ben, "ben");
  }
  ASSERT_TRUE(erase_tenant_key(folder_.path(), "ann", system_file_system()).take());
  auto store = open();
  const SpaceId space_of_ann = space(*store, "ann");
  const Found found = store->find(space_of_ann, ann->keys);
  const auto loaded = store_testing::load_found(*store, space_of_ann, *ann, found);
  EXPECT_EQ(loaded.pieces, 0);
  EXPECT_EQ(store->status().checksum_failures, 0);  // nothing is damaged
  store_testing::expect_whole(*store, space(*store, "ben"), *ben);
}

TEST_F(StoreEncryptionTest, DroppingATenantErasesIt) {
  for (const char* key : {"", "master"}) {
    std::filesystem::remove_all(folder_.path());
    auto store = open(key);
    const Prompt ann(*store, 1, 40, "ann"), ben(*store, 2, 40, "ben");
    put(*store, ann, "ann");
    put(*store, ben, "ben");
    const auto freed = store->drop_tenant("ann");
    ASSERT_TRUE(freed) << freed.error().message;
    EXPECT_GT(*freed, 0);
    EXPECT_EQ(store->find(space(*store, "ann"), ann.keys).pages, 0);
    EXPECT_EQ(traces(ann), 0) << key;
    const std::string all = all_bytes();
    EXPECT_EQ(all.find("\"tenant\":\"ann\""), std::string::npos);
    EXPECT_EQ(store->drop_tenant("ann").value_or(-1), 0);
    store_testing::expect_whole(*store, space(*store, "ben"), ben);
    // The tenant may return.
    const Prompt back(*store, 3, 8, "ann");
    put(*store, back, "ann");
    store_testing::expect_whole(*store, space(*store, "ann"), back);
    store = nullptr;
    store = open(key);
    EXPECT_EQ(store->find(space(*store, "ann"), ann.keys).pages, 0);
    store_testing::expect_whole(*store, space(*store, "ann"), Prompt(*store, 3, 8, "ann"));
    store_testing::expect_whole(*store, space(*store, "ben"), Prompt(*store, 2, 40, "ben"));
  }
}

// The machine's clock, two hours ago.
class PastClock final : public Clock {
 public:
  std::int64_t monotonic_ns() const override { return system_clock().monotonic_ns(); }
  std::int64_t unix_ms() const override { return system_clock().unix_ms() - 7'200'000; }
};

TEST_F(StoreEncryptionTest, DroppingErasesWhatTheIndexHasForgotten) {
  const std::int64_t tomorrow_s = system_clock().unix_ms() / 1000 + 86'400;
  std::unique_ptr<Prompt> ann, ben;
  {
    const PastClock past;
    auto store = store_testing::open_store(config(""), past);
    ann = std::make_unique<Prompt>(*store, 1, 12, "ann");
    ben = std::make_unique<Prompt>(*store, 2, 12, "ben");
    const auto ttl = TtlClass::kTenMinutes;
    store_testing::offer_all(*store, space(*store, "ann"), *ann, ttl);
    store_testing::offer_all(*store, space(*store, "ben"), *ben, ttl, tomorrow_s);
  }
  auto store = open("");
  EXPECT_EQ(store->find(space(*store, "ann"), ann->keys).pages, 0);  // its time has passed
  ASSERT_TRUE(store->collect());
  EXPECT_GT(traces(*ann), 90);  // in a segment that ben's promise keeps
  EXPECT_GT(store->drop_tenant("ann").value_or(0), 0);
  EXPECT_EQ(traces(*ann), 0);
  store_testing::expect_whole(*store, space(*store, "ben"), *ben);
}

TEST_F(StoreEncryptionTest, VerifyOpensWhatItHasTheKeyFor) {
  {
    auto store = open();
    put(*store, Prompt(*store, 1, 8, "ann"), "ann");
    put(*store, Prompt(*store, 2, 8, "ben"), "ben");
  }
  FileSystem& files = system_file_system();
  const AeadKey master = read_master_key(keys_.file("master"), files).take();
  const auto verify = [&] {
    auto keys = TenantKeys::open(folder_.path(), master, files, system_random(), true).take();
    return verify_store(
               folder_.path(), files, {.now_s = system_clock().unix_ms() / 1000, .keys = keys.get()}
    )
        .take();
  };
  Verified verified = verify();
  EXPECT_TRUE(verified.is_clean());
  EXPECT_EQ(verified.records, 4);
  EXPECT_EQ(verified.records_without_key, 0);
  EXPECT_TRUE(verified.survey.is_encrypted);
  EXPECT_EQ(verified.survey.encrypted_records, 4);
  ASSERT_TRUE(erase_tenant_key(folder_.path(), "ann", files).take());
  verified = verify();
  EXPECT_TRUE(verified.is_clean());
  EXPECT_EQ(verified.records_without_key, 2);
}

}  // namespace
}  // namespace artery::kvstore
