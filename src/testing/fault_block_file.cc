#include <algorithm>
#include <utility>

#include "testing/fault_state.h"

namespace artery::testing {
namespace {

// Half, in sectors of 512 bytes; a single block is never divided.
std::size_t half(std::size_t bytes) {
  return bytes <= static_cast<std::size_t>(kDiskBlock) ? bytes : bytes / 2 / 512 * 512;
}

bool is_aligned(std::int64_t offset, const void* address, std::size_t bytes) {
  const auto block = static_cast<std::size_t>(kDiskBlock);
  return offset >= 0 && offset % kDiskBlock == 0 && bytes % block == 0 &&
         reinterpret_cast<std::uintptr_t>(address) % block == 0;
}

class FaultBlockFile final : public BlockFile {
 public:
  FaultBlockFile(
      std::shared_ptr<FaultFileSystem::State> state,
      MemDisk::FilePtr file,
      std::string path,
      bool writable
  )
      : state_(std::move(state)),
        file_(std::move(file)),
        path_(std::move(path)),
        writable_(writable) {}

  std::int64_t read_at(std::int64_t offset, std::span<std::byte> into) override {
    if (!is_aligned(offset, into.data(), into.size())) return -EINVAL;
    const MutexLock lock(state_->mu);
    bool is_short = false;
    const auto bytes = static_cast<std::int64_t>(into.size());
    const int error = state_->strike({Fault::kRead, path_, offset, bytes}, &is_short);
    if (error != 0) return -error;
    const std::size_t most = is_short ? half(into.size()) : into.size();
    const std::int64_t got = file_->read(offset, into.first(most));
    // Nobody may rely on what lies beyond.
    std::ranges::fill(into.subspan(static_cast<std::size_t>(got)), std::byte{0xA5});
    ++state_->counts.reads;
    state_->counts.read_bytes += got;
    return got;
  }

  std::int64_t write_at(std::int64_t offset, std::span<const std::byte> from) override {
    if (!is_aligned(offset, from.data(), from.size())) return -EINVAL;
    if (!writable_) return -EBADF;
    const MutexLock lock(state_->mu);
    bool is_short = false;
    const auto bytes = static_cast<std::int64_t>(from.size());
    const int error = state_->strike({Fault::kWrite, path_, offset, bytes}, &is_short);
    if (error != 0) return -error;
    if (is_short) from = from.first(half(from.size()));
    const auto turn = state_->event(fmt::format("write {}+{}", offset, from.size()), path_);
    if (!turn.is_done()) return -turn.error;
    const std::int64_t room = room_for(offset, static_cast<std::int64_t>(from.size()));
    if (room <= 0) return -ENOSPC;
    from = from.first(std::min(from.size(), static_cast<std::size_t>(room)));
    file_->write(offset, from, turn.in_flight);
    if (turn.error != 0) return -turn.error;
    ++state_->counts.writes;
    return static_cast<std::int64_t>(from.size());
  }

  Result<> sync() override {
    const MutexLock lock(state_->mu);
    const auto turn = state_->change(Fault::kSync, "sync", path_);
    // One that is interrupted has done nothing that counts: after_crash() draws for each block.
    if (turn.error != 0) return refused(turn.error, path_);
    file_->sync();
    ++state_->counts.syncs;
    return {};
  }

  Result<> reserve(std::int64_t bytes) override {
    const MutexLock lock(state_->mu);
    const auto turn = state_->change(Fault::kSpace, "reserve", path_);
    if (!turn.is_done()) return refused(turn.error, path_);
    const std::int64_t more = bytes - file_->disk_bytes();
    if (more > state_->capacity - state_->disk.disk_bytes()) return refused(ENOSPC, path_);
    file_->reserve(bytes, turn.in_flight);
    return end(turn);
  }

  Result<> truncate(std::int64_t bytes) override {
    const MutexLock lock(state_->mu);
    const auto turn = state_->change(Fault::kSpace, "truncate", path_);
    if (turn.is_done()) file_->truncate(bytes, turn.in_flight);
    return end(turn);
  }

  Result<> punch(std::int64_t offset, std::int64_t bytes) override {
    const MutexLock lock(state_->mu);
    const auto turn = state_->change(Fault::kSpace, "punch", path_);
    if (turn.is_done()) file_->punch(offset, bytes, turn.in_flight);
    return end(turn);
  }

  Result<std::int64_t> size() const override {
    const MutexLock lock(state_->mu);
    if (state_->crashed) return refused(EIO, path_);
    return file_->size();
  }

 private:
  Result<> end(const FaultFileSystem::State::Turn& turn) const {
    if (turn.error != 0) return refused(turn.error, path_);
    return {};
  }
  // How many of the bytes the disk still takes: all that overwrite something, else what is free.
  std::int64_t room_for(std::int64_t offset, std::int64_t bytes) const REQUIRES(state_->mu) {
    const std::int64_t fresh = file_->fresh_blocks(offset, bytes) * kDiskBlock;
    const std::int64_t free = state_->capacity - state_->disk.disk_bytes();
    return fresh <= free ? bytes : (bytes - fresh + std::max<std::int64_t>(free, 0)) / 4096 * 4096;
  }

  const std::shared_ptr<FaultFileSystem::State> state_;
  const MemDisk::FilePtr file_;
  const std::string path_;
  const bool writable_;
};

}  // namespace

std::unique_ptr<BlockFile> make_fault_file(
    std::shared_ptr<FaultFileSystem::State> state,
    MemDisk::FilePtr file,
    std::string path,
    bool writable
) {
  return std::make_unique<FaultBlockFile>(
      std::move(state), std::move(file), std::move(path), writable
  );
}

}  // namespace artery::testing
