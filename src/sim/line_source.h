#pragma once
// The lines of a text file, unpacked as they are read where it is zstd (by its magic number). One
// thread; holds the packed file, not the text.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/file_system.h"
#include "base/result.h"

namespace artery::sim {

class LineSource {
 public:
  // kNotFound, kIo; kTooLarge: over 1 GiB as it lies there.
  static Result<LineSource> open(const std::string& path, const FileSystem& files);
  LineSource(LineSource&&) noexcept;
  ~LineSource();

  // The next line that is not blank, without its end, until the next call; nullopt: the end.
  // kBadFile: not whole zstd, or a line of over 64 MiB.
  Result<std::optional<std::string_view>> next();
  std::int64_t number() const { return number_; }  // of the last line, from 1
  const std::string& path() const { return path_; }
  // Of the file as it lies there.
  std::uint64_t bytes_done() const;
  std::uint64_t bytes() const { return file_.size(); }

 private:
  LineSource(std::string path, std::string file);
  Result<bool> more();  // false: the end

  struct Unpacker;
  std::string path_, file_, text_;
  std::size_t at_ = 0;  // in text_
  std::size_t read_ = 0;
  std::int64_t number_ = 0;
  std::unique_ptr<Unpacker> unpacker_;  // null: the file is the text
};

}  // namespace artery::sim
