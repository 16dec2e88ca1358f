#pragma once
// The store's folder as the files that a server works on: each call that names a file in it first
// looks whether the folder that stands at its path is still the one that was opened. Folders get
// deleted, renamed and unmounted under a running server, and another one, with another server's
// store, may come to stand there: nothing is ever made, changed or removed in that. What is open
// already stays open: its bytes are ours wherever their names have gone.
//
// A writer's folder is known by the inode of its `lock`, which it holds; a reader's by its own.
// Any thread.

#include <cstdint>
#include <optional>
#include <string>

#include "base/file_system.h"

namespace artery::kvstore {

class FolderGuard final : public FileSystem {
 public:
  enum class State : std::uint8_t { kOurs, kGone, kOther };
  struct View {
    State state = State::kOurs;
    std::string trouble;  // what is wrong and what to do; empty: nothing
  };

  // Both outlive it. Nothing is guarded before hold().
  FolderGuard(FileSystem& files, std::string folder)
      : files_(files), folder_(std::move(folder)), lock_(folder_ + "/lock") {}

  // What stands there now is ours: the lock that has just been taken, or the folder. Without
  // effect on a file system that is not the machine's own. Before any other thread knows it.
  void hold_lock();
  void hold_folder();
  bool is_holding() const { return held_.has_value(); }
  // One stat.
  View look() const;

  // As `files`; kIo with look()'s trouble where the folder is not ours.
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

 private:
  struct Identity {
    std::uint64_t device = 0, inode = 0;
    bool operator==(const Identity&) const = default;
  };
  Result<> check() const;

  FileSystem& files_;
  const std::string folder_, lock_;
  bool by_lock_ = false;
  std::optional<Identity> held_;
};

// Counts changes of names in a folder, or of a file that is replaced: other answers mean that
// something was. Of the machine's own file system; nullopt: it cannot be looked at.
struct ChangeMark {
  std::uint64_t inode = 0;
  std::int64_t changed_ns = 0, bytes = 0;
  bool operator==(const ChangeMark&) const = default;
};
std::optional<ChangeMark> change_mark(const std::string& path);

}  // namespace artery::kvstore
