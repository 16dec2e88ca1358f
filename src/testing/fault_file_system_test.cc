#include "testing/fault_file_system.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <set>
#include <string>
#include <thread>

#include "testing/sim_clock.h"

namespace artery::testing {
namespace {

struct alignas(4096) Blocks {
  std::array<std::byte, 4 * 4096> bytes;
  explicit Blocks(char fill = 0) { bytes.fill(static_cast<std::byte>(fill)); }
  std::span<std::byte> first(std::size_t count) { return std::span(bytes).first(count * 4096); }
};

std::unique_ptr<BlockFile> open(FaultFileSystem& files, const std::string& path, OpenMode mode) {
  auto file = files.open_blocks(path, mode);
  EXPECT_TRUE(file) << file.error().message;
  return file ? file.take() : nullptr;
}

// One block of 'a', then of 'b' over it: the smallest writer that can lose something.
void write_twice(FaultFileSystem& files, bool syncs) {
  if (!files.make_folder("/d")) return;
  auto file = files.open_blocks("/d/f", OpenMode::kCreate);
  if (!file) return;
  Blocks a('a');
  Blocks b('b');
  (*file)->write_at(0, a.first(1));
  if (syncs) {
    (void)(*file)->sync();
    (void)files.sync_folder("/d");
  }
  (*file)->write_at(0, b.first(1));
  if (syncs) (void)(*file)->sync();
}

std::set<std::string> outcomes(const FaultFileSystem& files, Crash crash) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    const std::string text = files.after_crash(crash, seed)->text("/d/f");
    seen.insert(text.empty() ? "" : std::string{text[0], text[4095]});
  }
  return seen;
}

TEST(FaultFileSystem, PowerLossTakesWhatIsNotSynced) {
  FaultFileSystem files;
  write_twice(files, false);
  // The name is lost, or the size, or the bytes are old (zeros), of the first or the second write,
  // or half and half.
  const std::string zeros(2, '\0');
  const std::set<std::string> all = {
      "", zeros, "aa", "bb", "ab", "ba", std::string("a\0", 2), std::string("\0a", 2)
  };
  EXPECT_EQ(outcomes(files, Crash::kPower), all);
  EXPECT_EQ(outcomes(files, Crash::kProcess), std::set<std::string>{"bb"});
}

TEST(FaultFileSystem, WhatIsSyncedStays) {
  FaultFileSystem files;
  write_twice(files, true);
  EXPECT_EQ(outcomes(files, Crash::kPower), std::set<std::string>{"bb"});
}

TEST(FaultFileSystem, OneSeedOneOutcome) {
  FaultFileSystem files;
  write_twice(files, false);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(
        files.after_crash(Crash::kPower, seed)->text("/d/f"),
        files.after_crash(Crash::kPower, seed)->text("/d/f")
    );
  }
}

TEST(FaultFileSystem, DiesAtEveryEvent) {
  // create, write, sync, sync_folder, write, sync.
  const std::array<std::set<std::string>, 7> after_kill = {
      std::set<std::string>{"bb"},
      {"", ""},  // an empty file looks like none here
      {"", "aa", std::string("a\0", 2), std::string("\0a", 2), std::string(2, '\0')},
      {"aa"},
      {"aa"},
      {"aa", "ab", "ba", "bb"},
      {"bb"},
  };
  for (std::int64_t n = 0; n <= 6; ++n) {
    FaultFileSystem files;
    files.crash_at(n);
    write_twice(files, true);
    EXPECT_EQ(files.crashed(), n > 0);
    EXPECT_EQ(outcomes(files, Crash::kProcess), after_kill[static_cast<std::size_t>(n)])
        << files.crash_point();
  }
}

TEST(FaultFileSystem, TheDeadDoNothing) {
  FaultFileSystem files;
  write_twice(files, true);
  const auto file = open(files, "/d/f", OpenMode::kWrite);
  const auto lock = files.lock("/d/lock", "pid 1");
  ASSERT_TRUE(lock);
  files.crash_at(files.events() + 1);
  Blocks c('c');
  EXPECT_EQ(file->write_at(4096, c.first(1)), -EIO);
  EXPECT_EQ(files.crash_point(), "event 7: write 4096+4096 /d/f");
  EXPECT_EQ(file->write_at(0, c.first(1)), -EIO);
  EXPECT_EQ(file->read_at(0, c.first(1)), -EIO);
  EXPECT_FALSE(file->sync());
  EXPECT_FALSE(files.open_blocks("/d/f", OpenMode::kRead));
  EXPECT_FALSE(files.list("/d"));
  EXPECT_FALSE(files.replace("/d/g", "text"));
  const auto next = files.after_crash(Crash::kProcess, 1);
  EXPECT_EQ(next->text("/d/f").substr(0, 4096), std::string(4096, 'b'));
  EXPECT_TRUE(next->lock("/d/lock", "pid 2"));
}

TEST(FaultFileSystem, ReplaceIsOldOrNewButItsNameNeedsASync) {
  FaultFileSystem files;
  files.put("/d/f", std::string(4096, 'a'));
  ASSERT_TRUE(files.replace("/d/f", std::string(4096, 'b')));
  EXPECT_EQ(outcomes(files, Crash::kPower), (std::set<std::string>{"aa", "bb"}));
  ASSERT_TRUE(files.sync_folder("/d"));
  EXPECT_EQ(outcomes(files, Crash::kPower), std::set<std::string>{"bb"});
  std::size_t names_max = 0;
  for (std::int64_t n = 1; n <= 4; ++n) {
    FaultFileSystem dying;
    dying.put("/d/f", std::string(4096, 'a'));
    dying.crash_at(n);
    EXPECT_FALSE(dying.replace("/d/f", std::string(4096, 'b')));
    for (std::uint64_t seed = 1; seed <= 16; ++seed) {
      const auto next = dying.after_crash(Crash::kPower, seed);
      const char kept = next->text("/d/f")[0];
      EXPECT_TRUE(kept == 'a' || (kept == 'b' && n == 4)) << n;
      names_max = std::max(names_max, next->paths("/d").size());
    }
  }
  EXPECT_EQ(names_max, 2);  // the temporary file may be left
}

TEST(FaultFileSystem, RemovedOrNot) {
  FaultFileSystem files;
  write_twice(files, true);
  ASSERT_TRUE(files.remove_file("/d/f"));
  EXPECT_EQ(outcomes(files, Crash::kPower), (std::set<std::string>{"", "bb"}));
  EXPECT_EQ(outcomes(files, Crash::kProcess), std::set<std::string>{""});
  ASSERT_TRUE(files.sync_folder("/d"));
  EXPECT_EQ(outcomes(files, Crash::kPower), std::set<std::string>{""});
}

TEST(FaultFileSystem, AsStrictAsDirectIo) {
  FaultFileSystem files;
  write_twice(files, true);
  const auto file = open(files, "/d/f", OpenMode::kRead);
  Blocks block;
  EXPECT_EQ(file->read_at(0, std::span(block.bytes).first(512)), -EINVAL);
  EXPECT_EQ(file->read_at(512, block.first(1)), -EINVAL);
  EXPECT_EQ(file->read_at(0, std::span(block.bytes).subspan(8, 4096)), -EINVAL);
  EXPECT_EQ(file->read_at(0, block.first(4)), 4096);  // to the end
  EXPECT_EQ(file->read_at(8192, block.first(1)), 0);
  EXPECT_EQ(file->write_at(0, block.first(1)), -EBADF);
}

TEST(FaultFileSystem, ErrorsStrikeWhereToldAndEnd) {
  FaultFileSystem files;
  write_twice(files, true);
  files.put("/d/g", std::string(8192, 'g'));
  files.inject({.ops = Fault::kRead, .name = "/g", .begin = 4096, .times = 2});
  const auto f = open(files, "/d/f", OpenMode::kRead);
  const auto g = open(files, "/d/g", OpenMode::kRead);
  Blocks block;
  EXPECT_EQ(f->read_at(0, block.first(1)), 4096);
  EXPECT_EQ(g->read_at(0, block.first(1)), 4096);
  EXPECT_EQ(g->read_at(0, block.first(2)), -EIO);
  EXPECT_EQ(g->read_at(4096, block.first(1)), -EIO);
  EXPECT_EQ(g->read_at(4096, block.first(1)), 4096);
  EXPECT_EQ(files.counts().faults, 2);
  files.inject({.kind = Fault::Kind::kShort, .ops = Fault::kRead});
  EXPECT_EQ(g->read_at(0, block.first(2)), 4096);
  files.inject({.ops = Fault::kSync, .error = ENOSPC});
  EXPECT_EQ(files.sync_folder("/d").error().code, Code::kOutOfMemory);
  files.heal();
  EXPECT_TRUE(files.sync_folder("/d"));
  files.inject({.ops = Fault::kRead, .probability = 0.5});
  int failures = 0;
  for (int i = 0; i < 200; ++i) failures += g->read_at(0, block.first(1)) < 0 ? 1 : 0;
  EXPECT_GT(failures, 60);
  EXPECT_LT(failures, 140);
}

TEST(FaultFileSystem, AFullDiskTakesWhatFits) {
  FaultFileSystem files;
  write_twice(files, true);
  files.set_capacity(3 * 4096);
  const auto file = open(files, "/d/f", OpenMode::kWrite);
  Blocks block('c');
  EXPECT_EQ(files.space("/d")->free_bytes, 2 * 4096);
  EXPECT_EQ(file->write_at(0, block.first(4)), 3 * 4096);
  EXPECT_EQ(file->write_at(3 * 4096, block.first(1)), -ENOSPC);
  EXPECT_EQ(file->write_at(0, block.first(2)), 2 * 4096);  // over what is there
  EXPECT_EQ(file->reserve(16 * 4096).error().code, Code::kOutOfMemory);
  EXPECT_FALSE(files.replace("/d/g", std::string(4096, 'g')));
  EXPECT_EQ(files.paths("/d").size(), 1);
  ASSERT_TRUE(file->punch(4096, 4096));
  EXPECT_EQ(files.space("/d")->free_bytes, 4096);
  EXPECT_EQ(files.text("/d/f").substr(4095, 2), std::string("c\0", 2));
  ASSERT_TRUE(file->truncate(4096));
  ASSERT_TRUE(file->reserve(3 * 4096));
  EXPECT_EQ(files.space("/d")->free_bytes, 0);
  EXPECT_EQ(file->write_at(2 * 4096, block.first(1)), 4096);
}

TEST(FaultFileSystem, ReadOnlyFromAnEventOn) {
  FaultFileSystem files;
  files.read_only_from(3);
  write_twice(files, false);
  EXPECT_TRUE(files.space("/d")->is_read_only);
  EXPECT_EQ(files.events(), 2);
  EXPECT_EQ(files.text("/d/f")[0], 'a');
  EXPECT_EQ(files.open_blocks("/d/f", OpenMode::kWrite).error().code, Code::kUnavailable);
  Blocks block;
  EXPECT_EQ(open(files, "/d/f", OpenMode::kRead)->read_at(0, block.first(1)), 4096);
}

TEST(FaultFileSystem, AReadHangsUntilHealed) {
  FaultFileSystem files;
  write_twice(files, true);
  files.inject({.kind = Fault::Kind::kHang, .ops = Fault::kRead, .seconds = 30});
  const auto file = open(files, "/d/f", OpenMode::kRead);
  std::int64_t got = 0;
  std::thread reader([&] {
    Blocks block;
    got = file->read_at(0, block.first(1));
  });
  while (files.hanging() == 0) std::this_thread::yield();
  EXPECT_TRUE(files.list("/d"));  // others go on
  files.heal();
  reader.join();
  EXPECT_EQ(got, 4096);
  files.inject({.kind = Fault::Kind::kSlow, .ops = Fault::kRead, .seconds = 0.02});
  const auto before = std::chrono::steady_clock::now();
  Blocks block;
  EXPECT_EQ(file->read_at(0, block.first(1)), 4096);
  EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(20));
}

TEST(FaultFileSystem, DamageFromOutside) {
  FaultFileSystem files;
  write_twice(files, true);
  const auto file = open(files, "/d/f", OpenMode::kRead);
  files.flip_bit("/d/f", 8 * 100 + 1);
  EXPECT_EQ(files.text("/d/f")[100], 'b' ^ 2);
  files.put("/d/g", "gg");
  const auto copy = files.copy_folder("/d", "/e");
  EXPECT_EQ(copy->text("/e/g"), "gg");
  EXPECT_NE((*copy->map("/e/g"))->stamp().inode, (*files.map("/d/g"))->stamp().inode);
  files.swap_files("/d/f", "/d/g");
  EXPECT_EQ(files.text("/d/f"), "gg");
  files.erase("/d/g");
  EXPECT_EQ(files.text("/d/g"), "");
  Blocks block;
  EXPECT_EQ(file->read_at(0, block.first(1)), 4096);  // an open file lives on
  EXPECT_EQ(block.bytes[0], std::byte{'b'});
  EXPECT_FALSE(files.remove_file("/d/g"));
}

TEST(FaultFileSystem, OneHoldsTheLock) {
  FaultFileSystem files;
  auto first = files.lock("/d/lock", "pid 41");
  ASSERT_TRUE(first);
  const auto second = files.lock("/d/lock", "pid 42");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_NE(second.error().message.find("pid 41"), std::string::npos);
  first->reset();
  EXPECT_TRUE(files.lock("/d/lock", "pid 42"));
}

TEST(SimClock, TheWallJumpsAndTimeGoesOn) {
  SimClock clock;
  const std::int64_t wall = clock.unix_ms();
  const std::int64_t monotonic = clock.monotonic_ns();
  clock.advance(1);
  clock.jump_wall(-3600);
  EXPECT_EQ(clock.unix_ms(), wall + 1000 - 3'600'000);
  EXPECT_EQ(clock.monotonic_ns(), monotonic + 1'000'000'000);
}

}  // namespace
}  // namespace artery::testing
