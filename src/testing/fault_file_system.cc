#include "testing/fault_file_system.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "testing/fault_state.h"

namespace artery::testing {
namespace {

class CopiedFile final : public MappedFile {
 public:
  explicit CopiedFile(const MemFile& file)
      : text_(file.text()), stamp_{1, file.inode(), text_.size(), ticks(file), ticks(file)} {}
  std::span<const std::byte> bytes() const override {
    return std::as_bytes(std::span<const char>(text_.data(), text_.size()));
  }
  const FileStamp& stamp() const override { return stamp_; }

 private:
  static std::int64_t ticks(const MemFile& file) {
    return static_cast<std::int64_t>(file.inode() << 32u) + file.changes();
  }
  const std::string text_;
  const FileStamp stamp_;
};

class HeldLock final : public FileLock {
 public:
  HeldLock(std::shared_ptr<FaultFileSystem::State> state, std::string path)
      : state_(std::move(state)), path_(std::move(path)) {}
  ~HeldLock() override {
    const MutexLock lock(state_->mu);
    state_->locks.erase(path_);
  }

 private:
  const std::shared_ptr<FaultFileSystem::State> state_;
  const std::string path_;
};

}  // namespace

tl::unexpected<Error> refused(int error, const std::string& path) {
  const Code code = error == ENOENT   ? Code::kNotFound
                    : error == ENOSPC ? Code::kOutOfMemory
                    : error == EROFS  ? Code::kUnavailable
                                      : Code::kIo;
  return fail(code, "{}: {}", path, std::error_code(error, std::generic_category()).message());
}

int FaultFileSystem::State::strike(const Where& where, bool* short_count) {
  if (crashed) return EIO;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    Fault& fault = faults[i];
    const bool is_data = (where.op & (Fault::kRead | Fault::kWrite)) != 0;
    const bool is_here =
        (fault.ops & where.op) != 0 && fault.times > 0 &&
        where.path.find(fault.name) != std::string_view::npos &&
        (!is_data || (where.offset < fault.end && where.offset + where.bytes > fault.begin));
    if (!is_here || !random.chance(fault.probability)) continue;
    --fault.times;
    ++counts.faults;
    if (fault.kind == Fault::Kind::kError) return fault.error;
    if (fault.kind == Fault::Kind::kShort) {
      if (short_count != nullptr) *short_count = true;
      continue;
    }
    const auto until = std::chrono::steady_clock::now() +
                       std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                           std::chrono::duration<double>(fault.seconds)
                       );
    const std::int64_t heals_before = heals;
    const bool hangs = fault.kind == Fault::Kind::kHang;
    hanging += hangs ? 1 : 0;
    while (!crashed && (!hangs || heals == heals_before)) {
      if (healed.wait_until(mu, until) == std::cv_status::timeout) break;
    }
    hanging -= hangs ? 1 : 0;
    if (crashed) return EIO;
    if (heals != heals_before) return 0;  // `faults` is another list by now
  }
  return 0;
}

bool FaultFileSystem::State::is_read_only() const {
  return read_only_from > 0 && events + 1 >= read_only_from;
}

FaultFileSystem::State::Turn FaultFileSystem::State::event(
    std::string_view what, const std::string& path
) {
  if (crashed) return {EIO, false};
  if (is_read_only()) return {EROFS, false};
  ++events;
  if (crash_at == 0 || events < crash_at) return {};
  crashed = true;
  crash_point = fmt::format("event {}: {} {}", events, what, path);
  healed.notify_all();
  return {EIO, true};
}

FaultFileSystem::State::Turn FaultFileSystem::State::change(
    unsigned op, std::string_view what, const std::string& path
) {
  const int error = strike({op, path});
  return error != 0 ? Turn{error, false} : event(what, path);
}

FaultFileSystem::FaultFileSystem(std::uint64_t seed) : state_(std::make_shared<State>(seed)) {}

FaultFileSystem::~FaultFileSystem() { heal(); }

void FaultFileSystem::crash_at(std::int64_t n) {
  const MutexLock lock(state_->mu);
  state_->crash_at = n;
}

bool FaultFileSystem::crashed() const {
  const MutexLock lock(state_->mu);
  return state_->crashed;
}

std::string FaultFileSystem::crash_point() const {
  const MutexLock lock(state_->mu);
  return state_->crash_point;
}

std::int64_t FaultFileSystem::events() const {
  const MutexLock lock(state_->mu);
  return state_->events;
}

std::unique_ptr<FaultFileSystem> FaultFileSystem::after_crash(Crash crash, std::uint64_t seed)
    const {
  auto out = std::make_unique<FaultFileSystem>(seed);
  const MutexLock lock(state_->mu);
  const MutexLock also(out->state_->mu);
  out->state_->disk = state_->disk.after_crash(crash, seed);
  return out;
}

void FaultFileSystem::inject(Fault fault) {
  const MutexLock lock(state_->mu);
  state_->faults.push_back(std::move(fault));
}

void FaultFileSystem::heal() {
  const MutexLock lock(state_->mu);
  state_->faults.clear();
  ++state_->heals;
  state_->healed.notify_all();
}

int FaultFileSystem::hanging() const {
  const MutexLock lock(state_->mu);
  return state_->hanging;
}

void FaultFileSystem::read_only_from(std::int64_t n) {
  const MutexLock lock(state_->mu);
  state_->read_only_from = n;
}

void FaultFileSystem::set_capacity(std::int64_t bytes) {
  const MutexLock lock(state_->mu);
  state_->capacity = bytes;
}

FaultFileSystem::Counts FaultFileSystem::counts() const {
  const MutexLock lock(state_->mu);
  return state_->counts;
}

void FaultFileSystem::put(const std::string& path, std::string_view text) {
  const MutexLock lock(state_->mu);
  const MemDisk::FilePtr file = state_->disk.create(path);
  file->write(0, std::as_bytes(std::span(text)));
  file->sync();
  state_->disk.sync_folder(folder_of(path));
}

std::string FaultFileSystem::text(const std::string& path) const {
  const MutexLock lock(state_->mu);
  const MemDisk::FilePtr file = state_->disk.find(path);
  return file == nullptr ? std::string() : file->text();
}

std::vector<std::string> FaultFileSystem::paths(const std::string& folder) const {
  const MutexLock lock(state_->mu);
  std::vector<std::string> out;
  for (const auto& [path, file] : state_->disk.files()) {
    if (path.starts_with(folder + "/")) out.push_back(path);
  }
  return out;
}

std::int64_t FaultFileSystem::disk_bytes() const {
  const MutexLock lock(state_->mu);
  return state_->disk.disk_bytes();
}

void FaultFileSystem::overwrite(
    const std::string& path, std::int64_t offset, std::string_view bytes
) {
  const MutexLock lock(state_->mu);
  const MemDisk::FilePtr file = state_->disk.find(path);
  if (file == nullptr) return;
  file->write(offset, std::as_bytes(std::span(bytes)));
  file->sync();
}

void FaultFileSystem::flip_bit(const std::string& path, std::int64_t bit) {
  const std::string before = text(path);
  const auto at = static_cast<std::size_t>(bit / 8);
  if (at >= before.size()) return;
  const char flipped = static_cast<char>(before[at] ^ (1 << (bit % 8)));
  overwrite(path, bit / 8, std::string_view(&flipped, 1));
}

void FaultFileSystem::cut_file(const std::string& path, std::int64_t bytes) {
  const MutexLock lock(state_->mu);
  const MemDisk::FilePtr file = state_->disk.find(path);
  if (file == nullptr) return;
  file->truncate(bytes);
  file->sync();
}

void FaultFileSystem::erase(const std::string& path) {
  const MutexLock lock(state_->mu);
  state_->disk.remove(path);
  state_->disk.sync_folder(folder_of(path));
}

void FaultFileSystem::swap_files(const std::string& a, const std::string& b) {
  const std::string text_a = text(a);
  const std::string text_b = text(b);
  put(a, text_b);
  put(b, text_a);
}

void FaultFileSystem::sync_all() {
  const MutexLock lock(state_->mu);
  state_->disk.sync_all();
}

std::unique_ptr<FaultFileSystem> FaultFileSystem::copy_folder(
    const std::string& from, const std::string& to
) const {
  auto out = std::make_unique<FaultFileSystem>();
  out->put("/another/machine", "has used inode numbers of its own");
  for (const std::string& path : paths(from)) out->put(to + path.substr(from.size()), text(path));
  return out;
}

Result<std::unique_ptr<MappedFile>> FaultFileSystem::map(const std::string& path) const {
  const MutexLock lock(state_->mu);
  if (const int error = state_->strike({Fault::kOpen, path}); error != 0)
    return refused(error, path);
  const MemDisk::FilePtr file = state_->disk.find(path);
  if (file == nullptr) return refused(ENOENT, path);
  return std::make_unique<CopiedFile>(*file);
}

Result<std::string> FaultFileSystem::read(const std::string& path, std::size_t bytes_max) const {
  const MutexLock lock(state_->mu);
  if (const int error = state_->strike({Fault::kOpen, path}); error != 0)
    return refused(error, path);
  const MemDisk::FilePtr file = state_->disk.find(path);
  if (file == nullptr) return refused(ENOENT, path);
  if (file->size() > static_cast<std::int64_t>(bytes_max))
    return fail(Code::kTooLarge, "{}: larger than {} bytes", path, bytes_max);
  return file->text();
}

Result<std::vector<std::string>> FaultFileSystem::list(const std::string& folder) const {
  const MutexLock lock(state_->mu);
  if (state_->crashed) return refused(EIO, folder);
  if (state_->disk.find(folder) != nullptr)
    return fail(Code::kInvalidArgument, "{}: Not a directory", folder);
  if (!state_->disk.has_folder(folder)) return refused(ENOENT, folder);
  std::vector<std::string> names;
  for (const auto& [path, file] : state_->disk.files()) {
    if (folder_of(path) == folder) names.push_back(path.substr(folder.size() + 1));
  }
  return names;
}

Result<> FaultFileSystem::replace(const std::string& path, std::string_view text) const {
  const MutexLock lock(state_->mu);
  state_->disk.make_folder(folder_of(path));
  const std::string temporary = fmt::format("{}.{:06}", path, state_->events % 1'000'000);
  State::Turn turn = state_->change(Fault::kNames, "create", temporary);
  if (turn.error != 0) {
    if (turn.in_flight) state_->disk.create(temporary, true);
    return refused(turn.error, temporary);
  }
  const MemDisk::FilePtr file = state_->disk.create(temporary);
  turn = state_->change(Fault::kWrite, "write", temporary);
  const auto bytes = std::as_bytes(std::span(text));
  const bool has_room =
      state_->disk.disk_bytes() + static_cast<std::int64_t>(text.size()) <= state_->capacity;
  if (turn.is_done() && has_room) file->write(0, bytes, turn.in_flight);
  if (turn.error == 0 && !has_room) turn.error = ENOSPC;
  if (turn.error == 0) turn = state_->change(Fault::kSync, "sync", temporary);
  if (turn.error == 0) file->sync();
  if (turn.error == 0) {
    turn = state_->change(Fault::kNames, "rename", path);
    if (turn.is_done()) state_->disk.rename(temporary, path, turn.in_flight);
  }
  if (turn.error == 0) return {};
  if (!state_->crashed && state_->disk.find(temporary) != nullptr) state_->disk.remove(temporary);
  return fail(Code::kIo, "{}", refused(turn.error, path).value().message);
}

Result<std::unique_ptr<BlockFile>> FaultFileSystem::open_blocks(
    const std::string& path, OpenMode mode
) {
  const MutexLock lock(state_->mu);
  if (const int error = state_->strike({Fault::kOpen, path}); error != 0)
    return refused(error, path);
  if (mode != OpenMode::kRead && state_->is_read_only()) return refused(EROFS, path);
  MemDisk::FilePtr file = state_->disk.find(path);
  if (mode != OpenMode::kCreate) {
    if (file == nullptr) return refused(ENOENT, path);
    ++state_->counts.opens;
    return make_fault_file(state_, file, path, mode == OpenMode::kWrite);
  }
  if (!state_->disk.has_folder(folder_of(path))) return refused(ENOENT, path);
  const State::Turn turn = state_->change(Fault::kNames, "create", path);
  if (turn.is_done()) {
    if (file == nullptr) {
      file = state_->disk.create(path, turn.in_flight);
    } else {
      file->truncate(0, turn.in_flight);
    }
  }
  if (turn.error != 0) return refused(turn.error, path);
  ++state_->counts.opens;
  return make_fault_file(state_, file, path, true);
}

Result<> FaultFileSystem::remove_file(const std::string& path) {
  const MutexLock lock(state_->mu);
  if (state_->disk.find(path) == nullptr && !state_->crashed) return refused(ENOENT, path);
  const State::Turn turn = state_->change(Fault::kNames, "remove", path);
  if (turn.is_done()) state_->disk.remove(path, turn.in_flight);
  if (turn.error != 0) return refused(turn.error, path);
  return {};
}

Result<> FaultFileSystem::make_folder(const std::string& path) {
  const MutexLock lock(state_->mu);
  if (state_->crashed) return refused(EIO, path);
  if (state_->disk.has_folder(path)) return {};
  if (state_->is_read_only()) return refused(EROFS, path);
  state_->disk.make_folder(path);
  return {};
}

Result<> FaultFileSystem::sync_folder(const std::string& path) {
  const MutexLock lock(state_->mu);
  const State::Turn turn = state_->change(Fault::kSync, "sync_folder", path);
  if (turn.error != 0) return refused(turn.error, path);
  state_->disk.sync_folder(path);
  ++state_->counts.syncs;
  return {};
}

Result<std::unique_ptr<FileLock>> FaultFileSystem::lock(
    const std::string& path, std::string_view text
) {
  const MutexLock lock(state_->mu);
  if (const int error = state_->strike({Fault::kOpen, path}); error != 0)
    return refused(error, path);
  if (state_->is_read_only()) return fail(Code::kIo, "{}: Read-only file system", path);
  const auto [at, is_new] = state_->locks.try_emplace(path, text);
  if (!is_new) return fail(Code::kUnavailable, "{}: held by {}", path, at->second);
  MemDisk::FilePtr file = state_->disk.find(path);
  if (file == nullptr) file = state_->disk.create(path);
  file->truncate(0);
  file->write(0, std::as_bytes(std::span(text)));
  return std::make_unique<HeldLock>(state_, path);
}

Result<FileSystem::Space> FaultFileSystem::space(const std::string& folder) const {
  const MutexLock lock(state_->mu);
  if (state_->crashed) return refused(EIO, folder);
  if (!state_->disk.has_folder(folder)) return refused(ENOENT, folder);
  const std::int64_t free = state_->capacity - state_->disk.disk_bytes();
  return Space{std::max<std::int64_t>(free, 0), state_->is_read_only()};
}

}  // namespace artery::testing
