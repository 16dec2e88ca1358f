#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <utility>

#include "base/chain_key.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/memory_limit.h"
#include "base/result.h"

namespace artery {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return fail_field("x", "{} is odd", x);
  return x / 2;
}
Result<int> quarter(int x) {
  const int once = TRY(half(x));
  return TRY(half(once));
}

TEST(Result, TryPassesValuesAndErrors) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().message, "3 is odd");
  EXPECT_EQ(quarter(6).error().field, "x");
}

TEST(Hash, Sha256OfAbc) {
  const std::string text = "abc";
  EXPECT_EQ(
      hex(sha256(std::as_bytes(std::span(text)))),
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
  );
}

TEST(ChainKey, DependsOnEveryTokenBeforeAndOnTheRoot) {
  std::vector<TokenId> tokens(40);
  for (int i = 0; i < 40; ++i) tokens[static_cast<std::size_t>(i)] = i;
  const auto a = chain_keys(chain_root("s", "n"), tokens);
  ASSERT_EQ(a.size(), 2u);
  tokens[3] = 99;
  const auto b = chain_keys(chain_root("s", "n"), tokens);
  EXPECT_NE(a[0], b[0]);
  EXPECT_NE(a[1], b[1]);
  tokens[3] = 3;
  EXPECT_EQ(chain_keys(chain_root("s", "n"), tokens), a);
  EXPECT_NE(chain_keys(chain_root("s", "m"), tokens)[0], a[0]);
  EXPECT_NE(chain_keys(chain_root("t", "n"), tokens)[0], a[0]);
}

TEST(MemoryLimit, TheTighterOneCounts) {
  MemoryLimit limit{.machine_total = 100, .machine_available = 50};
  EXPECT_EQ(limit.available(), 50);
  limit.cgroup_left = 30;
  EXPECT_EQ(limit.available(), 30);
  const MemoryLimit here = memory_limit();
  EXPECT_GT(here.machine_available, 0);
  EXPECT_LE(here.machine_available, here.machine_total);
  EXPECT_GT(usable_memory_bytes(), 0);
}

class TemporaryFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("artery-files-" + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(TemporaryFolder, ReplacePutsAWholeFileInPlace) {
  const FileSystem& files = system_file_system();
  const std::string path = (folder_ / "a/b/c").string();
  for (const char* text : {"first", "", "second"}) {
    ASSERT_TRUE(files.replace(path, text));
    EXPECT_EQ(files.read(path, 100).value_or("?"), text);
  }
  // Nothing but the file is left beside it, and it is its owner's alone.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ / "a/b"), {}), 1);
  EXPECT_EQ(std::filesystem::status(folder_).permissions(), std::filesystem::perms::owner_all);
  const auto below_a_file = files.replace(path + "/d", "x");
  ASSERT_FALSE(below_a_file);
  EXPECT_EQ(below_a_file.error().code, Code::kIo);
}

TEST_F(TemporaryFolder, ReleasedPartsReadTheSame) {
  const FileSystem& files = system_file_system();
  const std::string path = (folder_ / "file").string();
  std::string text(50'000, ' ');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 % 251);
  ASSERT_TRUE(files.replace(path, text));
  const auto mapped = files.map(path);
  ASSERT_TRUE(mapped);
  const auto content = [&] {
    const auto bytes = (*mapped)->bytes();
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  EXPECT_EQ(content(), text);
  const std::pair<std::size_t, std::size_t> parts[] = {
      {0, 0}, {0, 50'000}, {1, 4095}, {4096, 4096}, {5000, 30'000}, {40'000, 10'000}, {49'999, 1}
  };
  for (const auto& [offset, bytes] : parts) {
    (*mapped)->release(offset, bytes);
    EXPECT_EQ(content(), text) << offset;
  }
}

TEST_F(TemporaryFolder, APipeIsNotMapped) {
  std::filesystem::create_directories(folder_);
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto mapped = system_file_system().map(pipe);  // a plain open would wait for a writer
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.error().code, Code::kBadFile);
}

TEST(FileSystem, NamesTheMissingFile) {
  const auto missing = system_file_system().map("/nonexistent/model.gguf");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_NE(missing.error().message.find("/nonexistent/model.gguf"), std::string::npos);
}

}  // namespace
}  // namespace artery
