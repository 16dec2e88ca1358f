// The store's verbs on real files: in a folder of the build tree (a disk) and in memory (tmpfs),
// where both are there.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace artery {
namespace {

constexpr std::size_t kBlock = 4096;

struct Freed {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};

// Aligned as O_DIRECT wants it.
class Blocks {
 public:
  explicit Blocks(std::size_t count, std::byte value = {})
      : bytes_(static_cast<std::byte*>(std::aligned_alloc(kBlock, count * kBlock))), count_(count) {
    std::ranges::fill(span(), value);
  }
  std::span<std::byte> span() const { return {bytes_.get(), count_ * kBlock}; }
  bool all(std::byte value) const {
    return std::ranges::all_of(span(), [value](std::byte b) { return b == value; });
  }

 private:
  std::unique_ptr<std::byte, Freed> bytes_;
  std::size_t count_;
};

class BlockFiles : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string folder = std::string(GetParam()) + "/artery-blocks-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) GTEST_SKIP() << GetParam() << " cannot be written";
    folder_ = folder;
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  FileSystem& files_ = system_file_system();
  std::string folder_;
};
INSTANTIATE_TEST_SUITE_P(
    Places,
    BlockFiles,
    ::testing::Values(ARTERY_BUILD_DIR, "/dev/shm"),
    [](const auto& place) { return place.index == 0 ? "disk" : "memory"; }
);

TEST_P(BlockFiles, WritesReadsAndEnds) {
  auto made = files_.open_blocks(path("a"), OpenMode::kCreate);
  ASSERT_TRUE(made) << made.error().message;
  BlockFile& file = **made;
  EXPECT_GE(file.descriptor(), 0);
  EXPECT_EQ(*file.size(), 0);
  const Blocks sevens(4, std::byte{7});
  EXPECT_EQ(file.write_at(8192, sevens.span()), 16384);
  ASSERT_TRUE(file.sync());
  EXPECT_EQ(*file.size(), 24576);
  const Blocks in(8, std::byte{1});
  EXPECT_EQ(file.read_at(0, in.span()), 24576);  // short: the end of the file
  EXPECT_EQ(in.span()[8191], std::byte{0});
  EXPECT_EQ(in.span()[8192], std::byte{7});
  EXPECT_EQ(file.read_at(1 << 20, in.span()), 0);
  ASSERT_TRUE(file.truncate(12288));
  EXPECT_EQ(file.read_at(8192, in.span()), 4096);

  auto again = files_.open_blocks(path("a"), OpenMode::kRead);
  ASSERT_TRUE(again);
  EXPECT_EQ((*again)->read_at(8192, in.span()), 4096);
  EXPECT_EQ((*again)->write_at(0, sevens.span()), -EBADF);
  auto emptied = files_.open_blocks(path("a"), OpenMode::kCreate);
  ASSERT_TRUE(emptied);
  EXPECT_EQ(*(*emptied)->size(), 0);
  struct stat st{};
  ASSERT_EQ(::stat(path("a").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST_P(BlockFiles, ReservesAndFrees) {
  auto file = std::move(*files_.open_blocks(path("a"), OpenMode::kCreate));
  ASSERT_TRUE(file->reserve(1 << 20));
  EXPECT_EQ(*file->size(), 1 << 20);
  const Blocks in(1, std::byte{1});
  EXPECT_EQ(file->read_at(1 << 19, in.span()), 4096);
  EXPECT_TRUE(in.all(std::byte{0}));
  struct stat st{};
  ASSERT_EQ(::stat(path("a").c_str(), &st), 0);
  EXPECT_GE(st.st_blocks, (1 << 20) / 512);

  const Blocks sevens(4, std::byte{7});
  ASSERT_EQ(file->write_at(0, sevens.span()), 16384);
  ASSERT_TRUE(file->punch(4096, 8192));
  const Blocks all(4);
  ASSERT_EQ(file->read_at(0, all.span()), 16384);
  for (std::size_t i = 0; i < 4; ++i) {
    const bool is_freed = i == 1 || i == 2;
    EXPECT_EQ(all.span()[i * kBlock + 77], std::byte(is_freed ? 0 : 7)) << i;
  }
  EXPECT_EQ(*file->size(), 1 << 20);
  const auto refused = file->reserve(std::int64_t{1} << 60);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kOutOfMemory) << refused.error().message;
}

TEST_P(BlockFiles, SaysWhatIsWrong) {
  EXPECT_EQ(files_.open_blocks(path("none"), OpenMode::kRead).error().code, Code::kNotFound);
  EXPECT_EQ(files_.open_blocks(path("none"), OpenMode::kWrite).error().code, Code::kNotFound);
  EXPECT_EQ(files_.open_blocks(folder_, OpenMode::kRead).error().code, Code::kBadFile);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(files_.open_blocks(path("pipe"), OpenMode::kRead).error().code, Code::kBadFile);
  EXPECT_EQ(files_.remove_file(path("none")).error().code, Code::kNotFound);
  EXPECT_EQ(files_.sync_folder(path("none")).error().code, Code::kNotFound);
  EXPECT_EQ(files_.space(path("none")).error().code, Code::kNotFound);
}

TEST_P(BlockFiles, FoldersOfTheirOwner) {
  ASSERT_TRUE(files_.make_folder(path("x/y/z")));
  ASSERT_TRUE(files_.make_folder(path("x/y/z")));
  struct stat st{};
  ASSERT_EQ(::stat(path("x/y/z").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
  EXPECT_TRUE(files_.sync_folder(path("x/y/z")));
  ASSERT_TRUE(files_.replace(path("f"), "text"));
  EXPECT_FALSE(files_.make_folder(path("f/g")));
  ASSERT_TRUE(files_.remove_file(path("f")));
  EXPECT_EQ(files_.read(path("f"), 10).error().code, Code::kNotFound);
}

TEST_P(BlockFiles, Space) {
  const auto space = files_.space(folder_);
  ASSERT_TRUE(space);
  EXPECT_GT(space->free_bytes, 0);
  EXPECT_FALSE(space->is_read_only);
}

TEST_P(BlockFiles, ALockHasOneHolder) {
  auto held = files_.lock(path("lock"), "process 123");
  ASSERT_TRUE(held) << held.error().message;
  const auto second = files_.lock(path("lock"), "process 456");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_NE(second.error().message.find("process 123"), std::string::npos);
  held->reset();
  EXPECT_TRUE(files_.lock(path("lock"), "789"));
  EXPECT_EQ(*files_.read(path("lock"), 100), "789");
}

TEST_P(BlockFiles, TheKernelGivesTheLockOfADeadProcessBack) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto held = files_.lock(path("lock"), "child");
    const char byte = held ? 'y' : 'n';
    if (::write(ready[1], &byte, 1) == 1) ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_EQ(files_.lock(path("lock"), "parent").error().code, Code::kUnavailable);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(files_.lock(path("lock"), "parent"));
  ::close(ready[0]);
  ::close(ready[1]);
}

// FileSystem's own answers, for those that offer no block files.
class ReadOnlyFiles final : public FileSystem {
  Result<std::unique_ptr<MappedFile>> map(const std::string& path) const override {
    return fail(Code::kNotFound, "{}", path);
  }
  Result<std::string> read(const std::string& path, std::size_t) const override {
    return fail(Code::kNotFound, "{}", path);
  }
};

TEST(BlockFile, IsNotOfferedUnlessOverridden) {
  ReadOnlyFiles files;
  FileSystem& base = files;
  EXPECT_EQ(base.open_blocks("a", OpenMode::kRead).error().code, Code::kUnsupported);
  EXPECT_EQ(base.lock("a", "").error().code, Code::kUnsupported);
  EXPECT_EQ(base.space("a").error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace artery
