#include "kvstore/segment_scan.h"

#include <algorithm>
#include <utility>

#include "kvstore/record_format.h"
#include "kvstore/segment_file.h"
#include "kvstore/slot_pool.h"

namespace artery::kvstore {
namespace {

constexpr std::int64_t kTailBytes = 256 << 10;  // holds trailer and footer of most segments

bool all_zeros(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

class Scanner {
 public:
  Scanner(BlockFile& file, std::int64_t size, const std::string& path, SegmentScan& out)
      : file_(file), size_(size), path_(path), out_(out) {}

  // False: no sound trailer or footer; `out_.state` is kVersion for another version's.
  bool by_footer();
  bool first_block();
  // Whole records from `from` on, payload too, up to the first that is none.
  void tail(std::int64_t from);
  // Headers at any block.
  void everywhere();

 private:
  Result<RecordHeader> header_at(std::int64_t offset, std::int64_t& bytes);
  bool is_whole(const RecordHeader& header, std::int64_t offset, std::int64_t bytes);

  BlockFile& file_;
  const std::int64_t size_;
  const std::string& path_;
  SegmentScan& out_;
  AlignedBytes block_{kBlock};
};

bool Scanner::by_footer() {
  if (size_ < 2 * kBlock || size_ % kBlock != 0) return false;
  const std::int64_t tail = std::min(size_, kTailBytes);
  AlignedBytes bytes(tail);
  const auto got = read_all(file_, size_ - tail, bytes.span(), path_);
  if (!got || *got != tail) return false;
  const auto last = bytes.span().last(static_cast<std::size_t>(kBlock));
  const auto trailer = decode_trailer(last, size_, path_);
  if (!trailer) {
    if (trailer.error().code == Code::kUnsupported) {
      out_.state = SegmentScan::State::kVersion;
      out_.trouble = trailer.error().message;
    }
    return false;
  }
  if (trailer->segment != out_.id) return false;
  const std::int64_t footer = size_ - trailer->records_end;
  if (footer > tail) {
    bytes = AlignedBytes(footer);
    const auto more = read_all(file_, trailer->records_end, bytes.span(), path_);
    if (!more || *more != footer) return false;
  }
  auto entries =
      decode_footer(*trailer, bytes.span().last(static_cast<std::size_t>(footer)), path_);
  if (!entries) {
    out_.trouble = entries.error().message;
    return false;
  }
  out_.state = SegmentScan::State::kSealed;
  out_.ttl = trailer->ttl;
  out_.epoch = trailer->epoch;
  out_.sealed_s = trailer->sealed_s;
  out_.end = trailer->records_end;
  out_.entries = entries.take();
  return true;
}

bool Scanner::first_block() {
  const auto got = read_all(file_, 0, block_.span(), path_);
  if (!got) {
    out_.state = SegmentScan::State::kLost;
    out_.trouble = got.error().message;
    return false;
  }
  if (*got < kBlock || all_zeros(block_.span())) {
    out_.state = SegmentScan::State::kEmpty;
    return false;
  }
  const auto header = decode_segment_header(block_.span(), path_);
  if (header && header->segment == out_.id) {
    out_.state = SegmentScan::State::kOpen;
    out_.ttl = header->ttl;
    out_.epoch = header->epoch;
    out_.bytes = std::max(out_.bytes, header->bytes);
    return true;
  }
  const bool is_other = !header && header.error().code == Code::kUnsupported;
  out_.state = is_other ? SegmentScan::State::kVersion : SegmentScan::State::kDamaged;
  out_.trouble =
      header ? path_ + ": it is another segment by its first block" : header.error().message;
  return false;
}

Result<RecordHeader> Scanner::header_at(std::int64_t offset, std::int64_t& bytes) {
  const std::int64_t got = TRY(read_all(file_, offset, block_.span(), path_));
  if (got < kBlock) return fail(Code::kBadFile, "{}: ends at byte {}", path_, offset);
  const RecordHeader header = TRY(decode_record_header(block_.span(), path_));
  bytes = record_bytes(header.ids, header.payload_bytes);
  if (offset + bytes > size_) return fail(Code::kBadFile, "{}: ends in a record", path_);
  return header;
}

bool Scanner::is_whole(const RecordHeader& header, std::int64_t offset, std::int64_t bytes) {
  const AlignedBytes record(bytes);
  const auto got = read_all(file_, offset, record.span(), path_);
  return got && *got == bytes && check_payload(header, record.span());
}

void Scanner::tail(std::int64_t from) {
  out_.end = from;
  while (out_.end < size_) {
    std::int64_t bytes = 0;
    const auto header = header_at(out_.end, bytes);
    // What an earlier life left behind a record that was written over it.
    const bool is_stale = header && header->epoch < out_.epoch;
    if (!header || is_stale || !is_whole(*header, out_.end, bytes)) {
      out_.was_cut = header.has_value() || !all_zeros(block_.span());
      return;
    }
    out_.epoch = header->epoch;
    out_.entries.push_back(put_entry(*header, {out_.id, out_.end, bytes}));
    out_.end += bytes;
  }
}

void Scanner::everywhere() {
  constexpr std::int64_t kWindow = 1 << 20;  // read at once where no record is
  bool knows_class = out_.state == SegmentScan::State::kOpen;
  out_.state = SegmentScan::State::kDamaged;
  out_.entries.clear();
  const AlignedBytes window(kWindow);
  std::int64_t begin = 0, end = 0;  // of what is in the window
  bool is_lost = false;
  for (std::int64_t at = kBlock; at + kBlock <= size_;) {
    if (at < begin || at >= end) {
      const auto want = window.first(std::min(is_lost ? kWindow : kBlock, size_ - at));
      const auto got = read_all(file_, at, want, path_);
      begin = at;
      end = at + (got ? *got : 0);
      if (end == begin) {  // unreadable: step over it
        at += kBlock;
        continue;
      }
    }
    const auto block = window.span().subspan(static_cast<std::size_t>(at - begin));
    std::int64_t bytes = 0;
    const auto header = decode_record_header(block.first(static_cast<std::size_t>(kBlock)), path_);
    if (header) bytes = record_bytes(header->ids, header->payload_bytes);
    is_lost = !header || at + bytes > size_;
    if (is_lost) {
      at += kBlock;
      continue;
    }
    out_.entries.push_back(put_entry(*header, {out_.id, at, bytes}));
    out_.epoch = std::max(out_.epoch, header->epoch);
    if (!std::exchange(knows_class, true)) out_.ttl = header->ttl;
    at += bytes;
    out_.end = at;
  }
}

// Puts of the journal, in order of offset.
void take_journaled(const Replay::OfSegment& known, SegmentScan& out) {
  for (const auto& [key, put] : known.puts) {
    if (put.place.offset + put.place.bytes > out.bytes) continue;
    out.entries.push_back(put);
    out.epoch = std::max(out.epoch, put.sequence >> 40U);
  }
  std::ranges::sort(out.entries, {}, [](const IndexEntry& entry) { return entry.place.offset; });
  out.journaled = out.entries.size();
}

}  // namespace

SegmentScan scan_segment(
    FileSystem& files, const std::string& path, SegmentId id, const Replay::OfSegment* known
) {
  SegmentScan out;
  out.id = id;
  const auto file = files.open_blocks(path, OpenMode::kRead);
  const auto size = file ? (*file)->size() : tl::unexpected<Error>(file.error());
  if (!size) {
    out.trouble = size.error().message;
    return out;
  }
  out.bytes = *size / kBlock * kBlock;
  Scanner scanner(**file, out.bytes, path, out);
  const bool is_sealed = scanner.by_footer();
  if (out.state == SegmentScan::State::kVersion) return out;
  if (!is_sealed) {
    const bool has_first = scanner.first_block();
    if (out.state == SegmentScan::State::kVersion || out.state == SegmentScan::State::kLost) {
      return out;
    }
    // An open segment has its full length; one that the journal does not know is new, or its seal
    // is known no more.
    const bool is_cut = known == nullptr && out.bytes > *size;
    const bool was_sealed = is_cut || (known != nullptr && known->is_sealed);
    if (out.state == SegmentScan::State::kEmpty && known == nullptr) return out;
    if (!has_first || was_sealed || !out.trouble.empty()) {
      if (out.trouble.empty()) out.trouble = path + ": its footer is not there";
      scanner.everywhere();
    } else {
      if (known != nullptr) take_journaled(*known, out);
      scanner.tail(known != nullptr ? known->end : kBlock);
    }
  }
  if (known != nullptr && !known->erased.empty()) {
    const auto is_erased = [&](const IndexEntry& entry) {
      return known->is_erased(entry.key, entry.place.offset);
    };
    const auto journaled = out.entries.begin() + static_cast<std::ptrdiff_t>(out.journaled);
    out.journaled -=
        static_cast<std::size_t>(std::count_if(out.entries.begin(), journaled, is_erased));
    std::erase_if(out.entries, is_erased);
  }
  return out;
}

}  // namespace artery::kvstore
