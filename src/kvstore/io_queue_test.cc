// Every queue over real files; and what happens where io_uring or locked memory is refused.

#include "kvstore/io_queue.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <new>
#include <string>
#include <thread>

namespace artery::kvstore {
namespace {

constexpr std::size_t kBlock = 4096;
constexpr int kDepth = 8;
using Kind = IoRequest::Kind;

struct Freed {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
using Memory = std::unique_ptr<std::byte, Freed>;

Memory blocks(std::size_t count) {
  auto* bytes = static_cast<std::byte*>(std::aligned_alloc(kBlock, count * kBlock));
  std::fill_n(bytes, count * kBlock, std::byte{0});
  return Memory(bytes);
}

enum class Which { kRegistered, kPlain, kThreads };

Result<std::unique_ptr<IoQueue>> make(Which which, std::span<std::byte> memory) {
  if (which == Which::kThreads) return make_thread_queue(kDepth, 3);
  return make_uring_queue(kDepth, which == Which::kRegistered ? memory : std::span<std::byte>());
}

class Queues : public ::testing::TestWithParam<Which> {
 protected:
  void SetUp() override {
    std::string folder = ARTERY_BUILD_DIR "/artery-queue-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    memory_ = blocks(64);
    auto queue = make(GetParam(), {memory_.get(), 64 * kBlock});
    if (!queue) GTEST_SKIP() << queue.error().message;
    queue_ = std::move(*queue);
    file_ = open("a", OpenMode::kCreate);
  }
  void TearDown() override {
    queue_.reset();
    file_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::unique_ptr<BlockFile> open(const std::string& name, OpenMode mode) {
    return std::move(*system_file_system().open_blocks(folder_ + "/" + name, mode));
  }
  std::span<std::byte> block(std::size_t index, std::size_t count = 1) {
    return {memory_.get() + index * kBlock, count * kBlock};
  }
  bool submit(
      Kind kind,
      std::int64_t offset,
      std::span<std::byte> buffer,
      std::uint64_t tag,
      BlockFile* file = nullptr
  ) {
    return queue_->submit({kind, file == nullptr ? file_.get() : file, offset, buffer, tag});
  }
  // Waits for everything under way.
  std::map<std::uint64_t, IoResult> all() {
    std::vector<IoResult> ended;
    while (queue_->in_flight() > 0) queue_->wait(ended, -1);
    std::map<std::uint64_t, IoResult> by_tag;
    for (const IoResult& result : ended) EXPECT_TRUE(by_tag.emplace(result.tag, result).second);
    return by_tag;
  }

  std::string folder_;
  Memory memory_;
  std::unique_ptr<BlockFile> file_;
  std::unique_ptr<IoQueue> queue_;
};
std::string name_of(const ::testing::TestParamInfo<Which>& which) {
  const char* const names[] = {"registered", "plain", "threads"};
  return names[static_cast<int>(which.param)];
}
INSTANTIATE_TEST_SUITE_P(
    All, Queues, ::testing::Values(Which::kRegistered, Which::kPlain, Which::kThreads), name_of
);

TEST_P(Queues, HasItsName) {
  const char* const names[] = {"io_uring, registered buffers", "io_uring", "threads"};
  const std::string expected = names[static_cast<int>(GetParam())];
  // Without the right to lock memory the first is the second.
  if (GetParam() == Which::kRegistered && queue_->name() == "io_uring") return;
  EXPECT_EQ(queue_->name(), expected);
}

TEST_P(Queues, ReadsWhatItWrote) {
  for (std::size_t round = 0; round < 6; ++round) {
    for (std::size_t i = 0; i < kDepth; ++i) {
      std::ranges::fill(block(i), static_cast<std::byte>(round * kDepth + i + 1));
      const auto at = static_cast<std::int64_t>((round * kDepth + i) * kBlock);
      ASSERT_TRUE(submit(Kind::kWrite, at, block(i), i));
    }
    for (const auto& [tag, result] : all()) {
      EXPECT_EQ(result.error, 0);
      EXPECT_EQ(result.bytes, static_cast<std::int64_t>(kBlock));
    }
  }
  ASSERT_TRUE(submit(Kind::kSync, 0, {}, 99));
  EXPECT_EQ(all().at(99).error, 0);
  ASSERT_TRUE(submit(Kind::kRead, 0, block(16, 48), 7));
  EXPECT_EQ(all().at(7).bytes, static_cast<std::int64_t>(48 * kBlock));
  for (std::size_t i = 0; i < 48; ++i) {
    const auto value = static_cast<std::byte>(i + 1);
    EXPECT_TRUE(std::ranges::all_of(block(16 + i), [&](std::byte b) { return b == value; })) << i;
  }
}

TEST_P(Queues, MemoryThatWasNotGivenBeforeWorksToo) {
  const Memory other = blocks(2);
  std::fill_n(other.get(), 2 * kBlock, std::byte{9});
  ASSERT_TRUE(submit(Kind::kWrite, 0, {other.get(), 2 * kBlock}, 1));
  EXPECT_EQ(all().at(1).bytes, static_cast<std::int64_t>(2 * kBlock));
  ASSERT_TRUE(submit(Kind::kRead, 4096, block(3), 2));
  EXPECT_EQ(all().at(2).bytes, static_cast<std::int64_t>(kBlock));
  EXPECT_EQ(block(3)[100], std::byte{9});
}

TEST_P(Queues, ShortCountsAndErrorsArePassedOn) {
  ASSERT_TRUE(submit(Kind::kWrite, 0, block(0, 3), 1));
  all();
  const auto reader = open("a", OpenMode::kRead);
  ASSERT_TRUE(submit(Kind::kRead, 4096, block(4, 4), 1, reader.get()));
  ASSERT_TRUE(submit(Kind::kRead, 1 << 20, block(8), 2, reader.get()));
  ASSERT_TRUE(submit(Kind::kWrite, 0, block(9), 3, reader.get()));
  const auto ended = all();
  EXPECT_EQ(ended.at(1).bytes, 8192);
  EXPECT_EQ(ended.at(1).error, 0);
  EXPECT_EQ(ended.at(2).bytes, 0);
  EXPECT_EQ(ended.at(2).error, 0);
  EXPECT_EQ(ended.at(3).bytes, 0);
  EXPECT_EQ(ended.at(3).error, EBADF);
}

TEST_P(Queues, TakesNoMoreThanItsDepth) {
  for (std::size_t i = 0; i < kDepth; ++i) {
    ASSERT_TRUE(submit(Kind::kWrite, static_cast<std::int64_t>(i * kBlock), block(i), i));
    EXPECT_EQ(queue_->in_flight(), static_cast<int>(i + 1));
  }
  EXPECT_FALSE(submit(Kind::kWrite, 0, block(20), 99));
  EXPECT_EQ(all().size(), static_cast<std::size_t>(kDepth));
  EXPECT_TRUE(submit(Kind::kWrite, 0, block(20), 99));
  EXPECT_EQ(all().size(), 1u);
}

TEST_P(Queues, WaitsForAsLongAsItWasTold) {
  std::vector<IoResult> ended;
  queue_->wait(ended, 0);
  const auto begin = std::chrono::steady_clock::now();
  queue_->wait(ended, 30);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(29));
  EXPECT_TRUE(ended.empty());
}

TEST_P(Queues, IsWokenByAnotherThread) {
  std::vector<IoResult> ended;
  queue_->wake();
  queue_->wait(ended, -1);  // woken before
  std::atomic<bool> is_waiting{false};
  std::thread other([&] {
    while (!is_waiting) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    queue_->wake();
  });
  is_waiting = true;
  queue_->wait(ended, -1);
  other.join();
  EXPECT_TRUE(ended.empty());
  const auto begin = std::chrono::steady_clock::now();
  queue_->wait(ended, 20);  // one wake() ends one wait()
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(19));
}

TEST_P(Queues, WakesDuringWorkLoseNothing) {
  std::atomic<bool> is_done{false};
  std::thread other([&] {
    while (!is_done) {
      queue_->wake();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  std::size_t submitted = 0;
  std::vector<IoResult> ended;
  while (ended.size() < 300) {
    const std::size_t i = submitted % 32;
    if (submitted < 300 &&
        submit(Kind::kWrite, static_cast<std::int64_t>(i * kBlock), block(i), submitted)) {
      ++submitted;
    } else {
      queue_->wait(ended, -1);
    }
  }
  is_done = true;
  other.join();
  std::vector<bool> seen(300);
  for (const IoResult& result : ended) {
    EXPECT_EQ(result.error, 0);
    EXPECT_FALSE(seen[result.tag]);
    seen[result.tag] = true;
  }
}

TEST_P(Queues, TheEndWaitsForWhatIsUnderWay) {
  std::ranges::fill(block(0, kDepth), std::byte{5});
  for (std::size_t i = 0; i < kDepth; ++i) {
    ASSERT_TRUE(submit(Kind::kWrite, static_cast<std::int64_t>(i * kBlock), block(i), i));
  }
  queue_.reset();
  ASSERT_EQ(file_->read_at(0, block(32, 8)), static_cast<std::int64_t>(8 * kBlock));
  EXPECT_TRUE(std::ranges::all_of(block(32, 8), [](std::byte b) { return b == std::byte{5}; }));
}

// A file that only its own calls can read.
class NoDescriptor final : public BlockFile {
 public:
  std::int64_t read_at(std::int64_t, std::span<std::byte> into) override {
    std::ranges::fill(into, std::byte{3});
    return static_cast<std::int64_t>(into.size());
  }
  std::int64_t write_at(std::int64_t, std::span<const std::byte>) override { return -ENOSPC; }
  Result<> sync() override { return fail(Code::kIo, "no"); }
  Result<> reserve(std::int64_t) override { return {}; }
  Result<> truncate(std::int64_t) override { return {}; }
  Result<> punch(std::int64_t, std::int64_t) override { return {}; }
  Result<std::int64_t> size() const override { return 0; }
};

TEST_P(Queues, FilesWithoutDescriptorAreForThreads) {
  NoDescriptor file;
  ASSERT_TRUE(submit(Kind::kRead, 0, block(0), 1, &file));
  ASSERT_TRUE(submit(Kind::kWrite, 0, block(1), 2, &file));
  ASSERT_TRUE(submit(Kind::kSync, 0, {}, 3, &file));
  const auto ended = all();
  if (GetParam() == Which::kThreads) {
    EXPECT_EQ(ended.at(1).bytes, static_cast<std::int64_t>(kBlock));
    EXPECT_EQ(block(0)[9], std::byte{3});
    EXPECT_EQ(ended.at(2).error, ENOSPC);
    EXPECT_EQ(ended.at(3).error, EIO);
  } else {
    for (const auto& [tag, result] : ended) EXPECT_EQ(result.error, EBADF) << tag;
  }
  EXPECT_EQ(ended.size(), 3u);
}

// Runs `body` in a process of its own, whose exit code it gives.
template <typename Body>
int in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

// As the default seccomp profile of containers does.
bool forbid_io_uring() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(IoUring, IsUnsupportedWhereAProfileForbidsIt) {
  const int code = in_child([] {
    if (!forbid_io_uring()) return 77;
    const auto queue = make_uring_queue(kDepth, {});
    return !queue && queue.error().code == Code::kUnsupported ? 0 : 1;
  });
  if (code == 77) GTEST_SKIP() << "no seccomp filter can be installed";
  EXPECT_EQ(code, 0);
}

TEST(IoUring, UsesPlainBuffersWhereMemoryCannotBeLocked) {
  if (!make_uring_queue(kDepth, {})) GTEST_SKIP() << "no io_uring";
  const int code = in_child([] {
    const rlimit little{128 << 10, 128 << 10};  // enough for the ring itself, not for 256 KiB
    if (::setrlimit(RLIMIT_MEMLOCK, &little) != 0) return 77;
    if (::getuid() == 0 && ::setuid(65534) != 0) return 77;  // root may lock what it likes
    const Memory memory = blocks(64);
    const auto queue = make_uring_queue(kDepth, {memory.get(), 64 * kBlock});
    if (!queue) return 1;
    return (*queue)->name() == "io_uring" ? 0 : 2;
  });
  if (code == 77) GTEST_SKIP() << "limits cannot be changed";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace artery::kvstore
