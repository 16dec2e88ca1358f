#include "cli/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "cli/batch_line.h"

namespace artery::cli {
namespace {

constexpr mode_t kMode = 0644;

tl::unexpected<Error> system_error(const std::string& path) {
  const Code code = errno == ENOSPC || errno == EDQUOT ? Code::kOutOfMemory : Code::kIo;
  return fail(code, "{}: {}", path, std::strerror(errno));
}

bool is_regular(int fd) {
  struct stat about{};
  return fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
}

}  // namespace

BatchOutput::BatchOutput(BatchOutput&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      answered_(std::move(other.answered_)) {}

BatchOutput::~BatchOutput() {
  if (fd_ >= 0) close(fd_);
}

Result<BatchOutput> BatchOutput::open(const std::string& path, bool begin_anew) {
  if (path == "-") {
    return BatchOutput(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0), "standard output");
  }
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kMode);
  if (fd < 0) return system_error(path);
  BatchOutput output(fd, path);
  if (!is_regular(fd)) return output;
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return fail(Code::kUnavailable, "{}: another process writes it; wait for it to end", path);
  }
  if (begin_anew) {
    if (ftruncate(fd, 0) != 0) return system_error(path);
  } else {
    TRY(output.recall());
  }
  return output;
}

Result<> BatchOutput::each_kept(const std::function<Result<>(const std::string&)>& use) {
  std::ifstream in(path_, std::ios::binary);
  std::int64_t number = 0;
  answered_.clear();
  has_waste_ = false;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (in.eof()) {  // without its end: the run was killed while it wrote
      has_waste_ = true;
      break;
    }
    const auto record = read_batch_record(line);
    if (!record) {
      return fail(
          Code::kBadFile,
          "{}: line {} is no answer of a batch, so this file is left alone; give another "
          "--output-file, or --overwrite",
          path_,
          number
      );
    }
    if (record->is_answered && answered_.insert(record->custom_id).second) {
      TRY(use(line));
    } else {
      has_waste_ = true;
    }
  }
  return {};
}

Result<> BatchOutput::recall() {
  TRY(each_kept([](const std::string&) -> Result<> { return {}; }));
  if (!has_waste_) return {};
  // Beside it and then in its place, so that a crash here loses nothing.
  const std::string place = std::filesystem::canonical(path_).string();
  const std::string beside = place + ".tmp";
  const int fd = ::open(beside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, kMode);
  if (fd < 0) return system_error(beside);
  const BatchOutput old(std::exchange(fd_, fd), path_);  // locked until the new one is there
  TRY(each_kept([this](const std::string& line) { return write(line); }));
  TRY(sync());
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 || std::rename(beside.c_str(), place.c_str()) != 0) {
    return system_error(path_);
  }
  return {};
}

Result<> BatchOutput::write(std::string line) {
  line += '\n';
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t wrote = ::write(fd_, rest.data(), rest.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return system_error(path_);
    rest.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return {};
}

Result<> BatchOutput::sync() {
  if (is_regular(fd_) && fdatasync(fd_) != 0) return system_error(path_);
  return {};
}

}  // namespace artery::cli
