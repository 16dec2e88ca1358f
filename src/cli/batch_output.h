#pragma once
// The output file of a batch, which is also its memory: a run that was stopped goes on where its
// file ends. One thread; one process a file at a time.

#include <functional>
#include <string>
#include <unordered_set>

#include "base/result.h"

namespace artery::cli {

class BatchOutput {
 public:
  // "-": standard output. A regular file that is there already is read: what it has of requests
  // that were served stays, lines that failed and half a line at the end go (nothing else does: a
  // file that is no batch's output is kBadFile), unless `begin_anew`. kUnavailable: another process
  // writes it. kIo.
  static Result<BatchOutput> open(const std::string& path, bool begin_anew);
  BatchOutput(BatchOutput&& other) noexcept;
  BatchOutput& operator=(BatchOutput&&) = delete;
  ~BatchOutput();

  bool is_answered(const std::string& custom_id) const { return answered_.contains(custom_id); }
  // A line without its end. kIo, kOutOfMemory for a full disk.
  Result<> write(std::string line);
  // What was written lasts. kIo, kOutOfMemory.
  Result<> sync();

 private:
  BatchOutput(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  Result<> recall();
  // Reads the file; sets answered_ and has_waste_.
  Result<> each_kept(const std::function<Result<>(const std::string& line)>& use);

  int fd_;
  std::string path_;
  std::unordered_set<std::string> answered_;
  bool has_waste_ = false;  // lines that go
};

}  // namespace artery::cli
