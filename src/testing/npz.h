#pragma once
// Reads NumPy's .npz archives of golden data: a zip of .npy files, stored or deflated (PKWARE
// APPNOTE 6.3, sections 4.3.12 and 4.3.16; no zip64, no encryption). Owns the archive's bytes. Any
// thread.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/file_system.h"
#include "base/npy.h"
#include "base/result.h"

namespace artery::testing {

class NpzFile {
 public:
  // kNotFound, kIo, kBadFile.
  static Result<NpzFile> open(const std::string& path, const FileSystem& fs = system_file_system());
  bool has(std::string_view name) const { return entries_.contains(name); }
  // `name` without ".npy". kNotFound, kBadFile, kUnsupported.
  Result<NpyArray> array(std::string_view name) const;

 private:
  struct Entry {
    std::uint16_t method = 0;
    std::uint32_t checksum = 0;
    std::uint32_t packed_bytes = 0;
    std::uint32_t bytes = 0;
    std::uint32_t local_header = 0;
  };
  std::string path_;
  std::string file_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace artery::testing
