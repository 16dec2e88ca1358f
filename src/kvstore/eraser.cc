#include "kvstore/eraser.h"

#include <algorithm>

#include "kvstore/segment_file.h"
#include "kvstore/slot_pool.h"

namespace artery::kvstore {
namespace {

constexpr std::int64_t kWindow = 1 << 20;  // of reads where no header is, and of zeros

class Walker {
 public:
  Walker(BlockFile& file, std::int64_t size, const std::string& path, const Traces& traces)
      : file_(file), size_(size), path_(path), traces_(traces) {}

  Result<std::vector<Trace>> walk(SegmentId segment) {
    std::vector<Trace> out;
    for (std::int64_t at = kBlock; at + kBlock <= size_;) {
      const auto header = decode_record_header(TRY(block(at)), path_);
      if (!header) {
        at += kBlock;
        continue;
      }
      const std::int64_t bytes =
          std::min(record_bytes(header->ids, header->payload_bytes), size_ - at);
      if (traces_.spaces.contains(header->space) && header->sequence < traces_.before) {
        TRY(zero(at, bytes));
        out.push_back({header->key, {segment, at, bytes}});
      }
      at += bytes;
    }
    if (!out.empty()) TRY(file_.sync());
    return out;
  }

 private:
  // The block at `at`. After a record only the next header is read, for it is likely to be there;
  // where it is not, a window of what comes.
  Result<std::span<const std::byte>> block(std::int64_t at) {
    if (at < begin_ || at + kBlock > end_) {
      const std::int64_t want = at == end_ ? kWindow : kBlock;
      const auto into = window_.first(std::min(want, size_ - at));
      const std::int64_t got = TRY(read_all(file_, at, into, path_));
      if (got < kBlock) return fail(Code::kIo, "{}: cannot be read at byte {}", path_, at);
      begin_ = at;
      end_ = at + got / kBlock * kBlock;
    }
    return window_.span().subspan(
        static_cast<std::size_t>(at - begin_), static_cast<std::size_t>(kBlock)
    );
  }

  Result<> zero(std::int64_t at, std::int64_t bytes) {
    if (zeros_.span().empty()) zeros_ = AlignedBytes(kWindow);
    while (bytes > 0) {
      const std::int64_t step = std::min(bytes, kWindow);
      TRY(write_all(file_, at, zeros_.first(step), path_));
      at += step;
      bytes -= step;
    }
    return {};
  }

  BlockFile& file_;
  const std::int64_t size_;
  const std::string& path_;
  const Traces& traces_;
  AlignedBytes window_{kWindow};
  AlignedBytes zeros_;
  std::int64_t begin_ = 0, end_ = 0;  // of what `window_` holds
};

}  // namespace

Result<std::vector<Trace>> erase_traces(
    FileSystem& files, const std::string& path, SegmentId segment, const Traces& traces
) {
  const auto file = TRY(files.open_blocks(path, OpenMode::kWrite));
  const std::int64_t size = TRY(file->size()) / kBlock * kBlock;
  return Walker(*file, size, path, traces).walk(segment);
}

}  // namespace artery::kvstore
