#include "model/format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

#include "model/format/json.h"
#include "model/format/sniff.h"
#include "model/format/text.h"

namespace artery::model {
namespace {

static_assert(std::endian::native == std::endian::little, "read without byte swaps");

// The reference reader's limit.
constexpr std::uint64_t kHeaderBytesMax = 100'000'000;
constexpr std::size_t kDimsMax = 16;

struct TypeLine {
  std::string_view name;
  int bits;
  tensor::DType plain;
};

using tensor::DType;

constexpr std::array<TypeLine, 22> kTypes = {{
    {"BOOL", 8, DType::kI8},        {"F4", 4, DType::kI8},          {"F6_E2M3", 6, DType::kI8},
    {"F6_E3M2", 6, DType::kI8},     {"U8", 8, DType::kI8},          {"I8", 8, DType::kI8},
    {"F8_E4M3", 8, DType::kI8},     {"F8_E5M2", 8, DType::kI8},     {"F8_E8M0", 8, DType::kI8},
    {"F8_E4M3FNUZ", 8, DType::kI8}, {"F8_E5M2FNUZ", 8, DType::kI8}, {"I16", 16, DType::kI16},
    {"U16", 16, DType::kI16},       {"F16", 16, DType::kF16},       {"BF16", 16, DType::kBF16},
    {"I32", 32, DType::kI32},       {"U32", 32, DType::kI32},       {"F32", 32, DType::kF32},
    {"C64", 64, DType::kI64},       {"F64", 64, DType::kF64},       {"I64", 64, DType::kI64},
    {"U64", 64, DType::kI64},
}};

const TypeLine& line(StType type) { return kTypes[static_cast<std::size_t>(type)]; }

}  // namespace

std::string_view name(StType type) { return line(type).name; }
int bits(StType type) { return line(type).bits; }
tensor::DType plain_type(StType type) { return line(type).plain; }

// Front to back, one use.
class SafetensorsParser {
 public:
  SafetensorsParser(const std::string& path, std::unique_ptr<MappedFile> file) {
    out_.path_ = path;
    out_.file_ = std::move(file);
    bytes_ = out_.file_->bytes();
  }

  Result<SafetensorsFile> parse() {
    const std::string_view header = TRY(find_header());
    const std::uint64_t data_start = 8 + header.size();
    data_bytes_ = bytes_.size() - data_start;
    Result<> read = parse_json_members(header, [&](JsonMember&& member) {
      return member.name == "__metadata__" ? metadata(member.value) : tensor(std::move(member));
    });
    if (!read) {
      Error error = std::move(read).error();
      // Our own errors carry the file's name, the JSON reader's do not.
      if (!error.message.starts_with(out_.path_)) error = explain(std::move(error));
      return tl::unexpected<Error>(std::move(error));
    }
    TRY(check_names());
    TRY(check_cover());
    for (StTensor& info : out_.tensors_) info.offset += data_start;
    return std::move(out_);
  }

 private:
  template <typename... Args>
  tl::unexpected<Error> bad(fmt::format_string<Args...> text, Args&&... args) const {
    return fail(
        Code::kBadFile, "{}: {}", out_.path_, fmt::format(text, std::forward<Args>(args)...)
    );
  }

  Error explain(Error error) const {
    const std::string where =
        at_tensor_.empty() ? "" : fmt::format(" (after tensor {})", printable(at_tensor_));
    error.message = fmt::format("{}: the header {}{}", out_.path_, error.message, where);
    return error;
  }

  Result<std::string_view> find_header() const {
    if (bytes_.empty()) return bad("file is empty (0 bytes), not a safetensors file");
    // Not where it may well be one: a header length can begin like another format's magic.
    if (!looks_like_safetensors(bytes_)) {
      if (const std::string other = describe_foreign_head(bytes_); !other.empty())
        return bad("not a safetensors file: {}", other);
    }
    if (bytes_.size() < 8) {
      return bad(
          "a file of {} bytes is too small for a header length (8 bytes); fetch it again",
          bytes_.size()
      );
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), sizeof length);
    if (length == 0) return bad("header length is 0, not a safetensors file");
    if (length > kHeaderBytesMax) {
      return bad(
          "header length {} exceeds the limit of 100 MB; not a safetensors file, or damaged", length
      );
    }
    if (length > bytes_.size() - 8) {
      return bad(
          "header length {} exceeds the file ({} bytes after the length); fetch it again",
          length,
          bytes_.size() - 8
      );
    }
    return std::string_view(reinterpret_cast<const char*>(bytes_.data()) + 8, length);
  }

  Result<> metadata(const JsonValue& value) const {
    const auto* members = value.object();
    if (members == nullptr) return bad("__metadata__ is {}, expected an object", value.kind());
    for (const JsonMember& member : *members) {
      if (member.value.text() == nullptr) {
        return bad(
            "__metadata__ values must be strings: '{}' is {}",
            printable(member.name),
            member.value.kind()
        );
      }
    }
    return {};
  }

  Result<> tensor(JsonMember&& member) {
    StTensor info;
    info.name = std::move(member.name);
    at_tensor_ = info.name;
    shown_ = printable(info.name);
    if (member.value.object() == nullptr)
      return bad("tensor {} is {}, expected an object", shown_, member.value.kind());
    TRY(type(member.value, info));
    TRY(shape(member.value, info));
    TRY(offsets(member.value, info));
    TRY(size(info));
    out_.tensors_.push_back(std::move(info));
    return {};
  }

  Result<> type(const JsonValue& entry, StTensor& info) const {
    const JsonValue* value = entry.find("dtype");
    if (value == nullptr) return bad("tensor {}: dtype missing", shown_);
    if (value->text() == nullptr)
      return bad("tensor {}: dtype is {}, expected a string", shown_, value->kind());
    const auto* known = std::ranges::find(kTypes, *value->text(), &TypeLine::name);
    if (known == kTypes.end())
      return bad("tensor {} has unknown dtype '{}'", shown_, printable(*value->text()));
    info.type = static_cast<StType>(known - kTypes.begin());
    return {};
  }

  Result<> shape(const JsonValue& entry, StTensor& info) const {
    const JsonValue* value = entry.find("shape");
    if (value == nullptr) return bad("tensor {}: shape missing", shown_);
    if (value->array() == nullptr)
      return bad("tensor {}: shape is {}, expected an array", shown_, value->kind());
    if (value->array()->size() > kDimsMax) {
      return bad(
          "tensor {} has {} dimensions, the limit is {}", shown_, value->array()->size(), kDimsMax
      );
    }
    std::int64_t elements = 1;
    for (const JsonValue& item : *value->array()) {
      const std::int64_t size = TRY(dimension(item));
      // So that a zero cannot hide an overflow.
      if (__builtin_mul_overflow(elements, std::max<std::int64_t>(size, 1), &elements))
        return bad("tensor {}: element count overflows 64 bits", shown_);
      info.shape.push_back(size);
    }
    return {};
  }

  Result<std::int64_t> dimension(const JsonValue& item) const {
    if (const std::int64_t* size = item.integer()) {
      if (*size < 0) return bad("tensor {}: negative dimension {}", shown_, *size);
      return *size;
    }
    if (const double* real = item.real()) {
      if (!(*real < 9.2e18)) return bad("tensor {}: dimension {} out of range", shown_, *real);
      return bad("tensor {}: dimension {} is not an integer", shown_, *real);
    }
    return bad("tensor {}: dimension is {}, expected an integer", shown_, item.kind());
  }

  Result<> offsets(const JsonValue& entry, StTensor& info) const {
    const JsonValue* value = entry.find("data_offsets");
    if (value == nullptr) return bad("tensor {}: data_offsets missing", shown_);
    const auto* pair = value->array();
    const bool two = pair != nullptr && pair->size() == 2 && (*pair)[0].integer() != nullptr &&
                     (*pair)[1].integer() != nullptr && *(*pair)[0].integer() >= 0 &&
                     *(*pair)[1].integer() >= 0;
    if (!two) return bad("tensor {}: data_offsets must be two numbers of bytes", shown_);
    const auto begin = static_cast<std::uint64_t>(*(*pair)[0].integer());
    const auto end = static_cast<std::uint64_t>(*(*pair)[1].integer());
    if (end < begin) {
      return bad("tensor {}: data_offsets [{}, {}] end before they begin", shown_, begin, end);
    }
    info.offset = begin;
    info.bytes = end - begin;
    return {};
  }

  Result<> size(const StTensor& info) const {
    const std::int64_t elements = info.elements();
    std::int64_t all_bits = 0;
    if (__builtin_mul_overflow(elements, bits(info.type), &all_bits))
      return bad("tensor {}: byte count overflows 64 bits", shown_);
    if (all_bits % 8 != 0) {
      return bad(
          "tensor {}: {} with {} values is not a whole number of bytes",
          shown_,
          name(info.type),
          elements
      );
    }
    const auto needed = static_cast<std::uint64_t>(all_bits / 8);
    if (needed == info.bytes) return {};
    const std::uint64_t end = info.offset + info.bytes;
    if (end > data_bytes_) {
      return bad(
          "tensor {}: data_offsets end at {}, the data has {} bytes ({} [{}] needs {})",
          shown_,
          end,
          data_bytes_,
          name(info.type),
          fmt::join(info.shape, ", "),
          needed
      );
    }
    return bad(
        "tensor {}: data_offsets hold {} bytes, but {} [{}] needs {}",
        shown_,
        info.bytes,
        name(info.type),
        fmt::join(info.shape, ", "),
        needed
    );
  }

  Result<> check_names() const {
    std::vector<std::string_view> names;
    names.reserve(out_.tensors_.size());
    for (const StTensor& info : out_.tensors_) names.push_back(info.name);
    std::ranges::sort(names);
    const auto twin = std::ranges::adjacent_find(names);
    if (twin == names.end()) return {};
    return bad("duplicate tensor name {}", printable(*twin));
  }

  // Every byte of the data in exactly one tensor.
  Result<> check_cover() {
    auto& tensors = out_.tensors_;
    std::ranges::sort(tensors, {}, [](const StTensor& t) {
      return std::tuple(t.offset, t.bytes, std::string_view(t.name));
    });
    TRY(check_end());
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const StTensor& info = tensors[i];
      if (info.offset < at) {
        return bad(
            "tensors {} and {} overlap at byte {} of the data",
            printable(tensors[i - 1].name),
            printable(info.name),
            info.offset
        );
      }
      if (info.offset > at)
        return bad("bytes {} to {} of the data belong to no tensor", at, info.offset);
      at = info.offset + info.bytes;
    }
    if (at < data_bytes_)
      return bad("{} bytes after the last tensor belong to no tensor", data_bytes_ - at);
    return {};
  }

  Result<> check_end() const {
    std::size_t beyond = 0;
    const StTensor* first = nullptr;
    std::uint64_t end = 0;
    for (const StTensor& info : out_.tensors_) {
      end = std::max(end, info.offset + info.bytes);
      if (info.offset + info.bytes <= data_bytes_) continue;
      if (beyond++ == 0) first = &info;
    }
    if (first == nullptr) return {};
    if (beyond > 1) {
      return bad(
          "{} of {} tensors claim bytes that the file does not have: the header needs {} bytes of "
          "data, the file has {} ({} is the first such tensor); fetch the file again",
          beyond,
          out_.tensors_.size(),
          end,
          data_bytes_,
          printable(first->name)
      );
    }
    return bad(
        "data ends at {} bytes, tensor {} needs {}: its data_offsets end at {}, the data has {} "
        "bytes; fetch the file again",
        data_bytes_,
        printable(first->name),
        end,
        end,
        data_bytes_
    );
  }

  SafetensorsFile out_;
  std::span<const std::byte> bytes_;
  std::uint64_t data_bytes_ = 0;
  std::string at_tensor_;
  std::string shown_;
};

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path, const FileSystem& fs) {
  auto file = TRY(fs.map(path));
  return SafetensorsParser(path, std::move(file)).parse();
}

}  // namespace artery::model
