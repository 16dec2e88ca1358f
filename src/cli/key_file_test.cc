// The --api-keys file: what it may hold, and errors that name the entry but never the key.

#include "cli/key_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/log.h"

namespace artery::cli {
namespace {

Result<std::vector<server::ApiKey>> read_text(const std::string& text) {
  set_log_level(LogLevel::kOff);
  const auto path = std::filesystem::temp_directory_path() /
                    ("artery_keys_" + std::to_string(getpid()) + ".toml");
  std::ofstream(path) << text;
  auto keys = read_key_file(path.string());
  std::filesystem::remove(path);
  return keys;
}

TEST(KeyFile, ReadsEveryField) {
  const auto keys = read_text(
      "[[key]]\nname = \"alice\"\nkey = \"alice-secret\"\n"
      "[[key]]\nname = \"bob\"\ntenant = \"team\"\nmax_concurrent = 4\nrequests_per_minute = 60\n"
      "tokens_per_minute = 100_000\npriority = -3\nadmin = true\n"
      // SHA-256 of "abc", FIPS 180-4.
      "key_sha256 = \"BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD\"\n"
  );
  ASSERT_TRUE(keys) << keys.error().message;
  ASSERT_EQ(keys->size(), 2U);
  EXPECT_EQ((*keys)[0].digest, server::key_digest("alice-secret"));
  EXPECT_EQ((*keys)[0].tenant, "alice");
  EXPECT_EQ((*keys)[0].max_concurrent, 0);
  EXPECT_FALSE((*keys)[0].admin);
  const server::ApiKey& bob = (*keys)[1];
  EXPECT_EQ(bob.digest, server::key_digest("abc"));
  EXPECT_EQ(bob.tenant, "team");
  EXPECT_EQ(bob.max_concurrent, 4);
  EXPECT_EQ(bob.requests_per_minute, 60);
  EXPECT_EQ(bob.tokens_per_minute, 100000);
  EXPECT_EQ(bob.priority, -3);
  EXPECT_TRUE(bob.admin);
  EXPECT_EQ(bob.kv_quota_bytes, 0);
}

TEST(KeyFile, TheQuotaIsTheTenants) {
  const auto key = [](const std::string& name, const std::string& more) {
    return "[[key]]\nname = \"" + name + "\"\ntenant = \"team\"\nkey = \"secret-of-" + name +
           "\"\n" + more;
  };
  const auto keys = read_text(
      key("ann", "kv_quota = \"1.5G\"\n") + key("ben", "") +
      key("cem", "kv_quota = 1_610_612_736\n")
  );
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ((*keys)[0].kv_quota_bytes, 1'610'612'736);
  EXPECT_EQ((*keys)[1].kv_quota_bytes, 0);
  EXPECT_EQ((*keys)[2].kv_quota_bytes, 1'610'612'736);

  const auto two = read_text(key("ann", "kv_quota = \"1G\"\n") + key("ben", "kv_quota = \"2G\"\n"));
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().code, Code::kBadFile);
  for (const char* word : {"ann", "ben", "team", "kv_quota"})
    EXPECT_NE(two.error().message.find(word), std::string::npos) << two.error().message;

  for (const char* bad : {"0", "-5", "\"\"", "\"5X\"", "\"-1G\"", "true", "1.5", "\"0\""}) {
    const auto refused = read_text(key("ann", std::string("kv_quota = ") + bad + "\n"));
    ASSERT_FALSE(refused) << bad;
    EXPECT_NE(refused.error().message.find("kv_quota"), std::string::npos);
  }
}

TEST(KeyFile, RefusesWhatItCannotUse) {
  const std::string alice = "[[key]]\nname = \"alice\"\nkey = \"topsecret\"\n";
  const struct {
    std::string text, says;
  } bad[] = {
      {"", "[[key]]"},
      {"keys = 3", "[[key]]"},
      {"key = \"topsecret\"", "[[key]]"},
      {"[[key]]\nname = \"alice\"\nkey = \"topsecret", "line 3"},
      {"[[key]]\nkey = \"topsecret\"\n", "name"},
      {"[[key]]\nname = \"a b\"\nkey = \"topsecret\"\n", "name"},
      {"[[key]]\nname = \"default\"\nkey = \"topsecret\"\n", "--api-key"},
      {"[[key]]\nname = \"_other\"\nkey = \"topsecret\"\n", "metrics"},
      {"[[key]]\nname = \"alice\"\n", "either key or key_sha256"},
      {"[[key]]\nname = \"alice\"\nkey = \"short\"\n", "8 to"},
      {"[[key]]\nname = \"alice\"\nkey = \"top secret\"\n", "without spaces"},
      {"[[key]]\nname = \"alice\"\nkey_sha256 = \"topsecret\"\n", "64 hex"},
      {alice + "key_sha256 = \"00\"\n", "either key or key_sha256"},
      {alice + "max_concurrent = -1\n", "max_concurrent"},
      {alice + "tokens_per_minute = \"many\"\n", "tokens_per_minute"},
      {alice + "admin = 1\n", "admin"},
      {alice + "limit = 5\n", "limit"},
      {alice + "[[key]]\nname = \"alice\"\nkey = \"othersecret\"\n", "alice is taken"},
      {alice + "[[key]]\nname = \"bob\"\nkey = \"topsecret\"\n", "another entry"},
      {alice + "[other]\nx = 1\n", "nothing else"},
  };
  for (const auto& one : bad) {
    const auto keys = read_text(one.text);
    ASSERT_FALSE(keys) << one.text;
    EXPECT_EQ(keys.error().code, Code::kBadFile) << one.text;
    const std::string& message = keys.error().message;
    EXPECT_NE(message.find(one.says), std::string::npos) << one.text << message;
    EXPECT_NE(message.find("--api-keys"), std::string::npos) << message;
    EXPECT_EQ(message.find("topsecret"), std::string::npos) << message;
  }
  const auto absent = read_key_file("/nonexistent/keys.toml");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::kBadFile);
}

}  // namespace
}  // namespace artery::cli
