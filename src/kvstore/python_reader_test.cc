// tools/read_kv_segment.py, which shares nothing with this code but docs/formats/kv_segment.md,
// reads a folder as the encoders and the store write it.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "kvstore/folder_format.h"
#include "kvstore/record_format.h"
#include "kvstore/spaces.h"
#include "kvstore/store.h"
#include "kvstore/survey.h"
#include "testing/sim_clock.h"
#include "testing/store_run.h"

namespace artery::kvstore {
namespace {

using Bytes = std::vector<std::byte>;

struct Answer {
  int code = -1;
  std::string text;
  std::vector<std::string> lines() const {
    std::vector<std::string> out;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }
};

std::int64_t now_s() { return static_cast<std::int64_t>(std::time(nullptr)); }

class PythonReader : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "no python3";
    std::string folder = ARTERY_BUILD_DIR "/artery-reader-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = top_ = folder;
  }
  void TearDown() override {
    if (!top_.empty()) std::filesystem::remove_all(top_);
  }

  void save(const std::string& name, const Bytes& bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }
  Answer read(const std::string& options) const {
    const std::string command =
        "python3 " ARTERY_SOURCE_DIR "/tools/read_kv_segment.py " + folder_ + " " + options;
    FILE* pipe = ::popen(command.c_str(), "r");
    Answer answer;
    char buffer[4096];
    while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
      answer.text.append(buffer, got);
    }
    const int status = ::pclose(pipe);
    answer.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return answer;
  }

  // A chain of records of two pages, `age_s` old, one after the other from kBlock on.
  std::vector<IndexEntry> chain(SegmentId segment, int count, std::int64_t age_s, Bytes& file) {
    std::vector<IndexEntry> entries;
    ChainKey at = chain_root("secret", spec_.identity + std::to_string(segment));
    file.resize(kBlock);
    encode_segment_header({segment, TtlClass::kHour, 3, now_s(), 1 << 20}, file);
    for (int i = 0; i < count; ++i) {
      RecordHeader h;
      h.space = space_digest(spec_.identity, spec_.tenant);
      h.parent = at;
      std::vector<TokenId> ids(2 * kPageTokens);
      for (std::size_t k = 0; k < ids.size(); ++k) ids[k] = i * 100 + 7 * static_cast<TokenId>(k);
      for (const ChainKey& key : chain_keys(at, ids)) h.key = key;
      at = h.key;
      h.sequence = ++sequence_;
      h.epoch = 3;
      h.written_s = now_s() - age_s;
      h.pages = 2;
      h.ids = static_cast<int>(ids.size());
      h.payload_bytes = 5001 + i;
      Bytes record(static_cast<std::size_t>(record_bytes(h.ids, h.payload_bytes)));
      put_ids(ids, record);
      const auto begin = static_cast<std::size_t>(payload_offset(h.ids));
      for (std::size_t k = 0; k < static_cast<std::size_t>(h.payload_bytes); ++k) {
        record[begin + k] = static_cast<std::byte>(k * 31 + static_cast<std::size_t>(i));
      }
      encode_record(h, record);
      IndexEntry entry;
      entry.place = {segment, std::ssize(file), std::ssize(record)};
      entry.pages = h.pages;
      entry.space = space_tag(h.space);
      entry.key = h.key;
      entry.parent = h.parent;
      entry.written_s = entry.last_use_s = h.written_s;
      entry.sequence = h.sequence;
      entries.push_back(entry);
      file.insert(file.end(), record.begin(), record.end());
    }
    return entries;
  }
  void seal(const std::vector<IndexEntry>& entries, Bytes& file) const {
    Bytes footer(static_cast<std::size_t>(footer_bytes(std::ssize(entries))));
    const SegmentId segment = entries.front().place.segment;
    encode_footer({segment, TtlClass::kHour, 3, now_s(), std::ssize(file), 0}, entries, footer);
    file.insert(file.end(), footer.begin(), footer.end());
  }
  void save_journal(const std::vector<std::vector<IndexEntry>>& batches) const {
    Bytes journal(kBlock);
    encode_journal_header({5, 3, now_s()}, journal);
    std::uint64_t sequence = 0;
    for (const auto& entries : batches) {
      Bytes batch(static_cast<std::size_t>(batch_bytes(std::ssize(entries))));
      encode_batch({5, ++sequence, now_s(), entries, 0}, batch);
      journal.insert(journal.end(), batch.begin(), batch.end());
    }
    journal.resize(journal.size() + 4 * kBlock);
    save(journal_name(5), journal);
    Bytes super(2 * kBlock);
    SuperBlock block{.generation = 8, .epoch = 2, .journal = 4};
    encode_super(block, std::span(super).first(kBlock));
    block = {.generation = 9, .epoch = 3, .journal = 5};
    encode_super(block, std::span(super).last(kBlock));
    save("super", super);
    std::ofstream(folder_ + "/spaces.json") << space_line(spec_) << "\nrubbish\n";
  }

  std::string top_, folder_;
  SpaceSpec spec_{"weights=abc", "acme", "a model", 2500, 16};
  std::uint64_t sequence_ = 0;
};

IndexEntry change(EntryKind kind, const IndexEntry& of) {
  IndexEntry entry = of;
  entry.kind = kind;
  return entry;
}

int count(const Answer& answer, std::string_view text) {
  return static_cast<int>(std::ranges::count_if(answer.lines(), [&](const std::string& line) {
    return line.find(text) != std::string::npos;
  }));
}

TEST_F(PythonReader, ListsSealedAndOpenSegmentsAndTheJournal) {
  Bytes one;
  const auto sealed = chain(1, 4, 100, one);
  seal(sealed, one);
  save(segment_name(1), one);
  Bytes two;
  auto open = chain(2, 3, 7000, two);  // longer ago than their class's hour
  two.resize(two.size() + 3 * kBlock);
  save(segment_name(2), two);
  Bytes three;
  const auto dropped = chain(3, 2, 100, three);
  save(segment_name(3), three);

  IndexEntry used = change(EntryKind::kTouch, open[1]);
  used.last_use_s = now_s();
  IndexEntry promised = change(EntryKind::kGuarantee, open[2]);
  promised.guaranteed_until_s = now_s() + 500;
  promised.key = open[2].key;
  open.pop_back();  // the last one came after the last batch
  save_journal({
      open,
      dropped,
      {change(EntryKind::kErase, sealed[2]), change(EntryKind::kDropSegment, dropped[0])},
      {used, promised},
  });

  const Answer answer = read("");
  EXPECT_EQ(answer.code, 0) << answer.text;
  ASSERT_EQ(answer.lines().size(), 8u) << answer.text;
  EXPECT_EQ(count(answer, "\"state\": \"live\""), 5);
  EXPECT_EQ(count(answer, "\"state\": \"expired\""), 1);
  EXPECT_EQ(count(answer, "\"state\": \"erased\""), 1);
  EXPECT_EQ(count(answer, "\"key_follows\": true"), 7);
  EXPECT_EQ(count(answer, "\"tenant\": \"acme\", \"model\": \"a model\""), 7);
  for (const IndexEntry& entry : sealed)
    EXPECT_EQ(count(answer, "\"key\": \"" + hex(entry.key)), 1);
  const std::string last = answer.lines().back();
  EXPECT_NE(last.find("\"epoch\": 3, \"journal\": 5"), std::string::npos) << last;
  EXPECT_NE(last.find("\"journal_batches\": 4"), std::string::npos) << last;
  EXPECT_NE(last.find("\"trouble\": []"), std::string::npos) << last;
}

// Given up and written again into the same segment: the erase of the first one comes last.
TEST_F(PythonReader, AnEraseIsOfWhatLayThere) {
  Bytes one;
  std::vector<IndexEntry> entries = chain(1, 3, 100, one);
  IndexEntry again = entries[1];
  again.place.offset = std::ssize(one);
  again.sequence = ++sequence_;
  const Bytes copy(one.begin() + entries[1].place.offset, one.begin() + entries[2].place.offset);
  one.insert(one.end(), copy.begin(), copy.end());
  one.resize(one.size() + 3 * kBlock);
  save(segment_name(1), one);
  const IndexEntry first = change(EntryKind::kErase, entries[1]);
  const IndexEntry gone = change(EntryKind::kErase, entries[2]);
  IndexEntry anywhere = change(EntryKind::kErase, entries[0]);
  anywhere.place.offset = 0;
  entries[1] = again;
  for (const bool is_in_journal : {true, false}) {
    if (!is_in_journal) entries.erase(entries.begin() + 1);
    save_journal({entries, {first, gone, anywhere}});
    const Answer answer = read("");
    EXPECT_EQ(count(answer, "\"state\": \"live\""), 1) << answer.text;
    const std::string offset = fmt::format("\"offset\": {}, ", again.place.offset);
    EXPECT_EQ(count(answer, offset), 1) << answer.text;
    const auto survey = survey_store(folder_, system_file_system(), now_s());
    ASSERT_TRUE(survey);
    EXPECT_EQ(survey->disk_records, 1) << "the store's own eyes";
  }
}

TEST_F(PythonReader, SeesDamage) {
  Bytes one;
  const auto entries = chain(1, 4, 100, one);
  seal(entries, one);
  one[static_cast<std::size_t>(entries[0].place.offset) + 4000] ^= std::byte{1};  // payload
  one[static_cast<std::size_t>(entries[1].place.offset) + 70] ^= std::byte{1};    // header
  one[static_cast<std::size_t>(entries[2].place.offset) + 530] ^= std::byte{1};   // an id
  save(segment_name(1), one);
  save_journal({});
  const Answer answer = read("");
  EXPECT_EQ(answer.code, 1);
  EXPECT_EQ(count(answer, "\"state\": \"live\""), 1) << answer.text;
  EXPECT_EQ(count(answer, "\"state\": \"damaged\""), 3) << answer.text;
  EXPECT_EQ(count(answer, "quarter 2 of the payload"), 1) << answer.text;
  EXPECT_EQ(count(read("--fast"), "\"state\": \"damaged\""), 2);

  const Answer payload = read("--extract " + hex(entries[3].key));
  EXPECT_EQ(payload.code, 0);
  const auto begin = static_cast<std::size_t>(entries[3].place.offset + payload_offset(32));
  const std::string expected(reinterpret_cast<const char*>(&one[begin]), 5004);
  EXPECT_EQ(payload.text, expected);
  EXPECT_EQ(read("--extract " + hex(entries[0].key) + " 2>/dev/null").code, 1);
}

TEST_F(PythonReader, ReadsASegmentWithoutItsFooter) {
  Bytes one;
  const auto entries = chain(1, 4, 100, one);
  seal(entries, one);
  one[one.size() - 4000] ^= std::byte{1};
  save(segment_name(1), one);
  save_journal({});
  const Answer answer = read("");
  EXPECT_EQ(answer.code, 1);
  EXPECT_EQ(count(answer, "\"state\": \"live\""), 4) << answer.text;
  EXPECT_NE(answer.text.find("footer: wrong CRC-32C"), std::string::npos);
}

// Key and parent of the lines with `state`.
std::map<std::string, std::string> keys(const Answer& answer, const std::string& state) {
  std::map<std::string, std::string> out;
  for (const std::string& line : answer.lines()) {
    const std::size_t key = line.find("\"key\": \"");
    const std::size_t parent = line.find("\"parent\": \"");
    if (key == line.npos || line.find("\"state\": \"" + state) == line.npos) continue;
    out[line.substr(key + 8, 64)] = line.substr(parent + 11, 64);
  }
  return out;
}

TEST_F(PythonReader, AgreesWithTheStore) {
  testing::SimClock clock;
  StoreConfig config;
  config.folder = folder_ + "/store";
  config.bytes_max = 2 << 20;
  config.record_bytes_max = testing::StoreRun::record_payload_max();
  config.segment_bytes = 128 << 10;
  config.buffer_bytes = 1 << 20;
  testing::StoreRun run(7, clock);
  folder_ += "/store";
  for (int life = 0; life < 3; ++life) {
    auto store = DiskStore::open(config, system_file_system(), clock);
    ASSERT_TRUE(store) << store.error().message;
    run.bind(**store, (*store)->secret());
    run.steps(**store, 100);
    ASSERT_TRUE((*store)->flush());
    if (life == 2) store->reset();  // also one that is closed
    const Answer answer = read("--now " + std::to_string(clock.unix_ms() / 1000));
    EXPECT_EQ(answer.code, 0) << answer.text;
    if (life == 2) store = DiskStore::open(config, system_file_system(), clock);
    const auto live = keys(answer, "live");
    std::set<std::string> expected;
    std::set<std::string> firsts;
    const auto& prefixes = run.prefixes();
    for (const auto& prefix : prefixes) {
      const SpaceId space = (*store)->open_space(testing::StoreRun::spec(prefix.space));
      for (const auto& record : prefix.records) {
        const ChainKey key = run.key_of(prefix, record);
        if ((*store)->contains(space, key)) expected.insert(hex(key));
        if (record.kind == RecordKind::kGlobal && record.extent.first_page == 0) {
          firsts.insert(hex(key));
        }
      }
    }
    EXPECT_GT(expected.size(), 20u);
    for (const std::string& key : expected) EXPECT_TRUE(live.contains(key)) << key;
    // What is whole and yet not there for the store hangs on a record that was given up.
    for (const auto& [key, parent] : live) {
      if (expected.contains(key)) continue;
      EXPECT_FALSE(firsts.contains(key) || expected.contains(parent)) << key;
    }
    EXPECT_TRUE(keys(answer, "damaged").empty());
    if (life > 0) continue;
    for (const auto& prefix : prefixes) {
      for (const auto& record : prefix.records) {
        const ChainKey key = run.key_of(prefix, record);
        if (!expected.contains(hex(key))) continue;
        const Answer payload = read("--extract " + hex(key));
        EXPECT_TRUE(testing::is_payload_of(key, std::as_bytes(std::span(payload.text))));
        EXPECT_FALSE(payload.text.empty());
        break;
      }
      if (&prefix - prefixes.data() == 2) break;
    }
  }
}

TEST_F(PythonReader, FindsTheJournalWithoutASuperBlock) {
  Bytes one;
  const auto entries = chain(1, 3, 100, one);
  seal(entries, one);
  save(segment_name(1), one);
  save_journal({{change(EntryKind::kErase, entries[1])}});
  save("super", Bytes(2 * kBlock));
  save(journal_name(9), Bytes(kBlock));  // begun, and the machine stopped
  const Answer answer = read("");
  EXPECT_EQ(answer.code, 1);
  EXPECT_EQ(count(answer, "\"state\": \"erased\""), 1) << answer.text;
  EXPECT_EQ(count(answer, "\"state\": \"live\""), 2) << answer.text;
}

TEST_F(PythonReader, VerifiesWhatItCannotRead) {
  testing::SimClock clock;
  StoreConfig config;
  config.folder = folder_ + "/store";
  config.bytes_max = 8 << 20;
  config.record_bytes_max = testing::StoreRun::record_payload_max();
  config.buffer_bytes = 1 << 20;
  config.encrypt = true;
  config.encryption_key_file = folder_ + "/key";
  std::ofstream(config.encryption_key_file) << std::string(32, 'k');
  testing::StoreRun run(7, clock);
  auto store = DiskStore::open(config, system_file_system(), clock);
  ASSERT_TRUE(store) << store.error().message;
  run.bind(**store, (*store)->secret());
  run.steps(**store, 30);
  store->reset();
  folder_ += "/store";
  const Answer answer = read("--now " + std::to_string(clock.unix_ms() / 1000));
  EXPECT_EQ(answer.code, 0) << answer.text;
  const auto live = keys(answer, "live");
  EXPECT_GT(live.size(), 10u);
  EXPECT_EQ(count(answer, "\"encrypted\": true"), static_cast<int>(live.size()));
  EXPECT_EQ(read("--extract " + live.begin()->first + " 2>/dev/null").code, 1);
}

TEST_F(PythonReader, RefusesWhatIsNoStore) {
  EXPECT_EQ(read("2>/dev/null").code, 2);
  save("super", Bytes(2 * kBlock));
  EXPECT_EQ(read("2>/dev/null").code, 2);
}

}  // namespace
}  // namespace artery::kvstore
