// The small files beside the segments, damaged or missing: what a store says, what it refuses, and
// what `kv verify` finds.

#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "base/log.h"
#include "kvstore/store_testing.h"
#include "kvstore/survey.h"

namespace artery::kvstore {
namespace {

using store_testing::Prompt;
namespace fs = std::filesystem;

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

class SmallFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(base_.path());
    std::ofstream(base_.file("key"), std::ios::binary) << std::string(32, 'k');
  }
  std::string folder() const { return base_.file("kv"); }
  std::string path(const std::string& name) const { return folder() + "/" + name; }
  StoreConfig config(bool encrypt = false) const {
    StoreConfig out = store_testing::small_config(folder());
    out.io = StoreConfig::Io::kThreads;
    out.encrypt = encrypt;
    if (encrypt) out.encryption_key_file = base_.file("key");
    return out;
  }
  // A prompt of each tenant.
  void make(bool encrypt = false, const std::vector<std::string>& tenants = {"ann", "ben"}) {
    const auto store = store_testing::open_store(config(encrypt));
    ASSERT_NE(store, nullptr);
    for (const std::string& tenant : tenants) {
      const Prompt prompt(*store, 1, 12, tenant);
      const SpaceId space = store->open_space(store_testing::spec_of(tenant));
      ASSERT_EQ(store_testing::offer_all(*store, space, prompt).refused, 0);
    }
    ASSERT_TRUE(store->flush());
  }
  static std::int64_t pages(DiskStore& store, const std::string& tenant) {
    const Prompt prompt(store, 1, 12, tenant);
    const SpaceId space = store.open_space(store_testing::spec_of(tenant));
    const Found found = store.find(space, prompt.keys);
    const auto loaded = store_testing::load_found(store, space, prompt, found);
    EXPECT_EQ(loaded.wrong, 0);
    return found.pages > 0 && loaded.why == MissReason::kNone ? found.pages : 0;
  }
  static std::string text(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void put(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }
  // Every file but the lock: what refusing must leave alone.
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::directory_iterator(folder())) {
      if (entry.path().filename() != "lock") out[entry.path()] = text(entry.path());
    }
    return out;
  }
  Error refused(const StoreConfig& config) const {
    const auto before = contents();
    const auto store = DiskStore::open(config, system_file_system(), system_clock());
    EXPECT_FALSE(store);
    EXPECT_EQ(contents(), before);
    return store ? Error{} : store.error();
  }
  Verified verify() const {
    return verify_store(folder(), system_file_system(), {.now_s = std::time(nullptr)}).take();
  }
  static bool any_has(const std::vector<std::string>& texts, std::string_view part) {
    return std::ranges::any_of(texts, [&](const std::string& one) { return has(one, part); });
  }

  store_testing::TempFolder base_;
};

TEST_F(SmallFilesTest, WithoutItsSecretAStoreIsRefusedAndLeftAlone) {
  make();
  const std::string secret = text(path("secret"));
  ASSERT_EQ(secret.size(), 32u);
  std::string flipped = secret;
  flipped[7] ^= 1;
  const std::pair<std::string, const char*> bad[] = {
      {flipped, "damaged: not the bytes"},
      {secret.substr(0, 31), "damaged: 31 bytes"},
      {"", "damaged: 0 bytes"},
      {secret + "x", "damaged: more than 32"},
  };
  for (const auto& [content, what] : bad) {
    put(path("secret"), content);
    const Error error = refused(config());
    EXPECT_EQ(error.code, Code::kBadFile);
    EXPECT_TRUE(has(error.message, path("secret")) && has(error.message, what)) << error.message;
    EXPECT_TRUE(has(error.message, "6 records")) << error.message;
    EXPECT_TRUE(any_has(verify().survey.troubles, what));
  }
  fs::remove(path("secret"));
  const Error error = refused(config());
  EXPECT_TRUE(has(error.message, "missing") && has(error.message, "from a backup"));
  EXPECT_FALSE(verify().is_clean());
  // Maintenance goes by the index.
  StoreConfig keyless = config();
  keyless.keyless = true;
  {
    EXPECT_NE(store_testing::open_store(keyless), nullptr);
  }
  EXPECT_FALSE(fs::exists(path("secret")));
  put(path("secret"), secret);
  auto store = store_testing::open_store(config());
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(pages(*store, "ann"), 12);
  EXPECT_TRUE(verify().is_clean());
}

TEST_F(SmallFilesTest, ASecretThatNothingIsNamedWithIsMadeAnew) {
  make(false, {});
  put(path("secret"), "short");
  {
    const auto store = store_testing::open_store(config());
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->secret().size(), 32u);
    EXPECT_EQ(text(path("secret")), store->secret());
  }
  make();
  auto store = store_testing::open_store(config());
  EXPECT_EQ(pages(*store, "ben"), 12);
}

TEST_F(SmallFilesTest, DamagedSpacesAreToldWithWhatTheyCost) {
  make();
  std::string spaces = text(path("spaces.json"));
  const std::size_t line = spaces.find("\"tenant\":\"ben\"");
  ASSERT_NE(line, spaces.npos);
  spaces[line + 12] = 'X';
  put(path("spaces.json"), spaces);
  EXPECT_TRUE(any_has(verify().survey.troubles, "spaces.json: 1 damaged lines"));
  auto store = store_testing::open_store(config());
  EXPECT_EQ(pages(*store, "ann"), 12);
  const std::string trouble = store->status().trouble;
  EXPECT_TRUE(has(trouble, "spaces.json: 1 damaged lines") && has(trouble, "of 3 records"))
      << trouble;
  store = nullptr;
  fs::remove(path("spaces.json"));
  EXPECT_TRUE(any_has(verify().survey.troubles, "spaces.json: missing"));
  store = store_testing::open_store(config());
  EXPECT_TRUE(has(store->status().trouble, "missing, or lines of it are"));
}

TEST_F(SmallFilesTest, MissingKeysAreRefusedAndLeftAlone) {
  make(true);
  const std::string keys = text(path("keys.json"));
  fs::remove(path("keys.json"));
  for (const bool encrypt : {true, false}) {
    const Error error = refused(config(encrypt));
    EXPECT_EQ(error.code, Code::kBadFile);
    EXPECT_TRUE(has(error.message, "keys.json: missing") && has(error.message, "6 encrypted"))
        << error.message;
  }
  EXPECT_TRUE(any_has(verify().survey.troubles, "keys.json: missing"));
  for (const char* garbage : {"", "garbage\n", "{\"a\":1}\n"}) {
    put(path("keys.json"), garbage);
    const Error error = refused(config(true));
    EXPECT_TRUE(has(error.message, "keys.json: damaged: none of its lines")) << error.message;
  }
  EXPECT_TRUE(any_has(verify().survey.troubles, "keys.json: line 1 is damaged"));
  put(path("keys.json"), keys);
  auto store = store_testing::open_store(config(true));
  EXPECT_EQ(pages(*store, "ann"), 12);
}

TEST_F(SmallFilesTest, ADamagedKeyIsToldWithWhoseItIs) {
  make(true);
  std::string keys = text(path("keys.json"));
  const std::size_t tag = keys.find("\"tag\":\"", keys.find("\"tenant\":\"ben\""));
  ASSERT_NE(tag, keys.npos);
  keys[tag + 7] = keys[tag + 7] == '0' ? '1' : '0';
  put(path("keys.json"), keys);
  {
    auto store = store_testing::open_store(config(true));
    const std::string trouble = store->status().trouble;
    EXPECT_TRUE(has(trouble, "keys.json: line 3 is damaged: the key of tenant 'ben' is lost"))
        << trouble;
    EXPECT_EQ(pages(*store, "ann"), 12);
    EXPECT_EQ(pages(*store, "ben"), 0);
    // Another tenant's key is added: the damaged line stays, a backup may still explain it.
    const Prompt prompt(*store, 1, 12, "cid");
    const SpaceId space = store->open_space(store_testing::spec_of("cid"));
    ASSERT_EQ(store_testing::offer_all(*store, space, prompt).refused, 0);
    ASSERT_TRUE(store->flush());
  }
  EXPECT_TRUE(has(text(path("keys.json")), keys.substr(keys.find("{\"tenant\":\"ben\""))));
}

TEST_F(SmallFilesTest, WithoutTheKeyNotAllIsChecked) {
  make(true);
  const Verified without = verify();
  EXPECT_TRUE(without.is_clean());
  EXPECT_EQ(without.records_unopened, 6);
  const AeadKey master = read_master_key(base_.file("key"), system_file_system()).take();
  auto keys =
      TenantKeys::open(folder(), master, system_file_system(), system_random(), true).take();
  const auto with = verify_store(
      folder(), system_file_system(), {.now_s = std::time(nullptr), .keys = keys.get()}
  );
  ASSERT_TRUE(with);
  EXPECT_EQ(with->records_unopened, 0);
  ASSERT_TRUE(erase_tenant_key(folder(), "ann", system_file_system()));
  const Verified gone = verify();
  EXPECT_EQ(gone.records_unopened, 3);
  EXPECT_EQ(gone.records_without_key, 3);
}

// The process dies in the middle of it: some records are zeros, the index knows them still.
TEST_F(SmallFilesTest, AnErasureThatWasCutOffIsToldAndFinished) {
  for (const bool encrypt : {false, true}) {
    fs::remove_all(folder());
    make(encrypt);
    const std::string segment = [&] {
      for (const auto& entry : fs::directory_iterator(folder()))
        if (entry.path().filename().string().starts_with("seg-")) return entry.path().string();
      return std::string();
    }();
    // The first record of the first tenant.
    std::fstream file(segment, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(kBlock);
    const std::int64_t bytes = record_bytes(
        store_testing::kRecordPages * kPageTokens,
        store_testing::kRecordPages * store_testing::kPageBytes
    );
    file << std::string(static_cast<std::size_t>(bytes), '\0');
    file.close();
    const Verified cut_off = verify();
    ASSERT_EQ(cut_off.damaged.size(), 1u);
    EXPECT_TRUE(has(cut_off.damaged[0].what, "erasure of tenant 'ann' was cut off"))
        << cut_off.damaged[0].what;
    {
      auto store = store_testing::open_store(config(encrypt));
      EXPECT_EQ(pages(*store, "ben"), 12);
      ASSERT_TRUE(store->drop_tenant("ann"));
    }
    const Verified after = verify();
    EXPECT_TRUE(after.is_clean()) << (after.damaged.empty() ? "" : after.damaged[0].what);
    for (const SpaceLine& space : after.survey.spaces) EXPECT_NE(space.spec.tenant, "ann");
    auto store = store_testing::open_store(config(encrypt));
    EXPECT_EQ(pages(*store, "ben"), 12);
  }
}

}  // namespace
}  // namespace artery::kvstore
