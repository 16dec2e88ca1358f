#pragma once
// Between file_system.cc and posix_block_file.cc: descriptors and the store's verbs on real files.
// Any thread.

#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/file_system.h"

namespace artery::posix {

std::string errno_text(int code);

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Result<> write_all(int fd, const std::string& path, std::string_view text);
Result<> make_folders(const std::string& path);  // those above the last '/'

// As FileSystem's.
Result<std::unique_ptr<BlockFile>> open_blocks(const std::string& path, OpenMode mode);
Result<> remove_file(const std::string& path);
Result<> sync_folder(const std::string& path);
Result<std::unique_ptr<FileLock>> lock(const std::string& path, std::string_view text);
Result<FileSystem::Space> space(const std::string& folder);

}  // namespace artery::posix
