#include "base/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/posix_file.h"

namespace artery {

std::string posix::errno_text(int code) {
  return std::error_code(code, std::generic_category()).message();
}

Result<> posix::write_all(int fd, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail(Code::kIo, "{}: {}", path, errno_text(errno));
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

Result<> posix::make_folders(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    const std::string folder = path.substr(0, at);
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
      return fail(Code::kIo, "{}: {}", folder, errno_text(errno));
  }
  return {};
}

namespace {

using posix::Descriptor;
using posix::errno_text;

FileStamp stamp_of(const struct stat& st) {
  auto ns = [](const timespec& t) {
    return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  };
  return {
      st.st_dev, st.st_ino, static_cast<std::uint64_t>(st.st_size), ns(st.st_mtim), ns(st.st_ctim)
  };
}

Result<struct stat> checked_stat(int fd, const std::string& path) {
  struct stat st{};
  if (::fstat(fd, &st) != 0) return fail(Code::kIo, "{}: {}", path, errno_text(errno));
  if (S_ISDIR(st.st_mode))
    return fail(Code::kInvalidArgument, "{} is a directory, expected a file", path);
  return st;
}

// `flags` beside O_RDONLY.
Result<int> open_read(const std::string& path, int flags = 0) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (fd >= 0) return fd;
  const Code code = errno == ENOENT ? Code::kNotFound : Code::kIo;
  return fail(code, "{}: {}", path, errno_text(errno));
}

class PosixMappedFile final : public MappedFile {
 public:
  PosixMappedFile(const std::byte* data, FileStamp stamp) : data_(data), stamp_(stamp) {}
  ~PosixMappedFile() override {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), stamp_.bytes);
  }
  std::span<const std::byte> bytes() const override { return {data_, stamp_.bytes}; }
  const FileStamp& stamp() const override { return stamp_; }
  void release(std::size_t offset, std::size_t bytes) const override {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t begin = (offset + page - 1) / page * page;
    const std::size_t end = (offset + bytes) / page * page;
    if (begin >= end || end > stamp_.bytes) return;
    ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
  }

 private:
  const std::byte* data_;
  FileStamp stamp_;
};

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<MappedFile>> map(const std::string& path) const override {
    // Without O_NONBLOCK the open of a pipe waits for its writer, maybe for ever.
    const Descriptor fd(TRY(open_read(path, O_NONBLOCK)));
    const struct stat st = TRY(checked_stat(fd.get(), path));
    if (S_ISFIFO(st.st_mode)) return fail(Code::kBadFile, "{} is a pipe, expected a file", path);
    const FileStamp stamp = stamp_of(st);
    if (stamp.bytes == 0) return std::make_unique<PosixMappedFile>(nullptr, stamp);
    void* data = ::mmap(nullptr, stamp.bytes, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (data == MAP_FAILED) return fail(Code::kIo, "{}: cannot map: {}", path, errno_text(errno));
    return std::make_unique<PosixMappedFile>(static_cast<const std::byte*>(data), stamp);
  }

  Result<std::string> read(const std::string& path, std::size_t bytes_max) const override {
    const Descriptor fd(TRY(open_read(path)));
    TRY(checked_stat(fd.get(), path));
    std::string out;
    char buffer[1 << 16];
    while (true) {
      const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return fail(Code::kIo, "{}: {}", path, errno_text(errno));
      if (got == 0) return out;
      out.append(buffer, static_cast<std::size_t>(got));
      if (out.size() > bytes_max)
        return fail(Code::kTooLarge, "{}: larger than {} bytes", path, bytes_max);
    }
  }

  Result<std::vector<std::string>> list(const std::string& folder) const override {
    const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
    if (open == nullptr) {
      const Code code = errno == ENOENT    ? Code::kNotFound
                        : errno == ENOTDIR ? Code::kInvalidArgument
                                           : Code::kIo;
      return fail(code, "{}: {}", folder, errno_text(errno));
    }
    std::vector<std::string> names;
    errno = 0;
    for (const dirent* entry = ::readdir(open.get()); entry != nullptr;
         entry = ::readdir(open.get())) {
      struct stat st{};
      // A link whose target is gone is listed: opening it names what is missing.
      const bool gone = ::fstatat(::dirfd(open.get()), entry->d_name, &st, 0) != 0;
      if (gone || S_ISREG(st.st_mode)) names.emplace_back(entry->d_name);
      errno = 0;
    }
    if (errno != 0) return fail(Code::kIo, "{}: {}", folder, errno_text(errno));
    std::ranges::sort(names);
    return names;
  }

  Result<> replace(const std::string& path, std::string_view text) const override {
    TRY(posix::make_folders(path));
    std::string temporary = path + ".XXXXXX";
    const Descriptor fd(::mkostemp(temporary.data(), O_CLOEXEC));
    if (fd.get() < 0) return fail(Code::kIo, "{}: {}", temporary, errno_text(errno));
    Result<> written = posix::write_all(fd.get(), temporary, text);
    // Before the name: a power cut must not leave the new name on an empty file.
    if (written && ::fdatasync(fd.get()) != 0 && errno != EINVAL)
      written = fail(Code::kIo, "{}: {}", temporary, errno_text(errno));
    if (written && ::rename(temporary.c_str(), path.c_str()) != 0)
      written = fail(Code::kIo, "{}: {}", path, errno_text(errno));
    if (!written) ::unlink(temporary.c_str());
    return written;
  }

  Result<std::unique_ptr<BlockFile>> open_blocks(const std::string& path, OpenMode mode) override {
    return posix::open_blocks(path, mode);
  }
  Result<> remove_file(const std::string& path) override { return posix::remove_file(path); }
  Result<> make_folder(const std::string& path) override { return posix::make_folders(path + "/"); }
  Result<> sync_folder(const std::string& path) override { return posix::sync_folder(path); }
  Result<std::unique_ptr<FileLock>> lock(const std::string& path, std::string_view text) override {
    return posix::lock(path, text);
  }
  Result<Space> space(const std::string& folder) const override { return posix::space(folder); }
};

}  // namespace

void MappedFile::release(std::size_t, std::size_t) const {}

namespace {

tl::unexpected<Error> not_offered(const std::string& path) {
  return fail(Code::kUnsupported, "{}: this file system offers no block files", path);
}

}  // namespace

Result<std::unique_ptr<BlockFile>> FileSystem::open_blocks(const std::string& path, OpenMode) {
  return not_offered(path);
}

Result<> FileSystem::remove_file(const std::string& path) { return not_offered(path); }

Result<> FileSystem::make_folder(const std::string& path) { return not_offered(path); }

Result<> FileSystem::sync_folder(const std::string& path) { return not_offered(path); }

Result<std::unique_ptr<FileLock>> FileSystem::lock(const std::string& path, std::string_view) {
  return not_offered(path);
}

Result<FileSystem::Space> FileSystem::space(const std::string& folder) const {
  return not_offered(folder);
}

Result<std::vector<std::string>> FileSystem::list(const std::string& folder) const {
  return fail(Code::kUnsupported, "{}: these files cannot be listed", folder);
}

Result<> FileSystem::replace(const std::string& path, std::string_view) const {
  return fail(Code::kUnsupported, "{}: these files are read only", path);
}

FileSystem& system_file_system() {
  static PosixFileSystem instance;
  return instance;
}

}  // namespace artery
