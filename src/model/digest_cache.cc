#include "model/digest_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace artery::model {
namespace {

// The entry format; another one is another name, so that old entries are never misread.
constexpr std::string_view kMark = "artery-digest-1";
constexpr std::size_t kEntryBytesMax = 1024;
constexpr std::int64_t kSettledNs = 2'000'000'000;

std::string hash_text(std::string_view text) {
  return hex(sha256(std::as_bytes(std::span(text.data(), text.size()))));
}

std::string stamp_text(const FileStamp& stamp) {
  return fmt::format(
      "device {} inode {} bytes {} mtime {} ctime {}",
      stamp.device,
      stamp.inode,
      stamp.bytes,
      stamp.mtime_ns,
      stamp.ctime_ns
  );
}

// The sum at the end tells an entry that a full disk or a hand has changed.
std::string entry_text(const FileStamp& stamp, std::string_view digest) {
  const std::string body = fmt::format("{}\n{}\n{}\n", kMark, stamp_text(stamp), digest);
  return body + hash_text(body) + "\n";
}

bool is_digest(std::string_view text) {
  return text.size() == 2 * sizeof(Digest) &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string DigestCache::path_of(const FileStamp& stamp) const {
  constexpr std::size_t kNameDigits = 32;
  return fmt::format(
      "{}/{}-{}", folder_, kMark, hash_text(stamp_text(stamp)).substr(0, kNameDigits)
  );
}

std::optional<std::string> DigestCache::find(const FileStamp& stamp) const {
  if (folder_.empty()) return std::nullopt;
  const Result<std::string> entry = fs_->read(path_of(stamp), kEntryBytesMax);
  if (!entry) return std::nullopt;
  const std::string head = fmt::format("{}\n{}\n", kMark, stamp_text(stamp));
  if (!entry->starts_with(head)) return std::nullopt;
  const std::string digest = entry->substr(head.size(), 2 * sizeof(Digest));
  if (!is_digest(digest) || *entry != entry_text(stamp, digest)) return std::nullopt;
  return digest;
}

bool DigestCache::store(const FileStamp& stamp, const std::string& digest, std::int64_t now_ns)
    const {
  if (folder_.empty() || !is_digest(digest)) return false;
  if (std::max(stamp.mtime_ns, stamp.ctime_ns) > now_ns - kSettledNs) return false;
  if (!fs_->replace(path_of(stamp), entry_text(stamp, digest))) return false;
  prune();
  return true;
}

// An entry's file may be gone, its stamp changed: nothing says which are of use any more, but that
// others came after it. Other processes may prune at the same time.
void DigestCache::prune() const {
  namespace files = std::filesystem;
  std::vector<std::pair<files::file_time_type, files::path>> entries;
  std::error_code why;
  files::directory_iterator at(folder_, why);
  for (; !why && at != files::directory_iterator(); at.increment(why)) {
    if (!at->path().filename().string().starts_with(kMark)) continue;
    std::error_code gone;
    const auto written = at->last_write_time(gone);
    if (!gone) entries.emplace_back(written, at->path());
  }
  if (entries.size() <= kEntriesMax) return;
  std::ranges::sort(entries);
  entries.resize(entries.size() - kEntriesMax);
  for (const auto& [written, path] : entries) files::remove(path, why);
}

}  // namespace artery::model
