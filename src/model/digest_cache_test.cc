#include "model/digest_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "model/load.h"
#include "tensor/backend.h"
#include "testing/tiny_model.h"

namespace artery::model {
namespace {

namespace files = std::filesystem;

class DigestCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = files::temp_directory_path() / ("artery-digests-" + std::to_string(getpid()));
    files::remove_all(folder_);
  }
  void TearDown() override { files::remove_all(folder_); }

  // The one entry there is.
  files::path entry() const {
    files::path found;
    int count = 0;
    for (const auto& file : files::directory_iterator(folder_)) {
      found = file.path();
      ++count;
    }
    EXPECT_EQ(count, 1);
    return found;
  }

  static std::string content(const files::path& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  files::path folder_;
  const FileStamp stamp_{1, 2, 3, 4, 5};
  const std::string digest_ = std::string(60, 'a') + "0123";
  static constexpr std::int64_t kLater = 10'000'000'000;
};

TEST_F(DigestCacheTest, KeepsADigestByItsStamp) {
  const DigestCache cache((folder_ / "a/b").string());
  EXPECT_FALSE(cache.find(stamp_));
  EXPECT_TRUE(cache.store(stamp_, digest_, kLater));
  EXPECT_EQ(cache.find(stamp_), digest_);
  EXPECT_EQ(DigestCache((folder_ / "a/b").string()).find(stamp_), digest_);
  for (const FileStamp& other :
       {FileStamp{9, 2, 3, 4, 5},
        FileStamp{1, 9, 3, 4, 5},
        FileStamp{1, 2, 9, 4, 5},
        FileStamp{1, 2, 3, 9, 5},
        FileStamp{1, 2, 3, 4, 9}})
    EXPECT_FALSE(cache.find(other));
  EXPECT_EQ(files::status(folder_).permissions(), files::perms::owner_all);
}

TEST_F(DigestCacheTest, LeavesOutFilesThatJustChanged) {
  const DigestCache cache(folder_.string());
  EXPECT_FALSE(cache.store(stamp_, digest_, 1'000'000'000));
  EXPECT_FALSE(cache.store({1, 2, 3, 4, kLater}, digest_, kLater));
  EXPECT_FALSE(cache.find(stamp_));
}

TEST_F(DigestCacheTest, AnyChangeOfAnEntryIsAMiss) {
  const DigestCache cache(folder_.string());
  ASSERT_TRUE(cache.store(stamp_, digest_, kLater));
  const std::string good = content(entry());
  const auto put = [&](const std::string& text) {
    std::ofstream(entry(), std::ios::trunc) << text;
    return cache.find(stamp_);
  };
  EXPECT_EQ(put(good), digest_);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = bad[i] == '1' ? '2' : '1';
    EXPECT_FALSE(put(bad)) << i;
    EXPECT_FALSE(put(good.substr(0, i))) << i;
  }
  EXPECT_FALSE(put(good + "x"));
  EXPECT_FALSE(put(std::string(100000, 'x')));
}

TEST_F(DigestCacheTest, TheOldestEntriesGo) {
  const DigestCache cache(folder_.string());
  const auto stamp = [](std::uint64_t inode) { return FileStamp{1, inode, 3, 4, 5}; };
  constexpr std::uint64_t kMax = DigestCache::kEntriesMax;
  for (std::uint64_t inode = 0; inode < kMax; ++inode) {
    ASSERT_TRUE(cache.store(stamp(inode), digest_, kLater));
    // In order, whatever the clock of the file system.
    for (const auto& file : files::directory_iterator(folder_)) {
      if (files::last_write_time(file) <
          files::file_time_type::clock::now() - std::chrono::hours(1))
        continue;
      files::last_write_time(
          file,
          files::file_time_type::clock::now() -
              std::chrono::hours(static_cast<int>(2 * kMax - 2 * inode + 2))
      );
    }
  }
  std::ofstream(folder_ / "notes") << "not ours";
  for (std::uint64_t inode = 0; inode < kMax; ++inode) ASSERT_TRUE(cache.find(stamp(inode)));
  ASSERT_TRUE(cache.store(stamp(kMax), digest_, kLater));
  ASSERT_TRUE(cache.store(stamp(kMax + 1), digest_, kLater));
  EXPECT_FALSE(cache.find(stamp(0)));
  EXPECT_FALSE(cache.find(stamp(1)));
  for (std::uint64_t inode = 2; inode <= kMax + 1; ++inode) EXPECT_TRUE(cache.find(stamp(inode)));
  EXPECT_TRUE(files::exists(folder_ / "notes"));
}

TEST_F(DigestCacheTest, AFolderThatCannotBeOnlyCostsTime) {
  const DigestCache none("");
  EXPECT_FALSE(none.store(stamp_, digest_, kLater));
  EXPECT_FALSE(none.find(stamp_));
  files::create_directories(folder_);
  std::ofstream(folder_ / "file") << "x";
  const DigestCache below_a_file((folder_ / "file/cache").string());
  EXPECT_FALSE(below_a_file.store(stamp_, digest_, kLater));
  EXPECT_FALSE(below_a_file.find(stamp_));
}

TEST_F(DigestCacheTest, LoadsTakeAndKeepDigests) {
  files::create_directories(folder_);
  const files::path model = folder_ / "tiny.gguf", digests = folder_ / "digests";
  const std::string bytes = testing::tiny_model({}).bytes();
  std::ofstream(model, std::ios::binary) << bytes;
  files::last_write_time(model, files::file_time_type::clock::now() - std::chrono::hours(1));
  tensor::ComputePool pool(1);
  const auto backend = tensor::make_reference_backend(pool);
  const auto digest = [&](const std::string& folder) {
    const auto file = GgufFile::open(model.string());
    EXPECT_TRUE(file);
    LoadOptions options;
    options.digest_folder = folder;
    const auto loaded = load_model(**file, *backend, options);
    EXPECT_TRUE(loaded);
    return (*loaded)->info().weights_digest;
  };
  const std::string computed = digest("");
  // The file is new by its ctime, so a load does not keep the digest yet.
  EXPECT_EQ(digest(digests.string()), computed);
  EXPECT_FALSE(files::exists(digests));
  const auto file = GgufFile::open(model.string());
  const std::string other(64, 'b');
  ASSERT_TRUE(DigestCache(digests.string()).store((*file)->files()[0]->stamp(), other, INT64_MAX));
  EXPECT_EQ(digest(digests.string()), other);
  // Another file in its place has another stamp.
  std::ofstream(folder_ / "new.gguf", std::ios::binary) << bytes;
  files::rename(folder_ / "new.gguf", model);
  EXPECT_EQ(digest(digests.string()), computed);
}

}  // namespace
}  // namespace artery::model
