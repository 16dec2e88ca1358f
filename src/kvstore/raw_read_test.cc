#include "kvstore/raw_read.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace artery::kvstore {
namespace {

class RawReads : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ARTERY_BUILD_DIR "/artery-raw-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    std::ofstream(path()) << std::string(300'000, 'x');
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/f"; }

  std::string folder_;
};

TEST_F(RawReads, CountsWhatItRead) {
  FileSystem& files = system_file_system();
  for (const int depth : {1, 3, 32}) {
    const auto whole = raw_read(files, path(), {.request_bytes = 8192, .depth = depth});
    ASSERT_TRUE(whole) << whole.error().message;
    EXPECT_EQ(whole->bytes, 300'000);
    EXPECT_GT(whole->seconds, 0);
    EXPECT_FALSE(whole->io.empty());
  }
  const auto part = raw_read(files, path(), {.offset = 8192, .bytes = 40'960});
  EXPECT_EQ(part->bytes, 40'960);
  EXPECT_EQ(raw_read(files, path(), {.offset = 1 << 20})->bytes, 0);
}

TEST_F(RawReads, RefusesWhatMakesNoSense) {
  FileSystem& files = system_file_system();
  EXPECT_EQ(raw_read(files, path(), {.offset = 5}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(raw_read(files, path(), {.request_bytes = 0}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(raw_read(files, path(), {.depth = 0}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(raw_read(files, folder_ + "/none", {}).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace artery::kvstore
