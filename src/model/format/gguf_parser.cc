#include "model/format/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "model/format/sniff.h"
#include "model/format/text.h"

namespace artery::model {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read without byte swaps");

// Bytes of an item of fixed size, 0 for strings, arrays and unknown types.
std::uint64_t item_bytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

bool known(std::uint32_t type) { return type <= static_cast<std::uint32_t>(GgufType::kFloat64); }

template <typename T>
GgufValue scalar(GgufType type, const std::byte* raw) {
  T item;
  std::memcpy(&item, raw, sizeof item);
  if constexpr (std::is_floating_point_v<T>) return {type, static_cast<double>(item)};
  if constexpr (std::is_signed_v<T>) return {type, static_cast<std::int64_t>(item)};
  return {type, static_cast<std::uint64_t>(item)};
}

}  // namespace

GgufParser::GgufParser(std::string path, std::unique_ptr<MappedFile> file)
    : out_(new GgufFile), path_(out_->path_) {
  bytes_ = file->bytes();
  out_->path_ = std::move(path);
  out_->file_ = std::move(file);
}

std::string_view GgufParser::take(std::uint64_t length) {
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, length);
  at_ += length;
  return text;
}

Result<std::unique_ptr<GgufFile>> GgufParser::parse() {
  TRY(header());
  TRY(metadata());
  TRY(out_->order_keys());
  TRY(alignment());
  TRY(tensor_list());
  TRY(out_->order_tensors());
  TRY(place_tensors());
  return std::move(out_);
}

Result<> GgufParser::header() {
  if (bytes_.empty()) return fail(Code::kBadFile, "{}: file is empty (0 bytes), not a GGUF", path_);
  if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
    return fail(
        Code::kBadFile,
        "{}: not a GGUF file: {}",
        path_,
        describe_foreign_file(bytes_.first(std::min<std::size_t>(bytes_.size(), 512)))
    );
  }
  at_ = 4;
  std::uint32_t version = 0;
  if (!read(version)) {
    return fail(
        Code::kBadFile,
        "{}: truncated in the header: the file ends after the magic, at byte {}",
        path_,
        bytes_.size()
    );
  }
  TRY(check_version(version));
  out_->version_ = version;
  return counts();
}

Result<> GgufParser::check_version(std::uint32_t version) const {
  // Versions are small: one with an empty low half was written by a big-endian machine.
  if (version != 0 && (version & 0xFFFF) == 0) {
    return fail(
        Code::kUnsupported,
        "{}: big-endian GGUF (version reads as 0x{:08x}): not supported",
        path_,
        version
    );
  }
  if (version == 1) {
    return fail(
        Code::kUnsupported,
        "{}: unsupported GGUF version 1 (32-bit counts); convert the file again",
        path_
    );
  }
  if (version != 2 && version != 3) {
    return fail(
        Code::kUnsupported,
        "{}: unsupported GGUF version {}{}",
        path_,
        version,
        version > 3 ? " (newer than this program)" : ""
    );
  }
  return {};
}

Result<> GgufParser::counts() {
  if (!read(tensor_count_) || !read(key_count_)) {
    return fail(
        Code::kBadFile,
        "{}: truncated in the header: the counts are missing, the file ends at byte {}",
        path_,
        bytes_.size()
    );
  }
  // Every entry has bytes of its own. Nothing is allocated by these counts, so that a file that is
  // merely cut is told by the place where it ends.
  if (key_count_ > kKeysMax || key_count_ > left()) {
    return fail(
        Code::kBadFile,
        "{}: impossible metadata count {} for a file of {} bytes",
        path_,
        key_count_,
        bytes_.size()
    );
  }
  if (tensor_count_ > kTensorsMax || tensor_count_ > left()) {
    return fail(
        Code::kBadFile,
        "{}: impossible tensor count {} for a file of {} bytes",
        path_,
        tensor_count_,
        bytes_.size()
    );
  }
  return {};
}

Result<> GgufParser::metadata() {
  for (std::uint64_t i = 1; i <= key_count_; ++i) {
    const std::string_view text = TRY(key(i));
    std::uint32_t type = 0;
    if (!read(type)) {
      return fail(
          Code::kBadFile,
          "{}: truncated in the value of {}: its type is missing at byte {}",
          path_,
          printable(text),
          at_
      );
    }
    GgufValue parsed = TRY(value(text, type));
    out_->keys_.push_back({text, std::move(parsed)});
  }
  return {};
}

Result<std::string_view> GgufParser::key(std::uint64_t index) {
  const std::uint64_t start = at_;
  std::uint64_t length = 0;
  if (!read(length)) {
    return fail(
        Code::kBadFile,
        "{}: truncated in metadata key {} of {} at byte {}",
        path_,
        index,
        key_count_,
        start
    );
  }
  if (length > left() || length > kKeyBytesMax) {
    return fail(
        Code::kBadFile,
        "{}: truncated or damaged in metadata key {} of {} at byte {}: metadata key length {} "
        "exceeds the {}",
        path_,
        index,
        key_count_,
        start,
        length,
        length > left() ? fmt::format("file ({} bytes left)", left())
                        : fmt::format("limit of {}", kKeyBytesMax)
    );
  }
  const std::string_view text = take(length);
  judge_key(text, index);
  return text;
}

void GgufParser::judge_key(std::string_view text, std::uint64_t index) {
  std::string_view problem;
  if (text.empty()) {
    problem = "is empty";
  } else if (text.find('\0') != std::string_view::npos) {
    problem = "contains a NUL byte";
  } else if (!is_utf8(text)) {
    problem = "is not valid UTF-8";
  }
  if (problem.empty()) return;
  out_->warnings_.push_back(
      fmt::format("{}: metadata key {} {}: '{}'", path_, index, problem, printable(text))
  );
}

Result<GgufValue> GgufParser::value(std::string_view key, std::uint32_t type) {
  if (!known(type)) {
    return fail(
        Code::kBadFile,
        "{}: unknown metadata value type {} for {} at byte {}",
        path_,
        type,
        printable(key),
        at_ - 4
    );
  }
  const auto known_type = static_cast<GgufType>(type);
  if (known_type == GgufType::kString) return GgufValue{known_type, TRY(string(key))};
  if (known_type == GgufType::kArray) return GgufValue{known_type, TRY(array(key, 1))};
  return number(key, known_type);
}

Result<GgufValue> GgufParser::number(std::string_view key, GgufType type) {
  const std::uint64_t size = item_bytes(type);
  if (size > left()) {
    return fail(
        Code::kBadFile, "{}: truncated in the value of {} at byte {}", path_, printable(key), at_
    );
  }
  const std::byte* raw = bytes_.data() + at_;
  at_ += size;
  switch (type) {
    case GgufType::kUint8:
      return scalar<std::uint8_t>(type, raw);
    case GgufType::kInt8:
      return scalar<std::int8_t>(type, raw);
    case GgufType::kUint16:
      return scalar<std::uint16_t>(type, raw);
    case GgufType::kInt16:
      return scalar<std::int16_t>(type, raw);
    case GgufType::kUint32:
      return scalar<std::uint32_t>(type, raw);
    case GgufType::kInt32:
      return scalar<std::int32_t>(type, raw);
    case GgufType::kUint64:
      return scalar<std::uint64_t>(type, raw);
    case GgufType::kInt64:
      return scalar<std::int64_t>(type, raw);
    case GgufType::kFloat32:
      return scalar<float>(type, raw);
    case GgufType::kFloat64:
      return scalar<double>(type, raw);
    default:
      break;
  }
  const auto flag = static_cast<unsigned>(*raw);
  if (flag > 1) {
    out_->warnings_.push_back(fmt::format(
        "{}: boolean value {} for {} is neither 0 nor 1; taken as true", path_, flag, printable(key)
    ));
  }
  return GgufValue{type, flag != 0};
}

Result<std::string_view> GgufParser::string(std::string_view key) {
  const std::uint64_t start = at_;
  std::uint64_t length = 0;
  if (!read(length) || length > left()) {
    return fail(
        Code::kBadFile,
        "{}: truncated or damaged in the value of {} at byte {}: string value length {} exceeds "
        "the file ({} bytes left)",
        path_,
        printable(key),
        start,
        length,
        left()
    );
  }
  return take(length);
}

Result<GgufArray> GgufParser::array(std::string_view key, int depth) {
  if (depth > kArrayDepthMax || nested_arrays_ > kNestedArraysMax) {
    return fail(
        Code::kBadFile,
        "{}: arrays nested too deeply in the value of {} at byte {} (limit: {} levels, {} arrays)",
        path_,
        printable(key),
        at_,
        kArrayDepthMax,
        kNestedArraysMax
    );
  }
  ++nested_arrays_;
  std::uint32_t item_type = 0;
  GgufArray out;
  if (!read(item_type) || !read(out.count)) {
    return fail(
        Code::kBadFile,
        "{}: truncated in the value of {} at byte {}: array type and length are missing",
        path_,
        printable(key),
        at_
    );
  }
  if (!known(item_type)) {
    return fail(
        Code::kBadFile,
        "{}: unknown array item type {} in {} at byte {}",
        path_,
        item_type,
        printable(key),
        at_ - 12
    );
  }
  out.item_type = static_cast<GgufType>(item_type);
  TRY(array_items(key, out, depth));
  return out;
}

Result<> GgufParser::array_items(std::string_view key, GgufArray& out, int depth) {
  const bool strings = out.item_type == GgufType::kString;
  const bool arrays = out.item_type == GgufType::kArray;
  const std::uint64_t size = strings ? 8 : arrays ? 12 : item_bytes(out.item_type);
  if (out.count > left() / size) {
    const bool overflows = out.count > UINT64_MAX / size;
    return fail(
        Code::kBadFile,
        "{}: truncated or damaged in the value of {} at byte {}: an array of length {} ({}s, at "
        "least {} bytes each) {} ({} bytes left)",
        path_,
        printable(key),
        at_,
        out.count,
        name(out.item_type),
        size,
        overflows ? "overflows 64 bits and exceeds the file" : "exceeds the file",
        left()
    );
  }
  if (strings) {
    out.strings.reserve(out.count);
    for (std::uint64_t i = 0; i < out.count; ++i) out.strings.push_back(TRY(string(key)));
  } else if (arrays) {
    for (std::uint64_t i = 0; i < out.count; ++i) out.arrays.push_back(TRY(array(key, depth + 1)));
  } else {
    out.raw = bytes_.subspan(at_, out.count * size);
    at_ += out.count * size;
  }
  return {};
}

Result<> GgufParser::alignment() {
  if (out_->find_key("general.alignment") == nullptr) return {};
  const std::uint64_t alignment = TRY(out_->get_unsigned("general.alignment"));
  if (!std::has_single_bit(alignment)) {
    return fail(
        Code::kBadFile, "{}: general.alignment is {}: must be a power of two", path_, alignment
    );
  }
  out_->alignment_ = alignment;
  return {};
}

}  // namespace artery::model
