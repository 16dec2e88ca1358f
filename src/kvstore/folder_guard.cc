#include "kvstore/folder_guard.h"

#include <sys/stat.h>

#include <cerrno>
#include <system_error>

namespace artery::kvstore {

void FolderGuard::hold_lock() {
  const auto file = files_.open_blocks(lock_, OpenMode::kRead);
  if (!file || (*file)->descriptor() < 0) return;
  struct stat st{};
  if (::fstat((*file)->descriptor(), &st) != 0) return;
  by_lock_ = true;
  held_ = Identity{st.st_dev, st.st_ino};
}

void FolderGuard::hold_folder() {
  const auto file = files_.open_blocks(folder_ + "/super", OpenMode::kRead);
  struct stat st{};
  if (!file || (*file)->descriptor() < 0 || ::stat(folder_.c_str(), &st) != 0) return;
  held_ = Identity{st.st_dev, st.st_ino};
}

FolderGuard::View FolderGuard::look() const {
  if (!held_) return {};
  struct stat st{};
  if (::stat((by_lock_ ? lock_ : folder_).c_str(), &st) == 0) {
    if (held_ == Identity{st.st_dev, st.st_ino}) return {};
    return {
        State::kOther,
        fmt::format(
            "{}: another folder stands there than the one that was opened, which is gone: nothing "
            "is read from it or written to it; restart the server to use what stands there",
            folder_
        )
    };
  }
  const int code = errno;
  if (code != ENOENT && code != ENOTDIR) {
    return {
        State::kGone,
        fmt::format(
            "{}: the folder cannot be looked at ({}): nothing is read or written until it can",
            folder_,
            std::error_code(code, std::generic_category()).message()
        )
    };
  }
  const bool is_there = by_lock_ && ::stat(folder_.c_str(), &st) == 0;
  return {
      State::kGone,
      fmt::format(
          "{}: the folder is gone ({}): nothing is read or written; put back what was there, or "
          "restart the server, which makes a new one",
          folder_,
          is_there ? "what was in it was deleted" : "deleted, renamed or not mounted any more"
      )
  };
}

Result<> FolderGuard::check() const {
  const View view = look();
  if (view.state == State::kOurs) return {};
  return fail(Code::kIo, "{}", view.trouble);
}

Result<std::unique_ptr<MappedFile>> FolderGuard::map(const std::string& path) const {
  TRY(check());
  return files_.map(path);
}

Result<std::string> FolderGuard::read(const std::string& path, std::size_t bytes_max) const {
  TRY(check());
  return files_.read(path, bytes_max);
}

Result<std::vector<std::string>> FolderGuard::list(const std::string& folder) const {
  TRY(check());
  return files_.list(folder);
}

Result<> FolderGuard::replace(const std::string& path, std::string_view text) const {
  TRY(check());
  return files_.replace(path, text);
}

Result<std::unique_ptr<BlockFile>> FolderGuard::open_blocks(
    const std::string& path, OpenMode mode
) {
  TRY(check());
  return files_.open_blocks(path, mode);
}

Result<> FolderGuard::remove_file(const std::string& path) {
  TRY(check());
  return files_.remove_file(path);
}

Result<> FolderGuard::make_folder(const std::string& path) {
  TRY(check());
  return files_.make_folder(path);
}

Result<> FolderGuard::sync_folder(const std::string& path) {
  TRY(check());
  return files_.sync_folder(path);
}

Result<std::unique_ptr<FileLock>> FolderGuard::lock(
    const std::string& path, std::string_view text
) {
  TRY(check());
  return files_.lock(path, text);
}

Result<FileSystem::Space> FolderGuard::space(const std::string& folder) const {
  TRY(check());
  return files_.space(folder);
}

std::optional<ChangeMark> change_mark(const std::string& path) {
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0) return std::nullopt;
  return ChangeMark{
      .inode = st.st_ino,
      .changed_ns = std::int64_t{st.st_ctim.tv_sec} * 1'000'000'000 + st.st_ctim.tv_nsec,
      .bytes = st.st_size
  };
}

}  // namespace artery::kvstore
