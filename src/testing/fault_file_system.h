#pragma once
// A file system in memory for tests of what must survive: crashes at a chosen event, disks that
// fail, lie short, hang, fill up or turn read-only, and damage from outside. As strict as O_DIRECT:
// offsets, sizes and addresses of block files are multiples of 4096, else EINVAL. Any thread.
//
// Everything that changes the disk is one event: create, write, sync, reserve, truncate, punch,
// rename, remove, sync_folder; replace() is create, write, sync, rename. Folders are kept at once.

#include <cerrno>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "testing/mem_disk.h"

namespace artery::testing {

// What goes wrong, and where.
struct Fault {
  enum class Kind {
    kError,  // fails with `error`
    kShort,  // reads and writes do about half
    kHang,   // waits until heal(), a crash, or `seconds`; then goes on
    kSlow,   // takes `seconds` more
  };
  enum Op : unsigned {
    kRead = 1,
    kWrite = 2,
    kSync = 4,      // of files and folders
    kSpace = 8,     // reserve, truncate, punch
    kOpen = 16,     // block files; also map() and read()
    kNames = 32,    // create, rename, remove
    kChanges = 46,  // all but reads and opens
    kAll = 63,
  };
  Kind kind = Kind::kError;
  unsigned ops = kAll;
  std::string name = {};  // part of the path; empty: all files
  // Bytes that a read or write must touch.
  std::int64_t begin = 0, end = std::numeric_limits<std::int64_t>::max();
  double probability = 1;
  std::int64_t times = std::numeric_limits<std::int64_t>::max();  // then it is over
  int error = EIO;
  double seconds = 60;  // of the machine's clock
};

class FaultFileSystem : public FileSystem {
 public:
  explicit FaultFileSystem(std::uint64_t seed = 1);
  ~FaultFileSystem() override;
  FaultFileSystem(const FaultFileSystem&) = delete;
  FaultFileSystem& operator=(const FaultFileSystem&) = delete;

  // --- faults
  // The process dies in event `n` (from 1 on), which may be done in part: from there on everything
  // fails, also what is hanging. 0: never.
  void crash_at(std::int64_t n);
  bool crashed() const;
  std::string crash_point() const;  // "event 17: write seg-1.akv 0+4096"
  std::int64_t events() const;
  // The disk that the next process finds, without faults or locks. One seed, one outcome.
  std::unique_ptr<FaultFileSystem> after_crash(Crash crash, std::uint64_t seed) const;
  void inject(Fault fault);
  void heal();  // no more injected faults; what hangs goes on
  int hanging() const;
  void read_only_from(std::int64_t n);  // EROFS from event `n` on; 0: never
  void set_capacity(std::int64_t bytes);
  struct Counts {
    std::int64_t opens = 0, reads = 0, read_bytes = 0, writes = 0, syncs = 0;
    std::int64_t faults = 0;  // injected ones that struck
  };
  Counts counts() const;

  // --- damage from outside, synced, no events. Open files see it.
  void put(const std::string& path, std::string_view text);  // a new file, as replace()
  std::string text(const std::string& path) const;           // empty: none
  std::vector<std::string> paths(const std::string& folder) const;
  std::int64_t disk_bytes() const;
  void overwrite(const std::string& path, std::int64_t offset, std::string_view bytes);
  void flip_bit(const std::string& path, std::int64_t bit);  // bit 0: lowest of the first byte
  void cut_file(const std::string& path, std::int64_t bytes);
  void erase(const std::string& path);  // open files live on, as after unlink
  void swap_files(const std::string& a, const std::string& b);
  void sync_all();
  // Another machine's copy of a folder: same bytes, other inodes and times.
  std::unique_ptr<FaultFileSystem> copy_folder(const std::string& from, const std::string& to)
      const;

  // --- FileSystem
  Result<std::unique_ptr<MappedFile>> map(const std::string& path) const override;
  Result<std::string> read(const std::string& path, std::size_t bytes_max) const override;
  Result<std::vector<std::string>> list(const std::string& folder) const override;
  Result<> replace(const std::string& path, std::string_view text) const override;
  Result<std::unique_ptr<BlockFile>> open_blocks(const std::string& path, OpenMode mode) override;
  Result<> remove_file(const std::string& path) override;
  Result<> make_folder(const std::string& path) override;
  Result<> sync_folder(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> lock(const std::string& path, std::string_view text) override;
  Result<Space> space(const std::string& folder) const override;

  struct State;

 private:
  std::shared_ptr<State> state_;  // shared with the open files and locks, which may live longer
};

}  // namespace artery::testing
