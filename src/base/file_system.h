#pragma once
// The file seam: what models and stores read and write goes through FileSystem, so that tests can
// use `testing::MemFileSystem` and inject faults. Any thread; one File may be read by many threads
// at once.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace artery {

// What identifies a file's content cheaply (weights digest cache).
struct FileStamp {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t mtime_ns = 0, ctime_ns = 0;
};

// A read-only view of a whole file. The bytes stay valid while the object lives.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual std::span<const std::byte> bytes() const = 0;
  virtual const FileStamp& stamp() const = 0;
  // What is read of this part from now on may be read from the file again: its memory is given
  // back as far as it fills pages.
  virtual void release(std::size_t offset, std::size_t bytes) const;
};

// A file read and written in whole blocks of 4096 bytes, past the page cache where the file system
// can (O_DIRECT). Buffers are aligned to 4096. Any thread; requests that overlap are the caller's
// matter.
class BlockFile {
 public:
  virtual ~BlockFile() = default;
  // Bytes read or written, which may be fewer than asked (the end of the file, a signal), or
  // -errno. What lies beyond them in `into` is undefined.
  virtual std::int64_t read_at(std::int64_t offset, std::span<std::byte> into) = 0;
  virtual std::int64_t write_at(std::int64_t offset, std::span<const std::byte> from) = 0;
  virtual Result<> sync() = 0;                       // fdatasync
  virtual Result<> reserve(std::int64_t bytes) = 0;  // room on the disk: kOutOfMemory
  virtual Result<> truncate(std::int64_t bytes) = 0;
  virtual Result<> punch(
      std::int64_t offset, std::int64_t bytes
  ) = 0;  // reads as zeros from now on
  virtual Result<std::int64_t> size() const = 0;
  virtual int descriptor() const { return -1; }  // -1: none, read_at and write_at only
};

// Held until it is destroyed; the kernel gives it back when the process dies.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

enum class OpenMode { kRead, kWrite, kCreate };  // kWrite: also reads; kCreate: new or emptied

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // kNotFound, kIo; an empty file gives an empty span, a directory is kInvalidArgument.
  virtual Result<std::unique_ptr<MappedFile>> map(const std::string& path) const = 0;
  virtual Result<std::string> read(const std::string& path, std::size_t bytes_max) const = 0;
  // Names of the regular files (or links to such) in a folder, sorted; folders in it are left out.
  // kNotFound; kInvalidArgument: no folder; kIo.
  virtual Result<std::vector<std::string>> list(const std::string& folder) const;
  // Puts a whole small file in place at once, with the folders above it (open to their owner only):
  // a reader sees the old file or the new one. kIo; kUnsupported where nothing can be written.
  virtual Result<> replace(const std::string& path, std::string_view text) const;

  // What a store needs besides. kUnsupported unless overridden.
  // kNotFound, kIo; kBadFile: no regular file; kUnavailable: read-only file system; kOutOfMemory.
  virtual Result<std::unique_ptr<BlockFile>> open_blocks(const std::string& path, OpenMode mode);
  virtual Result<> remove_file(const std::string& path);  // kNotFound, kIo
  // The folder and those above it, open to their owner only. Fine when it is there.
  virtual Result<> make_folder(const std::string& path);
  // Names that are created, removed or replaced in it last.
  virtual Result<> sync_folder(const std::string& path);
  // kUnavailable: another process holds it; the message has what that one wrote into the file.
  virtual Result<std::unique_ptr<FileLock>> lock(const std::string& path, std::string_view text);
  struct Space {
    std::int64_t free_bytes = 0;  // for this user
    bool is_read_only = false;
  };
  virtual Result<Space> space(const std::string& folder) const;
};

FileSystem& system_file_system();

}  // namespace artery
