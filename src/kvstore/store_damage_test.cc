// A store whose files were damaged from outside, before it is opened and while it is open: every
// answer is the right bytes or a miss, what is not damaged is found, and the store goes on.

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <set>

#include "kvstore/folder_format.h"
#include "kvstore/record_format.h"
#include "kvstore/store_fault_rig_testing.h"
#include "kvstore/wire.h"

namespace artery::kvstore::faults {
namespace {

// Bytes that one structure takes, as found by its magic.
struct Structure {
  std::string what;  // "ArterySB", ..., "ids", "payload", or a file's name
  std::string path;
  std::int64_t begin = 0, bytes = 0;
};

bool is_name(const std::string& path, std::string_view part) {
  return path.substr(path.rfind('/') + 1).starts_with(part);
}

void add_block(
    const std::string& path, const std::string& text, std::int64_t at, std::vector<Structure>& out
) {
  const auto block = std::as_bytes(std::span(text)).subspan(static_cast<std::size_t>(at));
  const std::string magic = text.substr(static_cast<std::size_t>(at), 8);
  if (!magic.starts_with("Artery")) return;
  if (magic == "ArteryRC") {
    const auto header = decode_record_header(block, path);
    if (!header) return;
    const std::int64_t payload = payload_offset(header->ids);
    out.push_back({magic, path, at, 128});
    out.push_back({"record header's rest", path, at + 128, kRecordHeaderBytes - 128});
    out.push_back({"ids", path, at + kRecordHeaderBytes, 4 * std::int64_t{header->ids}});
    for (int quarter = 0; quarter < kQuarters; ++quarter) {
      const auto range = quarter_range(header->payload_bytes, quarter);
      out.push_back({"payload", path, at + payload + range.begin, range.end - range.begin});
    }
    return;
  }
  out.push_back({magic, path, at, magic == "ArteryJB" ? 64 : 80});
  out.push_back({magic + "'s zeros", path, at + 80, kBlock - 80});
  if (magic == "ArteryJB") out.push_back({"journal entry", path, at + 64, kEntryBytes});
  if (magic != "ArteryFT") return;
  const auto trailer = decode_trailer(block.first(kBlock), at + kBlock, path);
  if (trailer) out.push_back({"footer entry", path, trailer->records_end, kEntryBytes});
}

std::vector<Structure> structures(const FaultFileSystem& files) {
  std::vector<Structure> out;
  for (const std::string& path : files.paths(kFolder)) {
    const std::string text = files.text(path);
    for (std::int64_t at = 0; at + kBlock <= std::ssize(text); at += kBlock)
      add_block(path, text, at, out);
    if (is_name(path, "spaces.json")) out.push_back({"spaces.json", path, 0, 200});
    if (is_name(path, "secret")) out.push_back({"secret", path, 0, std::ssize(text)});
  }
  return out;
}

class StoreDamage : public ::testing::Test {
 protected:
  void SetUp() override {
    // Open segments and sealed ones, a journal, records of all spaces.
    rig_.config.segment_bytes = 96 << 10;
    rig_.fill(60);
    base_ = std::move(rig_.files);
  }
  void start_over() {
    rig_.store.reset();
    rig_.files = base_->after_crash(Crash::kProcess, 1);  // nothing is in flight: a copy
  }
  std::int64_t open_and_look(const std::string& what) {
    const StopWatch watch;
    const bool is_open = rig_.open();
    // Nothing can be found without the secret that named it: refused, not made anew.
    if (!is_open && !has_secret()) {
      EXPECT_EQ(rig_.open_error.code, Code::kBadFile) << what;
      EXPECT_NE(rig_.open_error.message.find("/secret: "), std::string::npos)
          << rig_.open_error.message;
      return 0;
    }
    EXPECT_TRUE(is_open) << what << ": " << rig_.open_error.message;
    if (!is_open) return 0;
    EXPECT_LT(watch.seconds(), kHangsS) << what;
    return rig_.look(what);
  }
  bool has_secret() const {
    return rig_.files->text(rig_.config.folder + "/secret") == base_->text(kFolder + "/secret");
  }
  std::vector<std::string> paths(std::string_view part) const {
    std::vector<std::string> out;
    for (const std::string& path : base_->paths(kFolder)) {
      if (is_name(path, part)) out.push_back(path);
    }
    return out;
  }
  std::string text(const std::string& path) const { return base_->text(path); }

  Rig rig_{5};
  std::unique_ptr<FaultFileSystem> base_;
};

// What one flipped bit may cost, of all expected records.
double share_at_risk(const std::string& what) {
  if (what == "secret") return 1;       // refused
  if (what == "spaces.json") return 1;  // one space
  const bool is_index = what == "ArterySB" || what == "ArteryJN" || what == "ArteryJB" ||
                        what == "journal entry" || what == "footer entry" || what == "ArteryFT" ||
                        what.ends_with("zeros");
  if (is_index) return 0;  // the segments themselves tell it again
  return 0.34;             // one record and what hangs on it, or one segment
}

TEST_F(StoreDamage, OneBitOfEveryField) {
  std::map<std::string, int> flips;
  testing::SeqRandom random(3);
  LogLines lines;
  std::map<std::string, int> pieces;
  for (const Structure& piece : structures(*base_)) {
    if (++pieces[piece.what] > 2) continue;
    const bool is_fields = piece.bytes <= 256;
    const std::int64_t stride = is_fields ? 3 : std::max<std::int64_t>(1, piece.bytes / 8);
    for (std::int64_t at = random.between(0, stride - 1); at < piece.bytes; at += stride) {
      start_over();
      rig_.files->flip_bit(piece.path, (piece.begin + at) * 8 + random.between(0, 7));
      const std::string what = fmt::format("{} {} +{}", piece.what, piece.path, at);
      const std::int64_t came = open_and_look(what);
      const double least = 1 - share_at_risk(piece.what);
      EXPECT_GE(static_cast<double>(came), least * static_cast<double>(rig_.expected))
          << what << ": " << rig_.tally.text();
      ++flips[piece.what];
    }
  }
  EXPECT_LT(lines.count(), 20'000);
  for (const auto& [what, count] : flips) fmt::print("{} bits of {}\n", count, what);
  for (const char* what :
       {"ArterySB",
        "ArterySG",
        "ArteryRC",
        "ids",
        "payload",
        "ArteryFT",
        "footer entry",
        "ArteryJN",
        "spaces.json",
        "secret"})
    EXPECT_GT(flips[what], 0) << what;
}

// Under an open store: the record is a checksum miss once, and then simply not there.
TEST_F(StoreDamage, ABitFlippedUnderAnOpenStore) {
  start_over();
  ASSERT_TRUE(rig_.open());
  const std::int64_t before = rig_.look("before");
  std::set<std::string> damaged;
  for (const Structure& piece : structures(*base_)) {
    if (piece.what != "payload" || damaged.size() == 4 || !damaged.insert(piece.path).second)
      continue;
    rig_.files->flip_bit(piece.path, (piece.begin + piece.bytes / 2) * 8 + 3);
  }
  ASSERT_GT(damaged.size(), 1u);
  LogLines lines;
  EXPECT_LT(rig_.look("flipped"), before);
  const StoreStatus status = rig_.store->status();
  // Tails that a longer record has overgrown are not read.
  EXPECT_GE(status.checksum_failures, 2);
  EXPECT_LE(status.checksum_failures, static_cast<std::int64_t>(damaged.size()));
  EXPECT_GT(rig_.tally.missed(MissReason::kChecksum), 0) << rig_.tally.text();
  // Not tried for ever.
  rig_.look("again");
  EXPECT_EQ(rig_.store->status().checksum_failures, status.checksum_failures);
  EXPECT_LE(lines.count(), 20);
  // Computed anew, it is offered and found again.
  rig_.run.steps(*rig_.store, 10);
  rig_.expect_working("after a flipped bit");
}

TEST_F(StoreDamage, TornAndZeroedPages) {
  testing::SeqRandom random(4);
  LogLines lines;
  for (const std::string& path : base_->paths(kFolder)) {
    const std::int64_t pages = (std::ssize(text(path)) + kBlock - 1) / kBlock;
    for (int i = 0; i < 4; ++i) {
      start_over();
      const std::int64_t page = random.between(0, std::max<std::int64_t>(pages - 1, 0));
      const bool half = i % 2 == 1;
      const std::int64_t bytes = std::min<std::int64_t>(
          half ? kBlock / 2 : kBlock, std::ssize(text(path)) - page * kBlock
      );
      if (bytes <= 0) continue;
      rig_.files->overwrite(
          path, page * kBlock, std::string(static_cast<std::size_t>(bytes), '\0')
      );
      const std::string what = fmt::format("zeros in page {} of {}", page, path);
      const std::int64_t came = open_and_look(what);
      if (is_name(path, "seg-")) {
        EXPECT_GE(came * 3, rig_.expected * 2) << what << ": " << rig_.tally.text();
      }
    }
  }
}

TEST_F(StoreDamage, CutAt20Offsets) {
  testing::SeqRandom random(5);
  LogLines lines;
  for (const std::string& path : base_->paths(kFolder)) {
    for (int i = 0; i < 20; ++i) {
      const std::int64_t bytes = std::ssize(text(path)) * i / 20;
      start_over();
      rig_.files->cut_file(path, bytes);
      open_and_look(fmt::format("{} cut at {}", path, bytes));
      if (i == 7 && rig_.store != nullptr) rig_.expect_working("cut " + path);
    }
  }
}

TEST_F(StoreDamage, GarbageAppended) {
  testing::SeqRandom random(6);
  LogLines lines;
  for (const std::string& path : base_->paths(kFolder)) {
    for (const std::int64_t bytes : {1, 512, 4096, 10'000}) {
      start_over();
      std::string garbage;
      while (std::ssize(garbage) < bytes) garbage += static_cast<char>(random.next());
      rig_.files->overwrite(path, std::ssize(text(path)), garbage);
      const std::string what = fmt::format("{} bytes after {}", bytes, path);
      const std::int64_t came = open_and_look(what);
      if (!is_name(path, "secret")) {
        EXPECT_GE(came * 100, rig_.expected * 99) << what << ": " << rig_.tally.text();
      }
    }
  }
}

TEST_F(StoreDamage, FilesSwapped) {
  const std::vector<std::string> all = base_->paths(kFolder);
  LogLines lines;
  for (std::size_t a = 0; a < all.size(); ++a) {
    const std::size_t b = (a + 1 + a % 3) % all.size();
    if (a == b) continue;
    start_over();
    rig_.files->swap_files(all[a], all[b]);
    open_and_look(fmt::format("{} and {} swapped", all[a], all[b]));
    if (rig_.store != nullptr) rig_.expect_working("swapped");
  }
}

TEST_F(StoreDamage, FilesMissing) {
  LogLines lines;
  for (const std::string& path : base_->paths(kFolder)) {
    start_over();
    rig_.files->erase(path);
    const std::int64_t came = open_and_look("without " + path);
    if (is_name(path, "super") || is_name(path, "lock") || is_name(path, "journal")) {
      EXPECT_GE(came * 100, rig_.expected * 99) << path << ": " << rig_.tally.text();
    }
    if (rig_.store != nullptr) rig_.expect_working("without " + path);
  }
}

TEST_F(StoreDamage, ASegmentDeletedUnderAnOpenStore) {
  start_over();
  ASSERT_TRUE(rig_.open());
  LogLines lines;
  // Never read, so that no handle keeps it alive.
  for (const std::string& path : paths("seg-")) {
    rig_.files->erase(path);
    break;
  }
  rig_.look("deleted");
  const StoreStatus status = rig_.store->status();
  EXPECT_GE(status.segments_lost, 1);
  rig_.look("deleted, again");
  EXPECT_EQ(rig_.store->status().segments_lost, status.segments_lost);
  EXPECT_LE(lines.count(), 20);
  rig_.expect_working("deleted");
}

// Everything is cut to zero under an open store, as by a careless script.
TEST_F(StoreDamage, AllSegmentsEmptiedUnderAnOpenStore) {
  start_over();
  ASSERT_TRUE(rig_.open());
  for (const std::string& path : paths("seg-")) rig_.files->cut_file(path, 0);
  LogLines lines;
  EXPECT_EQ(rig_.look("emptied"), 0);
  EXPECT_LE(lines.count(), 40);
}

// The same with a right checksum: a later build wrote it.
void make_later_version(FaultFileSystem& files, const Structure& piece, std::int64_t covered) {
  std::string text =
      files.text(piece.path)
          .substr(static_cast<std::size_t>(piece.begin), static_cast<std::size_t>(covered));
  const auto bytes = std::as_writable_bytes(std::span(text));
  wire::put(bytes, 8, kFormatVersion + 1);
  wire::put(bytes, wire::kCrcAt, wire::crc_of(bytes));
  files.overwrite(piece.path, piece.begin, text);
}

TEST_F(StoreDamage, RecordsAndSegmentsOfAnotherVersion) {
  LogLines lines;
  for (const char* what : {"ArteryRC", "ArterySG", "ArteryFT", "ArteryJN", "ArteryJB"}) {
    start_over();
    int changed = 0;
    for (const Structure& piece : structures(*base_)) {
      if (piece.what != what) continue;
      std::int64_t covered = kBlock;
      if (piece.what == "ArteryRC") {
        const std::string block =
            text(piece.path).substr(static_cast<std::size_t>(piece.begin), kBlock);
        const auto header = decode_record_header(std::as_bytes(std::span(block)), "test");
        covered = payload_offset(header->ids);
      }
      if (piece.what == "ArteryJB") {
        const std::string block =
            text(piece.path).substr(static_cast<std::size_t>(piece.begin), 64);
        covered = 64 + kEntryBytes * wire::get<std::uint32_t>(std::as_bytes(std::span(block)), 40);
      }
      make_later_version(*rig_.files, piece, covered);
      ++changed;
    }
    if (what == std::string("ArteryJN") && !rig_.open()) {  // as a whole store of that version
      EXPECT_NE(rig_.open_error.message.find("version"), std::string::npos)
          << rig_.open_error.message;
      continue;
    }
    rig_.store.reset();
    const std::int64_t came = open_and_look(std::string("later ") + what);
    if (what == std::string("ArteryRC")) {
      EXPECT_GT(changed, 0);
      EXPECT_EQ(came, 0);
      EXPECT_GT(rig_.tally.missed(MissReason::kVersion), 0) << rig_.tally.text();
      EXPECT_GT(rig_.store->status().version_mismatches, 0);
    }
    if (rig_.store != nullptr) rig_.expect_working(std::string("later ") + what);
  }
}

TEST_F(StoreDamage, AStoreOfALaterVersionIsLeftAlone) {
  start_over();
  for (const Structure& piece : structures(*base_)) {
    if (piece.what == "ArterySB") make_later_version(*rig_.files, piece, kBlock);
  }
  const std::int64_t events = rig_.files->events();
  EXPECT_FALSE(rig_.open());
  EXPECT_EQ(rig_.open_error.code, Code::kBadFile) << rig_.open_error.message;
  EXPECT_NE(rig_.open_error.message.find("version"), std::string::npos) << rig_.open_error.message;
  EXPECT_EQ(rig_.files->events(), events);
}

TEST_F(StoreDamage, CopiedToAnotherMachine) {
  rig_.files = base_->copy_folder(kFolder, kFolder);
  EXPECT_EQ(open_and_look("copied"), rig_.expected) << rig_.tally.text();
  rig_.expect_working("copied");
  rig_.store.reset();
  rig_.files = base_->copy_folder(kFolder, "/mnt/other");
  rig_.config.folder = "/mnt/other";
  EXPECT_EQ(open_and_look("another folder"), rig_.expected) << rig_.tally.text();
  // Without its secret nothing can be found, and nothing is touched.
  rig_.store.reset();
  rig_.files = base_->copy_folder(kFolder, "/mnt/other");
  rig_.files->erase("/mnt/other/secret");
  EXPECT_EQ(open_and_look("without its secret"), 0);
  EXPECT_EQ(rig_.store, nullptr);
  EXPECT_EQ(rig_.files->text("/mnt/other/secret"), "");
}

TEST_F(StoreDamage, StrangersAreLeftAlone) {
  start_over();
  const std::string stranger = kFolder + "/holiday.jpg";
  rig_.files->put(stranger, std::string(100'000, 'x'));
  rig_.files->put(kFolder + "/seg-abc.akv", "no segment of ours");
  LogLines lines;
  EXPECT_EQ(open_and_look("strangers"), rig_.expected) << rig_.tally.text();
  EXPECT_EQ(rig_.store->status().unknown_files, 2);
  EXPECT_LE(rig_.store->status().bytes_used, rig_.config.bytes_max);
  (void)rig_.store->collect();
  rig_.store.reset();
  const std::string log = lines.stop();
  EXPECT_NE(log.find("holiday.jpg"), std::string::npos) << log;
  EXPECT_EQ(rig_.files->text(stranger).size(), 100'000u);
  EXPECT_EQ(rig_.files->text(kFolder + "/seg-abc.akv"), "no segment of ours");
}

TEST_F(StoreDamage, RandomDamageEverywhere) {
  testing::SeqRandom random(8);
  LogLines lines;
  for (int round = 0; round < 40; ++round) {
    start_over();
    const std::vector<std::string> all = base_->paths(kFolder);
    for (int i = 0; i < 6; ++i) {
      const std::string& path = all[random.next() % all.size()];
      const std::int64_t bits = std::ssize(text(path)) * 8;
      if (bits > 0) rig_.files->flip_bit(path, random.between(0, bits - 1));
    }
    open_and_look(fmt::format("round {}", round));
  }
}

}  // namespace
}  // namespace artery::kvstore::faults
