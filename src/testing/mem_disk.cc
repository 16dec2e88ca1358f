#include "testing/mem_disk.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace artery::testing {
namespace {

using Block = MemFile::Block;
using BlockPtr = MemFile::BlockPtr;

Block bytes_of(const BlockPtr& block) { return block ? *block : Block{}; }

BlockPtr torn(const BlockPtr& before, const BlockPtr& after, bool first_half_is_new) {
  Block mixed = bytes_of(before);
  const Block fresh = bytes_of(after);
  constexpr std::size_t kHalf = static_cast<std::size_t>(kDiskBlock) / 2;
  const std::size_t at = first_half_is_new ? 0 : kHalf;
  std::memcpy(mixed.data() + at, fresh.data() + at, kHalf);
  return std::make_shared<const Block>(mixed);
}

// One of the versions, or a block that was half way from one to the next.
BlockPtr some_version(std::span<const BlockPtr> versions, SeqRandom& random) {
  const std::size_t at = random.next() % versions.size();
  if (at == 0 || !random.chance(1.0 / 3)) return versions[at];
  return torn(versions[at - 1], versions[at], random.chance(0.5));
}

}  // namespace

std::string folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? std::string_view() : path.substr(0, slash));
}

std::int64_t MemFile::disk_bytes() const {
  return static_cast<std::int64_t>(blocks_.size() + reserved_.size()) * kDiskBlock;
}

std::int64_t MemFile::fresh_blocks(std::int64_t offset, std::int64_t bytes) const {
  std::int64_t count = 0;
  for (std::int64_t index = offset / kDiskBlock; index * kDiskBlock < offset + bytes; ++index)
    count += blocks_.contains(index) || reserved_.contains(index) ? 0 : 1;
  return count;
}

BlockPtr MemFile::block(std::int64_t index) const {
  const auto at = blocks_.find(index);
  return at == blocks_.end() ? nullptr : at->second;
}

void MemFile::put(std::int64_t index, BlockPtr block, bool in_flight) {
  Change& change = dirty_[index];
  if (change.versions.empty()) change.versions.push_back(this->block(index));
  change.versions.push_back(block);
  change.in_flight |= in_flight;
  reserved_.erase(index);
  if (block == nullptr) {
    blocks_.erase(index);
  } else {
    blocks_[index] = std::move(block);
  }
  ++changes_;
}

void MemFile::resize(std::int64_t bytes, bool in_flight) {
  if (bytes == size()) return;
  sizes_.push_back(bytes);
  size_in_flight_ |= in_flight;
  ++changes_;
}

std::int64_t MemFile::read(std::int64_t offset, std::span<std::byte> into) const {
  const std::int64_t end = std::min(size(), offset + static_cast<std::int64_t>(into.size()));
  for (std::int64_t at = offset; at < end;) {
    const std::int64_t within = at % kDiskBlock;
    const std::int64_t count = std::min(kDiskBlock - within, end - at);
    const BlockPtr from = block(at / kDiskBlock);
    std::byte* to = into.data() + (at - offset);
    if (from == nullptr) {
      std::memset(to, 0, static_cast<std::size_t>(count));
    } else {
      std::memcpy(to, from->data() + within, static_cast<std::size_t>(count));
    }
    at += count;
  }
  return std::max<std::int64_t>(end - offset, 0);
}

std::string MemFile::text() const {
  std::string out(static_cast<std::size_t>(size()), '\0');
  read(0, std::as_writable_bytes(std::span(out)));
  return out;
}

void MemFile::write(std::int64_t offset, std::span<const std::byte> from, bool in_flight) {
  const std::int64_t end = offset + static_cast<std::int64_t>(from.size());
  for (std::int64_t at = offset; at < end;) {
    const std::int64_t within = at % kDiskBlock;
    const std::int64_t count = std::min(kDiskBlock - within, end - at);
    auto next = std::make_shared<Block>(bytes_of(block(at / kDiskBlock)));
    std::memcpy(
        next->data() + within, from.data() + (at - offset), static_cast<std::size_t>(count)
    );
    put(at / kDiskBlock, std::move(next), in_flight);
    at += count;
  }
  if (end > size()) resize(end, in_flight);
}

void MemFile::reserve(std::int64_t bytes, bool in_flight) {
  for (std::int64_t index = 0; index * kDiskBlock < bytes; ++index) {
    if (!blocks_.contains(index)) reserved_.insert(index);
  }
  if (bytes > size()) resize(bytes, in_flight);
}

void MemFile::truncate(std::int64_t bytes, bool in_flight) {
  std::vector<std::int64_t> beyond;
  for (auto at = blocks_.lower_bound((bytes + kDiskBlock - 1) / kDiskBlock); at != blocks_.end();
       ++at)
    beyond.push_back(at->first);
  for (const std::int64_t index : beyond) put(index, nullptr, in_flight);
  reserved_.erase(reserved_.lower_bound(bytes / kDiskBlock), reserved_.end());
  if (const BlockPtr last = block(bytes / kDiskBlock); last != nullptr) {
    auto cut = std::make_shared<Block>(*last);
    std::fill(cut->begin() + bytes % kDiskBlock, cut->end(), std::byte{0});
    put(bytes / kDiskBlock, std::move(cut), in_flight);
  }
  resize(bytes, in_flight);
}

void MemFile::punch(std::int64_t offset, std::int64_t bytes, bool in_flight) {
  for (std::int64_t index = offset / kDiskBlock; index * kDiskBlock < offset + bytes; ++index) {
    if (blocks_.contains(index)) put(index, nullptr, in_flight);
    reserved_.erase(index);
  }
}

void MemFile::sync() {
  dirty_.clear();
  sizes_ = {sizes_.back()};
  size_in_flight_ = false;
}

std::shared_ptr<MemFile> MemFile::after_crash(Crash crash, SeqRandom& random) const {
  auto out = std::make_shared<MemFile>(inode_);
  out->blocks_ = blocks_;
  out->reserved_ = reserved_;
  out->sizes_ = {sizes_.back()};
  for (const auto& [index, change] : dirty_) {
    std::span<const BlockPtr> versions = change.versions;
    if (crash == Crash::kProcess) {
      if (!change.in_flight) continue;
      versions = versions.last(std::min<std::size_t>(versions.size(), 2));
    }
    BlockPtr kept = some_version(versions, random);
    if (kept == nullptr) {
      out->blocks_.erase(index);
    } else {
      out->blocks_[index] = std::move(kept);
    }
  }
  std::span<const std::int64_t> sizes = sizes_;
  if (crash == Crash::kProcess) sizes = sizes.last(size_in_flight_ ? 2 : 1);
  const std::int64_t bytes = sizes[random.next() % sizes.size()];
  out->truncate(bytes);  // the blocks beyond it are gone with it
  out->sync();
  return out;
}

MemDisk::FilePtr MemDisk::find(const std::string& path) const {
  const auto at = names_.find(path);
  return at == names_.end() ? nullptr : at->second;
}

void MemDisk::change(NameChange name) {
  if (name.file == nullptr) {
    names_.erase(name.path);
  } else {
    names_[name.path] = name.file;
  }
  pending_.push_back(std::move(name));
}

MemDisk::FilePtr MemDisk::create(const std::string& path, bool in_flight) {
  auto file = std::make_shared<MemFile>(++inodes_);
  change({path, file, in_flight, false});
  return file;
}

void MemDisk::remove(const std::string& path, bool in_flight) {
  change({path, nullptr, in_flight, false});
}

void MemDisk::rename(const std::string& from, const std::string& to, bool in_flight) {
  const FilePtr file = find(from);
  change({from, nullptr, in_flight, true});
  change({to, file, in_flight, false});
}

void MemDisk::make_folder(const std::string& path) {
  for (std::string at = path; !at.empty(); at = folder_of(at)) folders_.insert(at);
}

bool MemDisk::has_folder(const std::string& path) const {
  if (folders_.contains(path)) return true;
  const auto at = names_.lower_bound(path + "/");
  return at != names_.end() && at->first.starts_with(path + "/");
}

void MemDisk::sync_folder(const std::string& path) {
  for (const NameChange& name : pending_) {
    if (folder_of(name.path) != path) continue;
    if (name.file == nullptr) {
      synced_.erase(name.path);
    } else {
      synced_[name.path] = name.file;
    }
  }
  std::erase_if(pending_, [&](const NameChange& name) { return folder_of(name.path) == path; });
}

void MemDisk::sync_all() {
  for (const auto& [path, file] : names_) file->sync();
  pending_.clear();
  synced_ = names_;
}

std::int64_t MemDisk::disk_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [path, file] : names_) bytes += file->disk_bytes();
  return bytes;
}

MemDisk MemDisk::after_crash(Crash crash, std::uint64_t seed) const {
  SeqRandom random(seed);
  std::map<std::string, FilePtr> names = synced_;
  bool keep = true;
  bool is_same_change = false;
  for (const NameChange& name : pending_) {
    const bool is_open = crash == Crash::kPower || name.in_flight;
    if (!is_same_change) keep = !is_open || random.chance(0.5);
    is_same_change = name.goes_with_next;
    if (!keep) continue;
    if (name.file == nullptr) {
      names.erase(name.path);
    } else {
      names[name.path] = name.file;
    }
  }
  MemDisk out;
  out.folders_ = folders_;
  out.inodes_ = inodes_;
  std::map<const MemFile*, FilePtr> copies;  // a lost rename leaves one file under two names
  for (const auto& [path, file] : names) {
    FilePtr& copy = copies[file.get()];
    if (copy == nullptr) copy = file->after_crash(crash, random);
    out.names_[path] = copy;
  }
  out.synced_ = out.names_;
  return out;
}

}  // namespace artery::testing
