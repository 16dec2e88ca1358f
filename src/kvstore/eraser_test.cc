#include "kvstore/eraser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "testing/fault_file_system.h"

namespace artery::kvstore {
namespace {

constexpr const char* kPath = "store/seg-00000001.akv";
constexpr std::int64_t kPayload = 9000;  // three blocks with the header

class EraserTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(files_.make_folder("store"));
    file_.assign(static_cast<std::size_t>(kBlock), 'h');
  }
  std::int64_t add(const std::string& tenant, std::uint64_t sequence, bool encrypted = false) {
    RecordHeader header;
    header.space = space_digest("weights", tenant);
    header.key[0] = static_cast<std::uint8_t>(sequence);
    header.sequence = sequence;
    header.encrypted = encrypted;
    header.pages = 1;
    header.ids = 16;
    header.payload_bytes = kPayload;
    std::vector<std::byte> record(
        static_cast<std::size_t>(record_bytes(16, kPayload)), static_cast<std::byte>('A' + sequence)
    );
    encode_record(header, record);
    const auto at = static_cast<std::int64_t>(file_.size());
    file_.append(reinterpret_cast<const char*>(record.data()), record.size());
    return at;
  }
  void gap(std::int64_t blocks, char fill) {
    file_.append(static_cast<std::size_t>(blocks * kBlock), fill);
  }
  Result<std::vector<Trace>> erase(std::uint64_t before = 100) {
    files_.put(kPath, file_);
    return erase_traces(
        files_,
        kPath,
        1,
        {.spaces = {space_digest("weights", "ann")}, .before = before, .indexed = {}}
    );
  }
  bool is_zero(std::int64_t at) const {
    const std::string text = files_.text(kPath);
    const auto from = text.begin() + at, to = from + record_bytes(16, kPayload);
    return std::all_of(from, to, [](char c) { return c == 0; });
  }
  bool is_as_it_was(std::int64_t at) const {
    const auto bytes = static_cast<std::size_t>(record_bytes(16, kPayload));
    const auto from = static_cast<std::size_t>(at);
    return files_.text(kPath).substr(from, bytes) == file_.substr(from, bytes);
  }

  testing::FaultFileSystem files_;
  std::string file_;
};

TEST_F(EraserTest, OverwritesTheTenantsRecordsAndNoOthers) {
  const std::int64_t first = add("ann", 1), other = add("ben", 2), second = add("ann", 3);
  gap(300, 'x');  // what is no record; longer than a read
  const std::int64_t third = add("ann", 4);
  gap(5, '\0');
  const std::int64_t later = add("ann", 200), sealed = add("ann", 5, true), last = add("ann", 6);
  const auto traces = erase();
  ASSERT_TRUE(traces) << traces.error().message;
  ASSERT_EQ(traces->size(), 5u);
  for (const std::int64_t at : {first, second, third, sealed, last}) EXPECT_TRUE(is_zero(at)) << at;
  for (const std::int64_t at : {other, later}) EXPECT_TRUE(is_as_it_was(at)) << at;
  for (const Trace& trace : *traces) EXPECT_EQ(trace.place.bytes, record_bytes(16, kPayload));
  EXPECT_EQ(files_.text(kPath).size(), file_.size());
  // A power cut now brings nothing back.
  const auto after = files_.after_crash(testing::Crash::kPower, 1);
  EXPECT_EQ(after->text(kPath), files_.text(kPath));
}

TEST_F(EraserTest, ARecordThatTheFilesEndCutsIsErasedToItsEnd) {
  const std::int64_t at = add("ann", 1);
  file_.resize(file_.size() - static_cast<std::size_t>(kBlock));
  ASSERT_EQ(erase().take().size(), 1u);
  const std::string text = files_.text(kPath);
  EXPECT_EQ(text.size(), file_.size());
  EXPECT_TRUE(std::all_of(text.begin() + at, text.end(), [](char c) { return c == 0; }));
}

TEST_F(EraserTest, FailuresAreTold) {
  add("ann", 1);
  files_.inject({.ops = testing::Fault::kWrite, .times = 1});
  EXPECT_FALSE(erase());
  EXPECT_TRUE(erase());
  files_.inject({.ops = testing::Fault::kSync, .times = 1});
  EXPECT_FALSE(erase());
  files_.inject({.ops = testing::Fault::kRead, .times = 1});
  EXPECT_FALSE(erase());
  EXPECT_EQ(erase_traces(files_, "store/seg-00000002.akv", 2, {}).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace artery::kvstore
