#pragma once
// A disk in memory that remembers what is not synced yet, so that a crash can be played: files of
// 4 KiB blocks under names, the versions of each block since the file's last sync, the names that
// changed since their folder's. Plain value, no lock, no faults: FaultFileSystem adds those.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "testing/seq_random.h"

namespace artery::testing {

constexpr std::int64_t kDiskBlock = 4096;

enum class Crash {
  kProcess,  // kill -9: what was done stays; only what was under way may be half done
  kPower,    // of all that was not synced, each block and name is new, old, or (blocks) torn
};

class MemFile {
 public:
  using Block = std::array<std::byte, static_cast<std::size_t>(kDiskBlock)>;
  using BlockPtr = std::shared_ptr<const Block>;  // shared with the disks of crashes; null: a hole

  explicit MemFile(std::uint64_t inode) : inode_(inode) {}
  std::uint64_t inode() const { return inode_; }
  std::int64_t size() const { return sizes_.back(); }
  // What it takes of the disk: blocks written or reserved.
  std::int64_t disk_bytes() const;
  std::int64_t changes() const { return changes_; }
  // Blocks of a range that a write would have to find room for.
  std::int64_t fresh_blocks(std::int64_t offset, std::int64_t bytes) const;

  std::int64_t read(std::int64_t offset, std::span<std::byte> into) const;  // bytes, to the end
  std::string text() const;
  // Any offset and size. `in_flight`: it is what the crash interrupts.
  void write(std::int64_t offset, std::span<const std::byte> from, bool in_flight = false);
  void reserve(std::int64_t bytes, bool in_flight = false);
  void truncate(std::int64_t bytes, bool in_flight = false);
  void punch(std::int64_t offset, std::int64_t bytes, bool in_flight = false);
  void sync();  // all of the above is kept from here on
  bool is_synced() const { return dirty_.empty() && sizes_.size() == 1; }
  // What a disk may hold of it after a crash; all synced.
  std::shared_ptr<MemFile> after_crash(Crash crash, SeqRandom& random) const;

 private:
  struct Change {
    std::vector<BlockPtr> versions;  // the first is the synced one, the last is of now
    bool in_flight = false;
  };
  BlockPtr block(std::int64_t index) const;
  void put(std::int64_t index, BlockPtr block, bool in_flight);
  void resize(std::int64_t bytes, bool in_flight);

  std::uint64_t inode_;
  std::map<std::int64_t, BlockPtr> blocks_;  // of now, holes left out
  std::map<std::int64_t, Change> dirty_;
  std::set<std::int64_t> reserved_;     // blocks that have room and no bytes
  std::vector<std::int64_t> sizes_{0};  // since the last sync; the last is of now
  bool size_in_flight_ = false;
  std::int64_t changes_ = 0;
};

class MemDisk {
 public:
  using FilePtr = std::shared_ptr<MemFile>;  // shared with open handles, as inodes are

  FilePtr find(const std::string& path) const;  // null: none
  FilePtr create(const std::string& path, bool in_flight = false);
  void remove(const std::string& path, bool in_flight = false);
  void rename(const std::string& from, const std::string& to, bool in_flight = false);
  void make_folder(const std::string& path);  // with those above it; kept at once
  bool has_folder(const std::string& path) const;
  void sync_folder(const std::string& path);  // names in it are kept from here on
  void sync_all();
  const std::map<std::string, FilePtr>& files() const { return names_; }
  std::int64_t disk_bytes() const;
  MemDisk after_crash(Crash crash, std::uint64_t seed) const;

 private:
  struct NameChange {
    std::string path;
    FilePtr file;  // null: removed
    bool in_flight = false;
    bool goes_with_next = false;  // a rename is one change of two names
  };
  void change(NameChange name);

  std::map<std::string, FilePtr> names_;   // of now
  std::map<std::string, FilePtr> synced_;  // those kept by a crash, whatever `pending_` says
  std::vector<NameChange> pending_;        // since the sync of their folders, in order
  std::set<std::string> folders_;
  std::uint64_t inodes_ = 0;
};

std::string folder_of(std::string_view path);

}  // namespace artery::testing
