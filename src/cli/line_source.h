#pragma once
// Lines of a file, a pipe or standard input as they come, so that a thread can wait for input and
// something else at once. Bounded: a line that is too long is passed over and said to be so. One
// thread.

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace artery::cli {

struct SourceLine {
  std::string text;         // without its end; empty when it is too long
  std::int64_t number = 0;  // from 1
  bool is_too_long = false;
};

class LineSource {
 public:
  // "-": standard input. kNotFound, kIo.
  static Result<LineSource> open(const std::string& path, std::size_t line_bytes_max);
  LineSource(LineSource&& other) noexcept;
  LineSource& operator=(LineSource&&) = delete;
  ~LineSource();

  int fd() const { return fd_; }
  // A line that has been read; nullopt: fill() first, or at_end().
  std::optional<SourceLine> next();
  // All has been read and given out.
  bool at_end() const { return is_closed_ && begin_ == buffer_.size(); }
  // Reads what is there, if anything is, without waiting; false: nothing is. kIo.
  Result<bool> fill();
  // How many lines there are, where that can be known before they are read (a regular file).
  std::optional<std::int64_t> line_count() const;

 private:
  LineSource(int fd, std::size_t line_bytes_max) : fd_(fd), line_bytes_max_(line_bytes_max) {}
  SourceLine cut(std::size_t end);

  int fd_;
  std::size_t line_bytes_max_;
  std::string buffer_;
  std::size_t begin_ = 0;     // of buffer_: was given out
  std::size_t searched_ = 0;  // of buffer_: has no line's end
  std::int64_t number_ = 0;
  bool is_closed_ = false, is_passing_over_ = false;
};

}  // namespace artery::cli
