// `artery kv verify|gc|drop-tenant` and `artery inspect` on stores in real folders, closed ones and
// one that another process has open.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <fstream>
#include <functional>
#include <sstream>

#include "kvstore/store_testing.h"
#include "program.h"

namespace artery::testing_cli {
namespace {

namespace json = boost::json;
using kvstore::DiskStore;
using kvstore::TtlClass;
using kvstore::store_testing::Prompt;

constexpr int kPages = 40;  // ten records a prompt

// The machine's, some seconds ago.
class PastClock final : public Clock {
 public:
  explicit PastClock(std::int64_t seconds) : seconds_(seconds) {}
  std::int64_t monotonic_ns() const override { return system_clock().monotonic_ns(); }
  std::int64_t unix_ms() const override { return system_clock().unix_ms() - 1000 * seconds_; }

 private:
  const std::int64_t seconds_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class StoreVerbs : public ::testing::Test {
 protected:
  kvstore::StoreConfig config() const {
    kvstore::StoreConfig out = kvstore::store_testing::small_config(folder_.path());
    out.io = kvstore::StoreConfig::Io::kThreads;
    out.encrypt = !key_file_.empty();
    out.encryption_key_file = key_file_;
    return out;
  }
  static void put(DiskStore& store, int seed, const std::string& tenant, TtlClass ttl) {
    const Prompt prompt(store, seed, kPages, tenant);
    const auto space = store.open_space(kvstore::store_testing::spec_of(tenant));
    ASSERT_EQ(kvstore::store_testing::offer_all(store, space, prompt, ttl).refused, 0);
  }
  void write(const Clock& clock = system_clock()) {
    const auto store = kvstore::store_testing::open_store(config(), clock);
    ASSERT_NE(store, nullptr);
    put(*store, 1, "ann", TtlClass::kTenMinutes);
    put(*store, 2, "ben", TtlClass::kChat);
  }
  Outcome artery(std::vector<std::string> words) const {
    words.push_back(folder_.path());
    return run_artery(words);
  }
  Outcome drop(const std::string& tenant) const {
    return run_artery({"kv", "drop-tenant", folder_.path(), tenant, "--json"});
  }
  json::object parsed(const Outcome& outcome) const {
    EXPECT_EQ(outcome.out.find('\n'), outcome.out.size() - 1) << outcome.out << outcome.err;
    return json::parse(outcome.out).as_object();
  }
  json::object inspected() const { return parsed(artery({"inspect", "--json"})); }
  // How often the first token ids of a record of `seed` stand in the folder's files.
  int traces(int seed) const {
    std::ostringstream text;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path()))
      if (entry.is_regular_file()) text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    const std::string all = text.str();
    int found = 0;
    for (int i = 0; i < kPages * kPageTokens; i += 16) {
      TokenId ids[4];
      for (int k = 0; k < 4; ++k) ids[k] = seed * 7919 + i + k;
      found += contains(all, std::string(reinterpret_cast<const char*>(ids), sizeof ids));
    }
    return found;
  }

  kvstore::store_testing::TempFolder folder_;
  TemporaryFolder keys_;
  std::string key_file_;
};

// A process that has the store open until it is told to close it.
class Holder {
 public:
  Holder(const kvstore::StoreConfig& config, const std::function<void(DiskStore&)>& use) {
    int ready[2], end[2];
    if (::pipe(ready) != 0 || ::pipe(end) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(end[1]);
      auto store = DiskStore::open(config, system_file_system(), system_clock());
      if (!store) ::_exit(1);
      use(**store);
      const bool fine = (*store)->flush().has_value();
      char byte = fine ? 'r' : 'f';
      if (::write(ready[1], &byte, 1) != 1) ::_exit(2);
      while (::read(end[0], &byte, 1) > 0) {
      }
      *store = nullptr;
      ::_exit(0);
    }
    ::close(end[0]);
    end_ = end[1];
    char byte = 0;
    is_ready_ = ::read(ready[0], &byte, 1) == 1 && byte == 'r';
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Holder() { close(); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  bool is_ready() const { return is_ready_; }
  pid_t pid() const { return pid_; }
  int close() {
    if (pid_ < 0) return 0;
    ::close(end_);
    int status = -1;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

 private:
  pid_t pid_ = -1;
  int end_ = -1;
  bool is_ready_ = false;
};

TEST_F(StoreVerbs, VerifyTellsCleanFromDamaged) {
  write();
  Outcome outcome = artery({"kv", "verify"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "clean")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "ann")) << outcome.out;
  json::object report = parsed(artery({"kv", "verify", "--json"}));
  EXPECT_EQ(report.at("verdict"), "clean");
  EXPECT_EQ(report.at("checked"), 20);
  EXPECT_TRUE(report.at("damaged").as_array().empty());

  const std::string segment = folder_.file(folder_.names("seg-").front());
  std::fstream(segment, std::ios::in | std::ios::out | std::ios::binary).seekp(6000).put('\x55');
  outcome = artery({"kv", "verify"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_TRUE(contains(outcome.out, "1 damaged")) << outcome.out;
  outcome = artery({"kv", "verify", "--json"});
  EXPECT_EQ(outcome.exit_code, 3);
  report = parsed(outcome);
  ASSERT_EQ(report.at("damaged").as_array().size(), 1u);
  EXPECT_EQ(report.at("damaged").at(0).at("offset"), 4096);
  EXPECT_EQ(report.at("checked"), 20);
}

TEST_F(StoreVerbs, InspectShowsWhatIsThere) {
  write();
  const Outcome outcome = artery({"inspect"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* word : {"closed in order", "10m", "7d", "ann", "ben", "toy", "encryption"})
    EXPECT_TRUE(contains(outcome.out, word)) << word << "\n" << outcome.out;
  const json::object report = inspected();
  EXPECT_EQ(report.at("state"), "clean");
  EXPECT_EQ(report.at("health"), "ok");
  EXPECT_EQ(report.at("records"), 20);
  EXPECT_EQ(report.at("classes").at("7d").at("records"), 10);
  EXPECT_EQ(report.at("classes").at("7d").at("tokens"), kPages * kPageTokens);
  EXPECT_EQ(report.at("tenants").as_array().size(), 2u);
  EXPECT_EQ(report.at("spaces").as_array().size(), 2u);
  EXPECT_EQ(report.at("encryption"), false);
}

TEST_F(StoreVerbs, GcGivesBackWhatHasExpired) {
  write(PastClock(3600));
  EXPECT_EQ(inspected().at("expired"), 10);
  const std::int64_t before = folder_.bytes();
  const Outcome outcome = artery({"kv", "gc", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::int64_t freed = parsed(outcome).at("freed").as_int64();
  EXPECT_GT(freed, 10 * 12000);
  EXPECT_LE(folder_.bytes(), before - 10 * 12000);
  EXPECT_EQ(inspected().at("expired"), 0);
  EXPECT_EQ(inspected().at("records"), 10);
  EXPECT_EQ(parsed(artery({"kv", "gc", "--json"})).at("freed"), 0);
  EXPECT_EQ(artery({"kv", "verify"}).exit_code, 0);
}

TEST_F(StoreVerbs, GcShrinksToACap) {
  {
    const auto store = kvstore::store_testing::open_store(config());
    for (int seed = 0; seed < 40; ++seed) put(*store, seed, "ann", TtlClass::kChat);
  }
  const std::int64_t before = folder_.bytes();
  ASSERT_GT(before, 4 << 20);
  const Outcome outcome = artery({"kv", "gc", "--json", "--kv-max-bytes", "3M"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_LE(folder_.bytes(), 3 << 20);
  EXPECT_GT(parsed(outcome).at("freed").as_int64(), 1 << 20);
  EXPECT_GT(inspected().at("records").as_int64(), 50);
  EXPECT_EQ(artery({"kv", "verify"}).exit_code, 0);
  const Outcome refused = artery({"kv", "gc", "--kv-max-bytes", "1K"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(contains(refused.err, "too small")) << refused.err;
}

TEST_F(StoreVerbs, GcFreesWhatIsOverAQuota) {
  {
    const auto store = kvstore::store_testing::open_store(config());
    for (int seed = 0; seed < 10; ++seed) put(*store, seed, "ann", TtlClass::kChat);
    put(*store, 20, "ben", TtlClass::kChat);
  }
  const auto records = [&](const char* tenant) {
    const json::object report = inspected();
    for (const json::value& one : report.at("tenants").as_array())
      if (one.at("tenant") == tenant) return one.at("records").as_int64();
    return std::int64_t{0};
  };
  ASSERT_EQ(records("ann"), 100);
  const std::string keys = keys_.write(
      "keys.toml", "[[key]]\nname = \"ann\"\nkey = \"ann-secret\"\nkv_quota = \"500K\"\n"
  );
  const Outcome outcome = artery({"kv", "gc", "--json", "--api-keys", keys});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_GT(parsed(outcome).at("freed").as_int64(), 500'000);
  EXPECT_EQ(records("ann"), 31) << "of 16 KiB";
  EXPECT_EQ(records("ben"), 10);
  EXPECT_EQ(artery({"kv", "verify"}).exit_code, 0);
}

TEST_F(StoreVerbs, DropTenantLeavesNoByteOfIt) {
  write();
  ASSERT_GT(traces(1), 30);
  const Outcome outcome = drop("ann");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_GT(parsed(outcome).at("erased").as_int64(), 10 * 12000);
  EXPECT_EQ(traces(1), 0);
  EXPECT_GT(traces(2), 30);
  const json::object report = parsed(artery({"kv", "verify", "--json"}));
  EXPECT_EQ(report.at("verdict"), "clean");
  EXPECT_EQ(report.at("records"), 10);
  for (const char* name : {"ann", "nobody"}) {
    const Outcome again = drop(name);
    EXPECT_EQ(again.exit_code, 1);
    EXPECT_TRUE(contains(again.err, fmt::format("no tenant '{}' here; there are: ben", name)))
        << again.err;
  }
  EXPECT_EQ(inspected().at("spaces").as_array().size(), 1u);
}

TEST_F(StoreVerbs, DropTenantOfAnEncryptedStoreDestroysItsKeyWithoutTheKeyFile) {
  key_file_ = keys_.write("master", std::string(64, 'a') + "\n");
  write();
  EXPECT_EQ(traces(1), 0);
  EXPECT_EQ(inspected().at("encryption"), true);
  EXPECT_TRUE(contains(artery({"inspect"}).out, "20 of 20 records encrypted"));
  EXPECT_EQ(artery({"kv", "gc"}).exit_code, 0);
  EXPECT_EQ(artery({"kv", "verify", "--kv-encryption-key-file", key_file_}).exit_code, 0);
  const Outcome keyless = artery({"kv", "verify", "--json"});
  EXPECT_EQ(keyless.exit_code, 0);
  EXPECT_EQ(parsed(keyless).at("verdict"), "not all checked");
  EXPECT_EQ(parsed(keyless).at("not_opened"), 20);
  EXPECT_TRUE(contains(artery({"kv", "verify"}).out, "20 encrypted records: their checksums"));
  const Outcome outcome = drop("ann");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::ostringstream keys;
  keys << std::ifstream(folder_.file("keys.json")).rdbuf();
  EXPECT_FALSE(contains(keys.str(), "ann"));
  EXPECT_TRUE(contains(keys.str(), "ben"));
  EXPECT_EQ(inspected().at("records"), 10);
  EXPECT_EQ(artery({"kv", "verify", "--kv-encryption-key-file", key_file_}).exit_code, 0);
  const std::string other = keys_.write("other", std::string(64, 'b'));
  const Outcome wrong = artery({"kv", "verify", "--kv-encryption-key-file", other});
  EXPECT_EQ(wrong.exit_code, 3);
  EXPECT_TRUE(contains(wrong.err, "encryption key")) << wrong.err;
}

TEST_F(StoreVerbs, VerifyTellsWhatTheSmallFilesLack) {
  key_file_ = keys_.write("master", std::string(64, 'a') + "\n");
  write();
  const auto damaged = [&](const char* says) {
    const Outcome outcome = artery({"kv", "verify"});
    EXPECT_EQ(outcome.exit_code, 3) << outcome.out;
    EXPECT_TRUE(contains(outcome.out, says)) << outcome.out;
  };
  const auto without = [&](const char* name, const char* says) {
    // Folders may be on different devices, where a rename fails.
    std::filesystem::copy_file(folder_.file(name), keys_.file("aside"));
    std::filesystem::remove(folder_.file(name));
    damaged(says);
    std::filesystem::copy_file(keys_.file("aside"), folder_.file(name));
    std::filesystem::remove(keys_.file("aside"));
  };
  without("secret", "secret: missing");
  without("keys.json", "keys.json: missing");
  without("spaces.json", "spaces.json: missing");
  std::ofstream(folder_.file("keys.json"), std::ios::app) << "garbage\n";
  damaged("keys.json: line 4 is damaged");
}

TEST_F(StoreVerbs, BesideAProcessThatHasItOpen) {
  Holder holder(config(), [](DiskStore& store) {
    put(store, 1, "ann", TtlClass::kChat);
    put(store, 2, "ben", TtlClass::kChat);
  });
  ASSERT_TRUE(holder.is_ready());
  json::object report = parsed(artery({"kv", "verify", "--json"}));
  EXPECT_EQ(report.at("verdict"), "clean");
  EXPECT_EQ(report.at("records"), 20);
  EXPECT_EQ(inspected().at("state"), "open");
  EXPECT_TRUE(contains(artery({"inspect"}).out, std::to_string(holder.pid())));

  const Outcome refused = artery({"kv", "gc", "--kv-max-bytes", "3M"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(contains(refused.err, "a server has it open")) << refused.err;
  report = parsed(artery({"kv", "gc", "--json"}));
  EXPECT_EQ(report.at("freed"), 0);
  EXPECT_EQ(report.at("done_by"), "the server that has it open");

  ASSERT_GT(traces(1), 30);
  const Outcome dropped = drop("ann");
  EXPECT_EQ(dropped.exit_code, 0) << dropped.err;
  EXPECT_GT(parsed(dropped).at("erased").as_int64(), 10 * 12000);
  EXPECT_EQ(parsed(dropped).at("done_by"), "the server that has it open");
  EXPECT_TRUE(contains(dropped.err, "emptied its RAM cache")) << dropped.err;
  EXPECT_EQ(traces(1), 0);
  EXPECT_TRUE(folder_.names("orders").size() == 1);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.file("orders")));
  report = parsed(artery({"kv", "verify", "--json"}));
  EXPECT_EQ(report.at("verdict"), "clean");
  EXPECT_EQ(report.at("records"), 10);
  EXPECT_EQ(holder.close(), 0);
  EXPECT_EQ(inspected().at("records"), 10);
  EXPECT_EQ(inspected().at("unknown_files").as_array().size(), 0u);
}

TEST_F(StoreVerbs, WhatIsNoStoreIsNamed) {
  const struct {
    std::vector<std::string> words;
    int exit_code;
    const char* says;
  } cases[] = {
      {{"kv", "verify", keys_.file("none")}, 1, "none"},
      {{"kv", "gc", keys_.file("")}, 3, "not a KV store"},
      {{"kv", "verify", keys_.write("file", "x")}, 2, "file"},
      {{"kv", "drop-tenant", keys_.file(""), "ann"}, 3, "not a KV store"},
      {{"kv", "verify"}, 2, "DIR"},
  };
  for (const auto& wrong : cases) {
    const Outcome outcome = run_artery(wrong.words);
    EXPECT_EQ(outcome.exit_code, wrong.exit_code) << wrong.words[1] << outcome.err;
    EXPECT_TRUE(contains(outcome.err, wrong.says)) << outcome.err;
  }
  write();
  const Outcome nobody = run_artery({"kv", "drop-tenant", folder_.path()});
  EXPECT_EQ(nobody.exit_code, 2);
  EXPECT_TRUE(contains(nobody.err, "artery inspect")) << nobody.err;
  const Outcome keyless =
      run_artery({"kv", "drop-tenant", folder_.path(), "--tenant", "", "--json"});
  EXPECT_EQ(keyless.exit_code, 1);
  EXPECT_TRUE(contains(keyless.err, "there are: ann, ben")) << keyless.err;
}

}  // namespace
}  // namespace artery::testing_cli
