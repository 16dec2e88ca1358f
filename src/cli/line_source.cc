#include "cli/line_source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace artery::cli {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 16;

}  // namespace

Result<LineSource> LineSource::open(const std::string& path, std::size_t line_bytes_max) {
  if (path == "-") return LineSource(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0), line_bytes_max);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const Code code = errno == ENOENT ? Code::kNotFound : Code::kIo;
    return fail(code, "{}: {}", path, std::strerror(errno));
  }
  struct stat about{};
  if (fstat(fd, &about) == 0 && S_ISDIR(about.st_mode)) {
    close(fd);
    return fail(Code::kIo, "{}: is a folder", path);
  }
  return LineSource(fd, line_bytes_max);
}

LineSource::LineSource(LineSource&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      line_bytes_max_(other.line_bytes_max_),
      buffer_(std::move(other.buffer_)),
      begin_(other.begin_),
      searched_(other.searched_),
      number_(other.number_),
      is_closed_(other.is_closed_),
      is_passing_over_(other.is_passing_over_) {}

LineSource::~LineSource() {
  if (fd_ >= 0) close(fd_);
}

// Gives out what is before `end`, where its line's end stands (or the text's).
SourceLine LineSource::cut(std::size_t end) {
  SourceLine line;
  line.number = ++number_;
  line.is_too_long = std::exchange(is_passing_over_, false) || end - begin_ > line_bytes_max_;
  if (!line.is_too_long) line.text = buffer_.substr(begin_, end - begin_);
  begin_ = std::min(end + 1, buffer_.size());
  searched_ = begin_;
  return line;
}

std::optional<SourceLine> LineSource::next() {
  const std::size_t end = buffer_.find('\n', searched_);
  if (end != std::string::npos) return cut(end);
  searched_ = buffer_.size();
  if (is_closed_ && begin_ < buffer_.size()) return cut(buffer_.size());
  return std::nullopt;
}

Result<bool> LineSource::fill() {
  if (is_closed_) return false;
  pollfd wanted{fd_, POLLIN, 0};
  if (poll(&wanted, 1, 0) <= 0) return false;
  std::array<char, kReadBytes> part;
  const ssize_t got = read(fd_, part.data(), part.size());
  if (got < 0) {
    if (errno == EINTR || errno == EAGAIN) return false;
    return fail(Code::kIo, "cannot read the input: {}", std::strerror(errno));
  }
  if (got == 0) {
    is_closed_ = true;
    return true;
  }
  buffer_.erase(0, std::exchange(begin_, 0));
  searched_ = buffer_.size();
  if (searched_ > line_bytes_max_) {  // of a line that is too long only its being there counts
    is_passing_over_ = true;
    buffer_.assign(1, ' ');
    searched_ = 1;
  }
  buffer_.append(part.data(), static_cast<std::size_t>(got));
  return true;
}

std::optional<std::int64_t> LineSource::line_count() const {
  struct stat about{};
  if (fstat(fd_, &about) != 0 || !S_ISREG(about.st_mode)) return std::nullopt;
  std::array<char, kReadBytes> part;
  std::int64_t lines = 0;
  off_t at = 0;
  char last = '\n';
  for (ssize_t got = 0; (got = pread(fd_, part.data(), part.size(), at)) > 0; at += got) {
    lines += std::count(part.data(), part.data() + got, '\n');
    last = part[static_cast<std::size_t>(got) - 1];
  }
  return lines + (last == '\n' ? 0 : 1);
}

}  // namespace artery::cli
