#pragma once
// One journal file: what changed in the index since the segments' footers, in batches; and what a
// replay of it tells. The journal is reserved in full when it is made, so that a full disk does not
// keep the store from giving space back. The store thread's; no locks.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "kvstore/folder_format.h"
#include "kvstore/slot_pool.h"

namespace artery::kvstore {

class Journal {
 public:
  struct Chunk {  // one batch, to be written at `offset`
    std::int64_t offset = 0;
    std::shared_ptr<AlignedBytes> bytes;
  };

  // Makes the file, with its first block and its name synced. kOutOfMemory, kUnavailable, kIo.
  static Result<std::unique_ptr<Journal>> create(
      const std::string& folder, FileSystem& files, const JournalHeader& header, std::int64_t bytes
  );
  // Goes on with one that was replayed up to `end`, with `sequence` batches in it.
  static Result<std::unique_ptr<Journal>> resume(
      const std::string& folder,
      FileSystem& files,
      std::uint64_t number,
      std::int64_t end,
      std::uint64_t sequence
  );

  bool fits(std::size_t entries) const;
  // At most kBatchEntriesMax entries. The next batch takes the same place until appended() says
  // that this one is there.
  Chunk encode(std::span<const IndexEntry> entries, std::int64_t now_s) const;
  void appended(const Chunk& chunk);
  // Writes batches and waits for them, not for their sync; grows the file where it must.
  Result<> append(std::span<const IndexEntry> entries, std::int64_t now_s);

  const std::shared_ptr<BlockFile>& file() const { return file_; }
  const std::string& path() const { return path_; }
  std::uint64_t number() const { return number_; }
  std::int64_t bytes() const { return bytes_; }  // of the file
  std::int64_t used() const { return end_; }

 private:
  Journal(std::string path, std::uint64_t number, std::shared_ptr<BlockFile> file)
      : path_(std::move(path)), number_(number), file_(std::move(file)) {}

  const std::string path_;
  const std::uint64_t number_;
  const std::shared_ptr<BlockFile> file_;
  std::int64_t bytes_ = 0;
  std::int64_t end_ = kBlock;
  std::uint64_t sequence_ = 0;
};

// What all batches together say. Of a key only the first half counts: the index knows no more, and
// what it writes when a journal is begun anew ends in zeros.
struct Replay {
  struct Uses {
    TtlClass ttl = TtlClass::kTenMinutes;
    int uses = 0;
    std::int64_t last_use_s = 0;
    std::int64_t guaranteed_until_s = 0;
  };
  struct OfSegment {
    std::unordered_map<ChainKey, IndexEntry, ChainKeyHash> puts;
    // Records of a key that lie up to there are gone.
    std::unordered_map<ChainKey, std::int64_t, ChainKeyHash> erased;
    bool is_erased(const ChainKey& key, std::int64_t offset) const {
      const auto at = erased.find(half(key));
      return at != erased.end() && offset <= at->second;
    }
    std::int64_t end = kBlock;  // of the last record that was put, erased or not
    bool is_sealed = false;
  };
  std::unordered_map<SegmentId, OfSegment> segments;  // those that were not dropped
  std::unordered_set<SegmentId> dropped;              // their files may still be there
  SegmentId next_segment = 0;                         // above all that are spoken of
  std::unordered_map<ChainKey, Uses, ChainKeyHash> uses;
  std::int64_t end = kBlock;   // of the last whole batch
  std::uint64_t sequence = 0;  // batches
  std::int64_t entries = 0;
  bool is_torn = false;  // something is there that is no batch: do not go on after `end`

  static ChainKey half(const ChainKey& key);
  void apply(const IndexEntry& entry);
  // Raises class, uses and promise of a record to what was said later.
  void raise(IndexEntry& entry) const;
};
// Reads a journal up to the first batch that is not whole. kBadFile: it is no journal;
// kUnsupported: of another version; kIo.
Result<Replay> replay_journal(BlockFile& file, std::uint64_t number, std::string_view where);

}  // namespace artery::kvstore
