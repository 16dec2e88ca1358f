#include "server/api/response_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/random.h"

namespace artery::server::api {
namespace {

namespace fs = std::filesystem;

StoredResponse made(const std::string& id, const std::string& tenant, std::int64_t at) {
  return {id, tenant, at, R"([{"a":1}])", R"([{"b":2}])", R"({"id":")" + id + R"("})"};
}

std::unique_ptr<ResponseStore> opened(ResponseStoreConfig config = {}) {
  auto store = ResponseStore::open(std::move(config));
  EXPECT_TRUE(store) << store.error().message;
  return store ? store.take() : nullptr;
}

bool has(ResponseStore& store, const std::string& id, const std::string& tenant, std::int64_t now) {
  const auto found = store.get(id, tenant, now);
  EXPECT_TRUE(found);
  return found && found->has_value();
}

class ResponseStoreFile : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* end : {"", "-wal", "-shm"}) fs::remove(file_ + end);
  }
  const std::string file_ =
      (fs::temp_directory_path() / ("responses-" + std::to_string(system_random().next())))
          .string();
};

TEST(ResponseStore, KeepsWhatItGot) {
  const auto store = opened();
  ASSERT_TRUE(store->put(made("r1", "", 100), 100));
  const auto found = store->get("r1", "", 100);
  ASSERT_TRUE(found && found->has_value());
  EXPECT_EQ((*found)->input, R"([{"a":1}])");
  EXPECT_EQ((*found)->output, R"([{"b":2}])");
  EXPECT_EQ((*found)->response, R"({"id":"r1"})");
  EXPECT_FALSE(has(*store, "r2", "", 100));
}

TEST(ResponseStore, OfOneTenantOnly) {
  const auto store = opened();
  ASSERT_TRUE(store->put(made("r1", "ada", 100), 100));
  EXPECT_FALSE(has(*store, "r1", "bob", 100));
  EXPECT_FALSE(*store->remove("r1", "bob"));
  EXPECT_TRUE(has(*store, "r1", "ada", 100));
  EXPECT_TRUE(*store->remove("r1", "ada"));
  EXPECT_FALSE(has(*store, "r1", "ada", 100));
}

TEST(ResponseStore, ForATime) {
  ResponseStoreConfig config;
  config.ttl_s = 10;
  const auto store = opened(config);
  ASSERT_TRUE(store->put(made("r1", "", 100), 100));
  EXPECT_TRUE(has(*store, "r1", "", 110));
  EXPECT_FALSE(has(*store, "r1", "", 111));
  ASSERT_TRUE(store->put(made("r2", "", 111), 111));
  EXPECT_FALSE(has(*store, "r1", "", 100));  // gone, not only hidden
}

TEST(ResponseStore, TheNewestWithinTheBytes) {
  ResponseStoreConfig config;
  config.bytes_max = 100;
  const auto store = opened(config);
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(store->put(made("r" + std::to_string(i), "", 100 + i), 100 + i));
  EXPECT_FALSE(has(*store, "r0", "", 110));
  EXPECT_FALSE(has(*store, "r6", "", 110));  // 29 bytes each
  for (const char* id : {"r7", "r8", "r9"}) EXPECT_TRUE(has(*store, id, "", 110)) << id;
}

TEST(ResponseStore, NobodyPushesOutOthers) {
  ResponseStoreConfig config;
  config.bytes_max = 100;
  const auto store = opened(config);
  ASSERT_TRUE(store->put(made("a1", "ada", 100), 100));
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(store->put(made("b" + std::to_string(i), "bob", 101 + i), 101 + i));
  EXPECT_TRUE(has(*store, "a1", "ada", 111));
  EXPECT_FALSE(has(*store, "b7", "bob", 111));
  EXPECT_TRUE(has(*store, "b8", "bob", 111) && has(*store, "b9", "bob", 111));
  // What was deleted makes room.
  ASSERT_TRUE(store->remove("b8", "bob"));
  ASSERT_TRUE(store->put(made("a2", "ada", 112), 112));
  EXPECT_TRUE(has(*store, "a1", "ada", 112) && has(*store, "b9", "bob", 112));
}

TEST(ResponseStore, OneThatIsTooLargeCostsNoOther) {
  ResponseStoreConfig config;
  config.bytes_max = 100;
  const auto store = opened(config);
  ASSERT_TRUE(store->put(made("r1", "", 100), 100));
  StoredResponse large = made("r2", "", 101);
  large.input = std::string(200, ' ');
  const auto put = store->put(large, 101);
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kTooLarge);
  EXPECT_TRUE(has(*store, "r1", "", 101));
}

TEST_F(ResponseStoreFile, SurvivesARestart) {
  ResponseStoreConfig config;
  config.file = file_;
  ASSERT_TRUE(opened(config)->put(made("r1", "", 100), 100));
  EXPECT_TRUE(has(*opened(config), "r1", "", 100));
}

TEST_F(ResponseStoreFile, BytesAreCountedAfterARestart) {
  ResponseStoreConfig config;
  config.file = file_;
  config.bytes_max = 70;
  for (const char* id : {"r1", "r2"}) ASSERT_TRUE(opened(config)->put(made(id, "", 100), 100));
  const auto store = opened(config);
  ASSERT_TRUE(store->put(made("r3", "", 101), 101));
  EXPECT_FALSE(has(*store, "r1", "", 101));
  EXPECT_TRUE(has(*store, "r2", "", 101) && has(*store, "r3", "", 101));
}

TEST_F(ResponseStoreFile, LeavesOthersFilesAlone) {
  ResponseStoreConfig config;
  config.file = file_;
  std::ofstream(file_) << std::string(5000, 'x');
  const auto store = ResponseStore::open(config);
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().message.find(file_), std::string::npos);
  EXPECT_EQ(fs::file_size(file_), 5000U);
  config.file = "/no/such/folder/responses.db";
  EXPECT_FALSE(ResponseStore::open(config));
}

}  // namespace
}  // namespace artery::server::api
