#include "kvstore/spaces.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/check.h"
#include "kvstore/flat_json.h"
#include "kvstore/record_format.h"

namespace artery::kvstore {
namespace {

constexpr std::size_t kFileBytesMax = 256u << 20;
constexpr std::size_t kBlockBytes = 4096;
constexpr std::int64_t kPageBytesMax = std::int64_t{1} << 40;
constexpr int kRecordPagesMax = 1 << 16;

struct alignas(kBlockBytes) Block {
  std::array<std::byte, kBlockBytes> bytes;
};

std::optional<SpaceSpec> parse_space(std::string_view line) {
  const std::optional<FlatJson> object = FlatJson::parse(line);
  if (!object) return std::nullopt;
  const std::string* identity = object->text("identity");
  const std::string* tenant = object->text("tenant");
  const std::string* model = object->text("model");
  const std::int64_t* page_bytes = object->number("page_bytes");
  const std::int64_t* record_pages = object->number("record_pages");
  if (identity == nullptr || tenant == nullptr || model == nullptr || page_bytes == nullptr ||
      record_pages == nullptr || *page_bytes <= 0 || *page_bytes > kPageBytesMax ||
      *record_pages <= 0 || *record_pages > kRecordPagesMax)
    return std::nullopt;
  SpaceSpec spec{*identity, *tenant, *model, *page_bytes, static_cast<int>(*record_pages)};
  if (space_line(spec) != line) return std::nullopt;  // digest and sum are in it
  return spec;
}

std::size_t whole_blocks(std::size_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

}  // namespace

std::string space_line(const SpaceSpec& spec) {
  FlatJson object;
  object.add("digest", hex(space_digest(spec.identity, spec.tenant)))
      .add("tenant", spec.tenant)
      .add("model", spec.model)
      .add("page_bytes", spec.page_bytes)
      .add("record_pages", std::int64_t{spec.record_pages})
      .add("identity", spec.identity);
  const std::string bare = object.line();
  const Digest sum = sha256(std::as_bytes(std::span(bare)));
  return object.add("sum", hex(std::span(sum).first(8))).line();
}

std::vector<SpaceSpec> parse_spaces(std::string_view text, int& damaged) {
  std::vector<SpaceSpec> specs;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty()) continue;
    if (std::optional<SpaceSpec> spec = parse_space(line))
      specs.push_back(std::move(*spec));
    else
      ++damaged;
  }
  return specs;
}

Result<std::unique_ptr<Spaces>> Spaces::open(const std::string& folder, FileSystem& files) {
  std::unique_ptr<Spaces> spaces(new Spaces(folder + "/spaces.json", files));
  const Result<std::string> text = files.read(spaces->path_, kFileBytesMax);
  if (text)
    spaces->read(*text);
  else if (text.error().code != Code::kNotFound)
    return tl::unexpected<Error>(text.error());
  return spaces;
}

void Spaces::read(std::string_view text) {
  exists_ = true;
  must_rewrite_ = text.size() % kBlockBytes != 0;
  {
    MutexLock lock(mutex_);
    for (const SpaceSpec& spec : parse_spaces(text, damaged_lines_)) add_locked(spec, true);
  }
  const std::size_t last = text.find_last_not_of('\n');
  if (last == text.npos || must_rewrite_) return;
  std::string lines(text.substr(0, last + 1));
  lines += '\n';  // there unless the last block is full to the brim
  const std::size_t full = lines.size() / kBlockBytes * kBlockBytes;
  full_bytes_ = static_cast<std::int64_t>(full);
  tail_ = lines.substr(full);
}

SpaceId Spaces::add_locked(const SpaceSpec& spec, bool saved) {
  const Digest digest = space_digest(spec.identity, spec.tenant);
  const auto [at, is_new] = ids_.try_emplace(digest, static_cast<SpaceId>(items_.size()));
  if (is_new) {
    items_.push_back({spec, digest, saved});
    return at->second;
  }
  Item& item = items_[static_cast<std::size_t>(at->second)];
  const bool same =
      item.spec.page_bytes == spec.page_bytes && item.spec.record_pages == spec.record_pages;
  // The later one counts, also of two lines in the file.
  if (!same) item = {spec, digest, saved};
  return at->second;
}

SpaceId Spaces::add(const SpaceSpec& spec) {
  MutexLock lock(mutex_);
  return add_locked(spec, false);
}

std::optional<SpaceId> Spaces::find(const Digest& digest) const {
  MutexLock lock(mutex_);
  const auto at = ids_.find(digest);
  return at == ids_.end() ? std::nullopt : std::optional(at->second);
}

int Spaces::count() const {
  MutexLock lock(mutex_);
  return static_cast<int>(items_.size());
}

SpaceSpec Spaces::spec(SpaceId space) const {
  MutexLock lock(mutex_);
  return items_.at(static_cast<std::size_t>(space)).spec;
}

Digest Spaces::digest(SpaceId space) const {
  MutexLock lock(mutex_);
  return items_.at(static_cast<std::size_t>(space)).digest;
}

Result<> Spaces::save(SpaceId space) {
  std::string line;
  {
    MutexLock lock(mutex_);
    Item& item = items_.at(static_cast<std::size_t>(space));
    if (item.saved) return {};
    line = space_line(item.spec);
    if (must_rewrite_) item.saved = true;
  }
  const Result<> written = must_rewrite_ ? rewrite() : append(line);
  MutexLock lock(mutex_);
  items_[static_cast<std::size_t>(space)].saved = written.has_value();
  return written;
}

Result<> Spaces::drop_tenant(std::string_view tenant) {
  bool any = false;
  {
    MutexLock lock(mutex_);
    for (Item& item : items_) {
      if (item.spec.tenant != tenant || !item.saved) continue;
      item.saved = false;
      any = true;
    }
  }
  if (!any) return {};
  must_rewrite_ = true;  // until it has been done
  return rewrite();
}

Result<> Spaces::append(std::string_view line) {
  if (file_ == nullptr) {
    file_ = TRY(files_->open_blocks(path_, exists_ ? OpenMode::kWrite : OpenMode::kCreate));
    if (!exists_) TRY(files_->sync_folder(path_.substr(0, path_.rfind('/'))));
    exists_ = true;
  }
  std::string text = tail_;
  text += line;
  text += '\n';
  std::vector<Block> blocks(whole_blocks(text.size()) / kBlockBytes);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(blocks));
  std::memset(bytes.data(), '\n', bytes.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  for (std::size_t done = 0; done < bytes.size();) {
    const std::int64_t put =
        file_->write_at(full_bytes_ + static_cast<std::int64_t>(done), bytes.subspan(done));
    if (put <= 0 || put % static_cast<std::int64_t>(kBlockBytes) != 0) {
      const int code = put < 0 ? static_cast<int>(-put) : EIO;
      return fail(
          Code::kIo, "{}: {}", path_, std::error_code(code, std::generic_category()).message()
      );
    }
    done += static_cast<std::size_t>(put);
  }
  TRY(file_->sync());
  const std::size_t full = text.size() / kBlockBytes * kBlockBytes;
  full_bytes_ += static_cast<std::int64_t>(full);
  tail_ = text.substr(full);
  return {};
}

Result<> Spaces::rewrite() {
  std::string text;
  {
    MutexLock lock(mutex_);
    for (const Item& item : items_)
      if (item.saved) text += space_line(item.spec) + "\n";
  }
  const std::size_t full = text.size() / kBlockBytes * kBlockBytes;
  std::string padded = text;
  padded.resize(whole_blocks(text.size()), '\n');
  TRY(files_->replace(path_, padded));
  TRY(files_->sync_folder(path_.substr(0, path_.rfind('/'))));
  file_ = nullptr;  // it was of the old file
  exists_ = true;
  must_rewrite_ = false;
  full_bytes_ = static_cast<std::int64_t>(full);
  tail_ = text.substr(full);
  return {};
}

}  // namespace artery::kvstore
