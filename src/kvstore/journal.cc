#include "kvstore/journal.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kvstore/segment_file.h"

namespace artery::kvstore {

namespace {
constexpr std::int64_t kEverywhere = std::numeric_limits<std::int64_t>::max();
}

Result<std::unique_ptr<Journal>> Journal::create(
    const std::string& folder, FileSystem& files, const JournalHeader& header, std::int64_t bytes
) {
  std::string path = folder + "/" + journal_name(header.journal);
  std::shared_ptr<BlockFile> file = TRY(files.open_blocks(path, OpenMode::kCreate));
  std::unique_ptr<Journal> journal(new Journal(std::move(path), header.journal, file));
  journal->bytes_ = std::max(bytes, 2 * kBlock);
  const AlignedBytes block(kBlock);
  encode_journal_header(header, block.span());
  Result<> made = file->reserve(journal->bytes_);
  if (!made && made.error().code == Code::kUnsupported) made = {};
  if (made) made = write_all(*file, 0, block.span(), journal->path_);
  if (made) made = files.sync_folder(folder);
  if (!made) {
    (void)files.remove_file(journal->path_);
    return tl::unexpected<Error>(made.error());
  }
  return journal;
}

Result<std::unique_ptr<Journal>> Journal::resume(
    const std::string& folder,
    FileSystem& files,
    std::uint64_t number,
    std::int64_t end,
    std::uint64_t sequence
) {
  std::string path = folder + "/" + journal_name(number);
  std::shared_ptr<BlockFile> file = TRY(files.open_blocks(path, OpenMode::kWrite));
  std::unique_ptr<Journal> journal(new Journal(std::move(path), number, std::move(file)));
  journal->bytes_ = std::max(TRY(journal->file_->size()), end);
  journal->end_ = end;
  journal->sequence_ = sequence;
  return journal;
}

bool Journal::fits(std::size_t entries) const {
  return end_ + batch_bytes(static_cast<std::int64_t>(entries)) <= bytes_;
}

Journal::Chunk Journal::encode(std::span<const IndexEntry> entries, std::int64_t now_s) const {
  const Batch batch{
      .journal = number_,
      .sequence = sequence_ + 1,
      .time_s = now_s,
      .entries = {entries.begin(), entries.end()},
  };
  Chunk chunk{.offset = end_, .bytes = nullptr};
  chunk.bytes =
      std::make_shared<AlignedBytes>(batch_bytes(static_cast<std::int64_t>(entries.size())));
  encode_batch(batch, chunk.bytes->span());
  return chunk;
}

void Journal::appended(const Chunk& chunk) {
  end_ = chunk.offset + static_cast<std::int64_t>(chunk.bytes->span().size());
  bytes_ = std::max(bytes_, end_);
  ++sequence_;
}

Result<> Journal::append(std::span<const IndexEntry> entries, std::int64_t now_s) {
  while (!entries.empty()) {
    const auto count = std::min(entries.size(), static_cast<std::size_t>(kBatchEntriesMax));
    const Chunk chunk = encode(entries.first(count), now_s);
    TRY(write_all(*file_, chunk.offset, chunk.bytes->span(), path_));
    appended(chunk);
    entries = entries.subspan(count);
  }
  return {};
}

ChainKey Replay::half(const ChainKey& key) {
  ChainKey out{};
  std::copy_n(key.begin(), key.size() / 2, out.begin());
  return out;
}

void Replay::apply(const IndexEntry& entry) {
  const ChainKey key = half(entry.key);
  next_segment = std::max(next_segment, entry.place.segment + 1);
  switch (entry.kind) {
    case EntryKind::kPut: {
      OfSegment& segment = segments[entry.place.segment];
      dropped.erase(entry.place.segment);
      segment.puts[key] = entry;
      segment.erased.erase(key);
      segment.end = std::max(segment.end, entry.place.offset + entry.place.bytes);
      uses.erase(key);  // a put says all of it
      break;
    }
    case EntryKind::kTouch: {
      Uses& now = uses[key];
      now.ttl = std::max(now.ttl, entry.ttl);
      now.uses = std::max(now.uses, entry.uses);
      now.last_use_s = std::max(now.last_use_s, entry.last_use_s);
      break;
    }
    case EntryKind::kGuarantee: {
      std::int64_t& until = uses[key].guaranteed_until_s;
      until = std::max(until, entry.guaranteed_until_s);
      break;
    }
    case EntryKind::kErase: {
      // A key may lie in a segment twice: the later one was put after the first was given up, and
      // stands before that in the journal where both came in one round.
      OfSegment& segment = segments[entry.place.segment];
      const std::int64_t upto = entry.place.offset > 0 ? entry.place.offset : kEverywhere;
      if (const auto put = segment.puts.find(key);
          put != segment.puts.end() && put->second.place.offset <= upto) {
        segment.puts.erase(put);
      }
      std::int64_t& gone = segment.erased[key];
      gone = std::max(gone, upto);
      break;
    }
    case EntryKind::kDropSegment:
      segments.erase(entry.place.segment);
      dropped.insert(entry.place.segment);
      break;
    case EntryKind::kSeal: {
      OfSegment& segment = segments[entry.place.segment];
      segment.is_sealed = true;
      segment.end = std::max(segment.end, entry.place.offset);
      break;
    }
  }
}

void Replay::raise(IndexEntry& entry) const {
  const auto at = uses.find(half(entry.key));
  if (at == uses.end()) return;
  const Uses& now = at->second;
  entry.ttl = std::max(entry.ttl, now.ttl);
  entry.uses = std::max(entry.uses, now.uses);
  entry.last_use_s = std::max(entry.last_use_s, now.last_use_s);
  entry.guaranteed_until_s = std::max(entry.guaranteed_until_s, now.guaranteed_until_s);
}

namespace {

bool all_zeros(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

// Batches from replay.end on, as far as `bytes` (from the file's begin) go.
void replay_batches(
    std::span<const std::byte> bytes, std::uint64_t number, std::string_view where, Replay& replay
) {
  while (true) {
    const auto rest = bytes.subspan(static_cast<std::size_t>(replay.end));
    const Result<Batch> batch = decode_batch(rest, number, replay.sequence + 1, where);
    if (!batch) return;
    for (const IndexEntry& entry : batch->entries) replay.apply(entry);
    replay.entries += static_cast<std::int64_t>(batch->entries.size());
    replay.end += batch->bytes;
    ++replay.sequence;
  }
}

}  // namespace

Result<Replay> replay_journal(BlockFile& file, std::uint64_t number, std::string_view where) {
  // Most of it is reserved and never written: read on only while batches come.
  const std::int64_t size = TRY(file.size()) / kBlock * kBlock;
  std::int64_t want = std::min<std::int64_t>(size, 1 << 20);
  AlignedBytes bytes(want);
  std::int64_t have = TRY(read_all(file, 0, bytes.span(), where));
  if (have < kBlock) return fail(Code::kBadFile, "{}: {} bytes are no journal", where, have);
  const JournalHeader header = TRY(decode_journal_header(bytes.first(kBlock), where));
  if (header.journal != number) {
    return fail(Code::kBadFile, "{}: it is journal {} by its first block", where, header.journal);
  }
  Replay replay;
  while (true) {
    replay_batches(bytes.first(have), number, where, replay);
    const std::int64_t need = std::min(size, replay.end + batch_bytes(kBatchEntriesMax));
    const bool ends = have < want || have >= need;
    const auto rest = bytes.first(have).subspan(static_cast<std::size_t>(replay.end));
    if (ends || all_zeros(rest)) {
      replay.is_torn = !all_zeros(rest.first(std::min<std::size_t>(rest.size(), kBlock)));
      return replay;
    }
    want = std::min(size, std::max(need, 2 * have));
    AlignedBytes longer(want);
    std::ranges::copy(bytes.first(have), longer.span().begin());
    const auto missing = longer.span().subspan(static_cast<std::size_t>(have));
    bytes = std::move(longer);
    have += TRY(read_all(file, have, missing, where));
  }
}

}  // namespace artery::kvstore
