#include "sim/line_source.h"

#include <zstd.h>

#include <algorithm>
#include <utility>

namespace artery::sim {

namespace {
constexpr std::string_view kMagic("\x28\xb5\x2f\xfd", 4);
constexpr std::size_t kFileMax = std::size_t{1} << 30;
constexpr std::size_t kLineMax = std::size_t{64} << 20;
constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr int kWindowLogMax = 27;  // 128 MiB, what `zstd --long=27` packs with
}  // namespace

struct LineSource::Unpacker {
  struct Free {
    void operator()(ZSTD_DStream* owned) const { ZSTD_freeDStream(owned); }
  };
  std::unique_ptr<ZSTD_DStream, Free> stream{ZSTD_createDStream()};
  std::size_t state = 1;  // what ZSTD_decompressStream() said last; 0: a frame has ended
};

LineSource::LineSource(std::string path, std::string file)
    : path_(std::move(path)), file_(std::move(file)) {
  if (!std::string_view(file_).starts_with(kMagic)) return;
  unpacker_ = std::make_unique<Unpacker>();
  ZSTD_DCtx_setParameter(unpacker_->stream.get(), ZSTD_d_windowLogMax, kWindowLogMax);
}
LineSource::LineSource(LineSource&&) noexcept = default;
LineSource::~LineSource() = default;

Result<LineSource> LineSource::open(const std::string& path, const FileSystem& files) {
  std::string file = TRY(files.read(path, kFileMax));
  return LineSource(path, std::move(file));
}

std::uint64_t LineSource::bytes_done() const { return read_; }

Result<bool> LineSource::more() {
  text_.erase(0, at_);
  at_ = 0;
  if (text_.size() > kLineMax)
    return fail(Code::kBadFile, "{}, line {}: over {} bytes", path_, number_ + 1, kLineMax);
  const std::size_t before = text_.size();
  if (unpacker_ == nullptr) {
    const std::size_t count = std::min(kPiece, file_.size() - read_);
    text_.append(file_, read_, count);
    read_ += count;
    return count > 0;
  }
  ZSTD_inBuffer in = {file_.data(), file_.size(), read_};
  text_.resize(before + kPiece);
  ZSTD_outBuffer out = {text_.data() + before, kPiece, 0};
  // Until something comes out: a step may only take in. Behind the end of the last frame another
  // call would begin a new one.
  while (out.pos == 0 && (in.pos < in.size || unpacker_->state != 0)) {
    const std::size_t before_step = in.pos;
    unpacker_->state = ZSTD_decompressStream(unpacker_->stream.get(), &out, &in);
    if (ZSTD_isError(unpacker_->state))
      return fail(
          Code::kBadFile, "{}: not whole zstd ({})", path_, ZSTD_getErrorName(unpacker_->state)
      );
    if (in.pos == before_step && out.pos == 0) break;
  }
  read_ = in.pos;
  text_.resize(before + out.pos);
  if (out.pos > 0) return true;
  if (unpacker_->state != 0) return fail(Code::kBadFile, "{}: the zstd file is cut off", path_);
  return false;
}

Result<std::optional<std::string_view>> LineSource::next() {
  for (std::size_t looked = at_;;) {
    std::size_t end = text_.find('\n', looked);
    if (end == std::string::npos) {
      looked = text_.size() - at_;
      if (TRY(more())) continue;
      if (text_.size() == at_) return std::nullopt;
      end = text_.size();
    }
    std::string_view line = std::string_view(text_).substr(at_, end - at_);
    at_ = std::min(end + 1, text_.size());
    looked = at_;
    ++number_;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.find_first_not_of(" \t") != std::string_view::npos) return line;
  }
}

}  // namespace artery::sim
