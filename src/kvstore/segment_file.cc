#include "kvstore/segment_file.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "kvstore/slot_pool.h"

namespace artery::kvstore {

tl::unexpected<Error> io_failure(int code, std::string_view where, std::string_view verb) {
  const std::string text = std::error_code(code, std::generic_category()).message();
  const Code kind = code == ENOSPC || code == EDQUOT ? Code::kOutOfMemory
                    : code == EROFS                  ? Code::kUnavailable
                                                     : Code::kIo;
  return fail(kind, "{}: cannot {}: {}", where, verb, text);
}

Result<> write_all(
    BlockFile& file, std::int64_t offset, std::span<const std::byte> bytes, std::string_view where
) {
  for (int idle = 0; !bytes.empty();) {
    const std::int64_t put = file.write_at(offset, bytes);
    if (put < 0 && put != -EINTR) return io_failure(static_cast<int>(-put), where, "write");
    const std::int64_t whole = put < 0 ? 0 : put - put % kBlock;
    if (whole == 0 && ++idle == 3) return io_failure(EIO, where, "write");
    offset += whole;
    bytes = bytes.subspan(static_cast<std::size_t>(whole));
  }
  return {};
}

Result<std::int64_t> read_all(
    BlockFile& file, std::int64_t offset, std::span<std::byte> into, std::string_view where
) {
  std::int64_t done = 0;
  const auto size = static_cast<std::int64_t>(into.size());
  for (int idle = 0; done < size;) {
    const std::int64_t got =
        file.read_at(offset + done, into.subspan(static_cast<std::size_t>(done)));
    if (got < 0 && got != -EINTR) return io_failure(static_cast<int>(-got), where, "read");
    if (got == 0) break;
    const std::int64_t whole = got < 0 ? 0 : got - got % kBlock;
    if (whole == 0 && ++idle == 2) break;  // less than a block is left
    done += whole;
  }
  return done;
}

void keep_live(const std::vector<Entry>& live, std::vector<IndexEntry>& puts) {
  std::ranges::sort(puts, {}, [](const IndexEntry& entry) { return entry.place.offset; });
  std::vector<IndexEntry> out;
  auto at = live.begin();
  for (IndexEntry& put : puts) {
    while (at != live.end() && at->place.offset < put.place.offset) ++at;
    if (at == live.end()) break;
    if (at->place.offset != put.place.offset || at->place.bytes != put.place.bytes) continue;
    put.ttl = at->facts.ttl;
    put.uses = at->uses;
    put.last_use_s = at->last_use_s;
    put.guaranteed_until_s = at->facts.guaranteed_until_s;
    out.push_back(put);
  }
  puts = std::move(out);
}

Result<SegmentFile*> SegmentTable::create(const SegmentHeader& header) {
  CHECK(!segments_.contains(header.segment), "segment {} is there", header.segment);
  const std::string where = path(header.segment);
  std::shared_ptr<BlockFile> file = TRY(files_.open_blocks(where, OpenMode::kCreate));
  const AlignedBytes block(kBlock);
  encode_segment_header(header, block.span());
  Result<> made = file->reserve(header.bytes);
  if (!made && made.error().code == Code::kUnsupported) made = {};  // it grows as it is written
  if (made) made = write_all(*file, 0, block.span(), where);
  // Its name has to be on the disk before the journal speaks of it.
  if (made) made = files_.sync_folder(folder_);
  if (!made) {
    file.reset();
    (void)files_.remove_file(where);
    return tl::unexpected<Error>(made.error());
  }
  SegmentFile& segment = segments_[header.segment];
  segment.id = header.segment;
  segment.ttl = header.ttl;
  segment.bytes = header.bytes;
  segment.is_dirty = true;
  segment.file = std::move(file);
  segment.used = ++uses_;
  ++handles_;
  return &segment;
}

SegmentFile* SegmentTable::adopt(SegmentFile segment) {
  const SegmentId id = segment.id;
  if (segment.file != nullptr) ++handles_;
  return &segments_.insert_or_assign(id, std::move(segment)).first->second;
}

SegmentFile* SegmentTable::find(SegmentId id) {
  const auto at = segments_.find(id);
  return at == segments_.end() || at->second.is_dropped ? nullptr : &at->second;
}

Result<std::shared_ptr<BlockFile>> SegmentTable::file(SegmentFile& segment) {
  segment.used = ++uses_;
  if (segment.file != nullptr) return segment.file;
  if (!read_only_ && segment.sealed_s == 0) {
    auto opened = writable(segment);
    if (opened || opened.error().code != Code::kUnavailable) return opened;
    // A disk that is read-only now is still read; not kept, because it may change its mind.
    return std::shared_ptr<BlockFile>(TRY(files_.open_blocks(path(segment.id), OpenMode::kRead)));
  }
  if (handles_ >= kHandlesMax) close_oldest();
  segment.file = TRY(files_.open_blocks(path(segment.id), OpenMode::kRead));
  ++handles_;
  return segment.file;
}

Result<std::shared_ptr<BlockFile>> SegmentTable::writable(SegmentFile& segment) {
  segment.used = ++uses_;
  if (segment.file != nullptr) return segment.file;
  if (handles_ >= kHandlesMax) close_oldest();
  segment.file = TRY(files_.open_blocks(path(segment.id), OpenMode::kWrite));
  ++handles_;
  return segment.file;
}

// Requests under way hold the file themselves.
void SegmentTable::close_oldest() {
  SegmentFile* oldest = nullptr;
  for (auto& [id, segment] : segments_) {
    if (segment.file == nullptr || segment.sealed_s == 0 || segment.is_dirty) continue;
    if (oldest == nullptr || segment.used < oldest->used) oldest = &segment;
  }
  if (oldest == nullptr) return;
  oldest->file.reset();
  --handles_;
}

Result<> SegmentTable::remove(SegmentId id) {
  const auto at = segments_.find(id);
  if (at == segments_.end()) return {};
  const Result<> removed = files_.remove_file(path(id));
  if (!removed && removed.error().code != Code::kNotFound) return removed;
  if (at->second.file != nullptr) --handles_;
  segments_.erase(at);
  return {};
}

std::int64_t SegmentTable::bytes() const {
  std::int64_t sum = 0;
  for (const auto& [id, segment] : segments_) sum += segment.bytes;
  return sum;
}

}  // namespace artery::kvstore
