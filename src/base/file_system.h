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
};

const FileSystem& system_file_system();

}  // namespace artery
