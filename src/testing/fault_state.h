#pragma once
// Inside of FaultFileSystem: the disk, the faults and the count of events behind one lock, shared
// with its open files.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "testing/fault_file_system.h"

namespace artery::testing {

struct FaultFileSystem::State {
  explicit State(std::uint64_t seed) : random(seed) {}

  // How an event goes: `is_done` says whether it takes place, in flight or not.
  struct Turn {
    int error = 0;
    bool in_flight = false;
    bool is_done() const { return error == 0 || in_flight; }
  };
  // Faults that strike an operation: waits, then gives errno or 0. `short_count`: do about half.
  struct Where {
    unsigned op = 0;
    std::string_view path;
    std::int64_t offset = 0, bytes = 0;
  };
  int strike(const Where& where, bool* short_count = nullptr) REQUIRES(mu);
  // The next event. Call strike() before.
  Turn event(std::string_view what, const std::string& path) REQUIRES(mu);
  // Both: the fault comes before the event is counted.
  Turn change(unsigned op, std::string_view what, const std::string& path) REQUIRES(mu);
  bool is_read_only() const REQUIRES(mu);

  Mutex mu;
  CondVar healed;
  MemDisk disk GUARDED_BY(mu);
  SeqRandom random GUARDED_BY(mu);
  std::vector<Fault> faults GUARDED_BY(mu);
  std::int64_t heals GUARDED_BY(mu) = 0;
  int hanging GUARDED_BY(mu) = 0;
  std::int64_t events GUARDED_BY(mu) = 0;
  std::int64_t crash_at GUARDED_BY(mu) = 0;
  std::int64_t read_only_from GUARDED_BY(mu) = 0;
  std::int64_t capacity GUARDED_BY(mu) = std::int64_t{1} << 40;
  std::string crash_point GUARDED_BY(mu);
  bool crashed GUARDED_BY(mu) = false;
  std::map<std::string, std::string> locks GUARDED_BY(mu);
  Counts counts GUARDED_BY(mu);
};

tl::unexpected<Error> refused(int error, const std::string& path);
std::unique_ptr<BlockFile> make_fault_file(
    std::shared_ptr<FaultFileSystem::State> state,
    MemDisk::FilePtr file,
    std::string path,
    bool writable
);

}  // namespace artery::testing
