#pragma once
// The segment files of a folder as the store thread knows them: which there are, how long, open
// handles (few: sealed ones are opened again when read), what was written to the open ones and is
// not journaled yet. The store thread's; blocks only to make, open and remove files.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "kvstore/catalog.h"
#include "kvstore/folder_format.h"
#include "kvstore/index.h"

namespace artery::kvstore {

struct SegmentFile {
  bool has_footer() const { return sealed_s != 0 || is_sealing; }

  // A record placed in an open segment, from the start of its write on.
  struct Put {
    enum class State : std::uint8_t { kWriting, kWritten, kFailed };
    IndexEntry entry;
    State state = State::kWriting;
  };

  // A record that its footer names, or may name, and that is no longer there.
  struct Erased {
    Key16 key;
    std::uint32_t block = 0;  // where it lay; 0: anywhere

    Erased() = default;
    Erased(const ChainKey& of, std::int64_t offset)
        : key(short_key(of)), block(static_cast<std::uint32_t>(offset / kBlock)) {}
  };

  SegmentId id = 0;
  TtlClass ttl = TtlClass::kHour;
  std::int64_t bytes = 0;     // of the file: reserved, or cut at the seal
  std::int64_t sealed_s = 0;  // unix seconds; 0: open
  std::int64_t end = kBlock;  // of its last record
  bool is_dirty = false;      // written to since the last sync
  bool wants_seal = false;    // nothing more is placed in it
  bool is_sealing = false;
  std::int64_t seal_tried_ns = -1;  // monotonic
  bool is_dropped = false;          // forgotten; the file goes when the journal says so
  bool awaits_copies = false;       // the journal may not say so yet
  int writes = 0;                   // under way
  std::deque<Put> puts;             // not journaled, in order of offset
  std::size_t synced = 0;           // so many of them, from the front, are on the disk
  std::vector<IndexEntry> log;      // journaled puts; until it is sealed
  std::vector<Erased> erased;       // since its footer was made
  std::shared_ptr<BlockFile> file;  // null: closed
  std::uint64_t used = 0;           // when it was last asked for
};

class SegmentTable {
 public:
  SegmentTable(std::string folder, FileSystem& files, bool read_only)
      : folder_(std::move(folder)), files_(files), read_only_(read_only) {}

  // A new file: reserved in full where the file system can, with its first block. On failure
  // nothing is left of it. kOutOfMemory: the disk is full; kUnavailable: read-only; kIo.
  Result<SegmentFile*> create(const SegmentHeader& header);
  SegmentFile* adopt(SegmentFile segment);  // found at start-up
  SegmentFile* find(SegmentId id);          // null: not there, or dropped
  // Opened when need be; to read only where it is sealed, or the disk is read-only. kNotFound:
  // deleted under us.
  Result<std::shared_ptr<BlockFile>> file(SegmentFile& segment);
  // Of an open segment. kUnavailable: the disk is read-only.
  Result<std::shared_ptr<BlockFile>> writable(SegmentFile& segment);
  // Removes the file of a dropped segment and forgets it. kIo: it stays, dropped.
  Result<> remove(SegmentId id);

  std::map<SegmentId, SegmentFile>& all() { return segments_; }
  const std::map<SegmentId, SegmentFile>& all() const { return segments_; }
  std::int64_t bytes() const;  // of all files, dropped ones that are still there too
  std::string path(SegmentId id) const { return folder_ + "/" + segment_name(id); }

 private:
  static constexpr std::size_t kHandlesMax = 256;
  void close_oldest();

  const std::string folder_;
  FileSystem& files_;
  const bool read_only_;
  std::map<SegmentId, SegmentFile> segments_;
  std::uint64_t uses_ = 0;
  std::size_t handles_ = 0;
};

// What was put in a segment and can still be found, in order of offset, with the class, uses and
// promise of now. `live`: what the index has there, in order of offset.
void keep_live(const std::vector<Entry>& live, std::vector<IndexEntry>& puts);

// Writes all of `bytes` at `offset`, waiting for it. kOutOfMemory: the disk is full; kUnavailable:
// read-only; kIo.
Result<> write_all(
    BlockFile& file, std::int64_t offset, std::span<const std::byte> bytes, std::string_view where
);
// Reads until `into` is full or the file ends; the bytes read. kIo.
Result<std::int64_t> read_all(
    BlockFile& file, std::int64_t offset, std::span<std::byte> into, std::string_view where
);
// As kind and sentence.
tl::unexpected<Error> io_failure(int code, std::string_view where, std::string_view verb);

}  // namespace artery::kvstore
