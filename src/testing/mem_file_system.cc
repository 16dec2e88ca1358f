#include "testing/mem_file_system.h"

#include <utility>

namespace artery::testing {
namespace {

class MemMappedFile final : public MappedFile {
 public:
  MemMappedFile(std::shared_ptr<const std::string> bytes, const FileStamp& stamp)
      : bytes_(std::move(bytes)), stamp_(stamp) {}
  std::span<const std::byte> bytes() const override {
    return std::as_bytes(std::span<const char>(bytes_->data(), bytes_->size()));
  }
  const FileStamp& stamp() const override { return stamp_; }

 private:
  std::shared_ptr<const std::string> bytes_;
  FileStamp stamp_;
};

}  // namespace

void MemFileSystem::add(const std::string& path, std::string bytes) {
  ++inodes_;
  const auto ticks = static_cast<std::int64_t>(inodes_);
  const FileStamp stamp{1, inodes_, bytes.size(), ticks, ticks};
  files_[path] = Entry{std::make_shared<const std::string>(std::move(bytes)), stamp};
}

void MemFileSystem::fail_open(const std::string& path, Error error) {
  faults_[path] = std::move(error);
}

void MemFileSystem::cut(const std::string& path, std::size_t bytes) {
  const auto at = files_.find(path);
  if (at != files_.end()) add(path, at->second.bytes->substr(0, bytes));
}

Result<const MemFileSystem::Entry*> MemFileSystem::find(const std::string& path) const {
  const auto fault = faults_.find(path);
  if (fault != faults_.end()) return tl::unexpected<Error>(fault->second);
  const auto at = files_.find(path);
  if (at == files_.end()) return fail(Code::kNotFound, "{}: No such file or directory", path);
  return &at->second;
}

Result<std::unique_ptr<MappedFile>> MemFileSystem::map(const std::string& path) const {
  const Entry& entry = *TRY(find(path));
  return std::make_unique<MemMappedFile>(entry.bytes, entry.stamp);
}

Result<std::string> MemFileSystem::read(const std::string& path, std::size_t bytes_max) const {
  const Entry& entry = *TRY(find(path));
  if (entry.bytes->size() > bytes_max)
    return fail(Code::kTooLarge, "{}: larger than {} bytes", path, bytes_max);
  return *entry.bytes;
}

Result<std::vector<std::string>> MemFileSystem::list(const std::string& folder) const {
  if (files_.contains(folder)) return fail(Code::kInvalidArgument, "{}: Not a directory", folder);
  std::vector<std::string> names;
  bool exists = false;
  for (const auto& [path, entry] : files_) {
    if (!path.starts_with(folder + "/")) continue;
    exists = true;
    const std::string rest = path.substr(folder.size() + 1);
    if (rest.find('/') == std::string::npos) names.push_back(rest);
  }
  if (!exists) return fail(Code::kNotFound, "{}: No such file or directory", folder);
  return names;
}

}  // namespace artery::testing
