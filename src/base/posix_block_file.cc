#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <span>

#include "base/posix_file.h"

namespace artery::posix {
namespace {

constexpr std::int64_t kBlock = 4096;
constexpr std::int64_t kZeroBytes = 1 << 20;

tl::unexpected<Error> failed(const std::string& path, std::string_view what, int code) {
  Code kind = Code::kIo;
  if (code == ENOENT) kind = Code::kNotFound;
  if (code == EROFS) kind = Code::kUnavailable;
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) kind = Code::kOutOfMemory;
  return fail(kind, "{}: {}: {}", path, what, errno_text(code));
}

// Calls until no signal interrupts it; 0, or errno.
template <typename Call>
int errno_of(const Call& call) {
  while (call() != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

template <typename Call>
std::int64_t counted(const Call& call) {
  while (true) {
    const ssize_t moved = call();
    if (moved >= 0) return moved;
    if (errno != EINTR) return -errno;
  }
}

struct Freed {
  void operator()(std::byte* bytes) const { ::operator delete(bytes, std::align_val_t{kBlock}); }
};

class PosixBlockFile final : public BlockFile {
 public:
  PosixBlockFile(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  std::int64_t read_at(std::int64_t offset, std::span<std::byte> into) override {
    return direct_or_not([&] { return ::pread(fd_.get(), into.data(), into.size(), offset); });
  }
  std::int64_t write_at(std::int64_t offset, std::span<const std::byte> from) override {
    return direct_or_not([&] { return ::pwrite(fd_.get(), from.data(), from.size(), offset); });
  }
  Result<> sync() override {
    const int code = errno_of([&] { return ::fdatasync(fd_.get()); });
    if (code != 0) return failed(path_, "cannot sync", code);
    return {};
  }
  Result<> reserve(std::int64_t bytes) override {
    const int code = errno_of([&] { return ::fallocate(fd_.get(), 0, 0, bytes); });
    if (code == EOPNOTSUPP || code == ENOSYS) return reserve_loosely(bytes);
    if (code != 0) return failed(path_, fmt::format("cannot reserve {} bytes", bytes), code);
    return {};
  }
  Result<> truncate(std::int64_t bytes) override {
    const int code = errno_of([&] { return ::ftruncate(fd_.get(), bytes); });
    if (code != 0) return failed(path_, fmt::format("cannot cut to {} bytes", bytes), code);
    return {};
  }
  Result<> punch(std::int64_t offset, std::int64_t bytes) override {
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    const int code = errno_of([&] { return ::fallocate(fd_.get(), mode, offset, bytes); });
    if (code == EOPNOTSUPP || code == ENOSYS) return overwrite(offset, bytes);
    if (code != 0) return failed(path_, fmt::format("cannot free {} bytes", bytes), code);
    return {};
  }
  Result<std::int64_t> size() const override {
    struct stat st{};
    if (::fstat(fd_.get(), &st) != 0) return failed(path_, "no size", errno);
    return static_cast<std::int64_t>(st.st_size);
  }
  int descriptor() const override { return fd_.get(); }

 private:
  // Some file systems take O_DIRECT and then refuse blocks as small as ours (EINVAL): buffered
  // from there on, also for whoever uses the descriptor.
  template <typename Call>
  std::int64_t direct_or_not(const Call& call) {
    const std::int64_t moved = counted(call);
    if (moved != -EINVAL) return moved;
    const int flags = ::fcntl(fd_.get(), F_GETFL);
    if (flags < 0 || (flags & O_DIRECT) == 0) return moved;
    if (::fcntl(fd_.get(), F_SETFL, flags & ~O_DIRECT) != 0) return moved;
    return counted(call);
  }

  // Where nothing can be reserved: the size, and a look at what is free.
  Result<> reserve_loosely(std::int64_t bytes) {
    const std::int64_t now = TRY(size());
    struct statvfs st{};
    if (::fstatvfs(fd_.get(), &st) != 0) return failed(path_, "no free space known", errno);
    const auto free = static_cast<std::int64_t>(st.f_bavail * st.f_frsize);
    if (bytes - now > free) {
      return fail(
          Code::kOutOfMemory, "{}: cannot reserve {} bytes: {} are free", path_, bytes - now, free
      );
    }
    return now < bytes ? truncate(bytes) : Result<>{};
  }

  Result<> overwrite(std::int64_t offset, std::int64_t bytes) {
    const auto room = static_cast<std::size_t>(std::min(bytes, kZeroBytes));
    const std::unique_ptr<std::byte, Freed> zeros(
        static_cast<std::byte*>(::operator new(room, std::align_val_t{kBlock}))
    );
    std::fill_n(zeros.get(), room, std::byte{0});
    const std::int64_t end = std::min(offset + bytes, TRY(size()));
    while (offset < end) {
      const std::int64_t part = std::min(end - offset, kZeroBytes);
      const std::int64_t put = write_at(offset, {zeros.get(), static_cast<std::size_t>(part)});
      if (put <= 0) {
        return failed(path_, "cannot overwrite with zeros", put < 0 ? static_cast<int>(-put) : EIO);
      }
      offset += put;
    }
    return {};
  }

  Descriptor fd_;
  std::string path_;
};

class PosixFileLock final : public FileLock {
 public:
  explicit PosixFileLock(Descriptor fd) : fd_(std::move(fd)) {}

 private:
  Descriptor fd_;  // closing it gives the lock back
};

std::string text_in(int fd) {
  char buffer[512];
  const std::int64_t got = counted([&] { return ::pread(fd, buffer, sizeof buffer, 0); });
  std::string text(buffer, static_cast<std::size_t>(std::max(got, std::int64_t{0})));
  std::erase_if(text, [](char c) { return c < ' ' || c == '\x7F'; });
  return text;
}

}  // namespace

Result<std::unique_ptr<BlockFile>> open_blocks(const std::string& path, OpenMode mode) {
  struct stat st{};
  // The open of a pipe might wait for ever.
  if (::stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode)) {
    return fail(Code::kBadFile, "{} is not a regular file", path);
  }
  int flags = O_CLOEXEC | (mode == OpenMode::kRead ? O_RDONLY : O_RDWR);
  if (mode == OpenMode::kCreate) flags |= O_CREAT | O_TRUNC;
  int fd = ::open(path.c_str(), flags | O_DIRECT, 0600);
  if (fd < 0 && errno == EINVAL) fd = ::open(path.c_str(), flags, 0600);  // tmpfs, before Linux 6.6
  if (fd < 0) return failed(path, "cannot open", errno);
  return std::make_unique<PosixBlockFile>(Descriptor(fd), path);
}

Result<> remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0) return failed(path, "cannot remove", errno);
  return {};
}

Result<> sync_folder(const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return failed(path, "cannot open", errno);
  const int code = errno_of([&] { return ::fsync(fd.get()); });
  // EINVAL: this file system knows no sync of folders.
  if (code != 0 && code != EINVAL) return failed(path, "cannot sync", code);
  return {};
}

Result<std::unique_ptr<FileLock>> lock(const std::string& path, std::string_view text) {
  Descriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (fd.get() < 0) {
    const int code = errno;
    return fail(Code::kIo, "{}: cannot open: {}", path, errno_text(code));
  }
  // A lock of the open file, not of the process: two stores in one process keep each other out, and
  // closing another descriptor of the file does not give it back.
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const int code = errno_of([&] { return ::fcntl(fd.get(), F_OFD_SETLK, &whole); });
  if (code == EAGAIN || code == EACCES) {
    return fail(Code::kUnavailable, "{}: another process holds it: {}", path, text_in(fd.get()));
  }
  if (code != 0) return fail(Code::kIo, "{}: cannot lock: {}", path, errno_text(code));
  if (::ftruncate(fd.get(), 0) != 0) {
    const int refused = errno;
    return fail(Code::kIo, "{}: {}", path, errno_text(refused));
  }
  TRY(write_all(fd.get(), path, text));
  return std::make_unique<PosixFileLock>(std::move(fd));
}

Result<FileSystem::Space> space(const std::string& folder) {
  struct statvfs st{};
  const int code = errno_of([&] { return ::statvfs(folder.c_str(), &st); });
  if (code != 0) return failed(folder, "no free space known", code);
  return FileSystem::Space{
      .free_bytes = static_cast<std::int64_t>(st.f_bavail * st.f_frsize),
      .is_read_only = (st.f_flag & ST_RDONLY) != 0
  };
}

}  // namespace artery::posix
