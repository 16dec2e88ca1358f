#include "testing/npz.h"

#include <boost/beast/zlib/inflate_stream.hpp>
#include <boost/crc.hpp>
#include <cstring>
#include <span>
#include <vector>

namespace artery::testing {
namespace {

constexpr std::size_t kArchiveBytesMax = std::size_t{1} << 30;
constexpr std::size_t kEndBytes = 22;      // end of central directory, without a comment
constexpr std::size_t kCentralBytes = 46;  // fixed part of an entry of the central directory
constexpr std::size_t kLocalBytes = 30;    // fixed part of a local header
constexpr std::uint16_t kStored = 0;
constexpr std::uint16_t kDeflated = 8;

// A little-endian field; the caller has checked the bounds of the record.
template <typename T>
T field(std::string_view record, std::size_t at) {
  T value;
  std::memcpy(&value, record.data() + at, sizeof value);
  return value;
}

// Raw deflate. The stream does not always report that it saw the end mark, so the zip's CRC is what
// tells whether the data is whole.
Result<std::vector<std::byte>> inflate(
    std::string_view packed, std::size_t bytes, std::uint32_t checksum
) {
  namespace zlib = boost::beast::zlib;
  std::vector<std::byte> out(bytes + 1);  // room to find the end mark with the buffer not full
  zlib::inflate_stream stream;
  zlib::z_params params;
  params.next_in = packed.data();
  params.avail_in = packed.size();
  params.next_out = out.data();
  params.avail_out = out.size();
  boost::beast::error_code error;
  stream.write(params, zlib::Flush::sync, error);
  if (params.total_out != bytes) {
    return fail(
        Code::kBadFile,
        "deflated data gave {} of {} bytes: {}",
        params.total_out,
        bytes,
        error.message()
    );
  }
  out.resize(bytes);
  boost::crc_32_type crc;
  crc.process_bytes(out.data(), out.size());
  if (crc.checksum() != checksum) return fail(Code::kBadFile, "the checksum does not match");
  return out;
}

}  // namespace

Result<NpzFile> NpzFile::open(const std::string& path, const FileSystem& fs) {
  NpzFile out;
  out.path_ = path;
  out.file_ = TRY(fs.read(path, kArchiveBytesMax));
  const std::string_view file = out.file_;
  if (file.size() < kEndBytes || !file.substr(file.size() - kEndBytes).starts_with("PK\5\6"))
    return fail(Code::kBadFile, "{}: not a zip archive (no end record)", path);
  const std::string_view end = file.substr(file.size() - kEndBytes);
  const auto count = field<std::uint16_t>(end, 10);
  std::size_t at = field<std::uint32_t>(end, 16);
  for (int i = 0; i < count; ++i) {
    if (at > file.size() || file.size() - at < kCentralBytes || file.substr(at, 4) != "PK\1\2")
      return fail(Code::kBadFile, "{}: entry {} of the directory is damaged", path, i);
    const std::string_view record = file.substr(at);
    const std::size_t name_bytes = field<std::uint16_t>(record, 28);
    if (record.size() - kCentralBytes < name_bytes)
      return fail(Code::kBadFile, "{}: entry {} of the directory is cut", path, i);
    std::string_view name = record.substr(kCentralBytes, name_bytes);
    if (name.ends_with(".npy")) name.remove_suffix(4);
    out.entries_[std::string(name)] = {
        .method = field<std::uint16_t>(record, 10),
        .checksum = field<std::uint32_t>(record, 16),
        .packed_bytes = field<std::uint32_t>(record, 20),
        .bytes = field<std::uint32_t>(record, 24),
        .local_header = field<std::uint32_t>(record, 42)
    };
    at += kCentralBytes + name_bytes + field<std::uint16_t>(record, 30) +
          field<std::uint16_t>(record, 32);
  }
  return out;
}

Result<NpyArray> NpzFile::array(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return fail(Code::kNotFound, "{}: no array '{}'", path_, name);
  const Entry& entry = found->second;
  const std::string_view file = file_;
  const std::size_t start = entry.local_header;
  if (start > file.size() || file.size() - start < kLocalBytes)
    return fail(Code::kBadFile, "{}: {} lies outside the file", path_, name);
  const std::size_t at = start + kLocalBytes + field<std::uint16_t>(file.substr(start), 26) +
                         field<std::uint16_t>(file.substr(start), 28);
  if (at > file.size() || file.size() - at < entry.packed_bytes)
    return fail(Code::kBadFile, "{}: {} lies outside the file", path_, name);
  const std::string_view packed = file.substr(at, entry.packed_bytes);
  const std::string shown = fmt::format("{}/{}", path_, name);
  if (entry.method == kStored)
    return NpyArray::parse(std::as_bytes(std::span(packed.data(), packed.size())), shown);
  if (entry.method != kDeflated)
    return fail(Code::kUnsupported, "{}: compression method {}", shown, entry.method);
  const auto bytes = TRY(inflate(packed, entry.bytes, entry.checksum));
  return NpyArray::parse(bytes, shown);
}

}  // namespace artery::testing
