#include "base/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace artery {
namespace {

static_assert(std::endian::native == std::endian::little, "values are stored as they lie");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kDimensionsMax = 32;  // NumPy's own limit
constexpr std::size_t kHeaderAlignment = 64;

struct TypeRow {
  NpyType type;
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<TypeRow, 6> kTypeRows = {{
    {NpyType::kFloat16, "<f2", 2},
    {NpyType::kFloat32, "<f4", 4},
    {NpyType::kFloat64, "<f8", 8},
    {NpyType::kInt32, "<i4", 4},
    {NpyType::kInt64, "<i8", 8},
    {NpyType::kUint8, "|u1", 1},
}};

const TypeRow& row_of(NpyType type) { return kTypeRows[static_cast<std::size_t>(type)]; }

// Reads the Python literal that is a header: {'descr': '<f4', 'fortran_order': False,
// 'shape': (3, 4), }. Each reader skips spaces first and moves on only when it succeeds.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool take(std::string_view token) {
    skip_spaces();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  std::optional<std::string_view> string() {
    skip_spaces();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return std::nullopt;
    const std::size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view inside = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return inside;
  }

  std::optional<std::int64_t> dimension() {
    skip_spaces();
    std::int64_t value = 0;
    std::size_t digits = 0;
    for (; digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9'; ++digits) {
      if (value > (std::numeric_limits<std::int64_t>::max() - 9) / 10) return std::nullopt;
      value = value * 10 + (rest_[digits] - '0');
    }
    if (digits == 0) return std::nullopt;
    rest_.remove_prefix(digits);
    return value;
  }

  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }

 private:
  void skip_spaces() {
    const std::size_t first = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(std::min(first, rest_.size()));
  }

  std::string_view rest_;
};

struct Header {
  std::optional<std::string_view> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
};

// (), (5,), (3, 4) or (3, 4,)
std::optional<std::vector<std::int64_t>> parse_shape(Scanner& in) {
  std::vector<std::int64_t> shape;
  if (!in.take("(")) return std::nullopt;
  while (!in.take(")")) {
    const std::optional<std::int64_t> dimension = in.dimension();
    if (!dimension || shape.size() == kDimensionsMax) return std::nullopt;
    shape.push_back(*dimension);
    if (!in.take(",")) {
      if (!in.take(")")) return std::nullopt;
      break;
    }
  }
  return shape;
}

bool parse_entry(Scanner& in, std::string_view key, Header& header) {
  if (key == "descr") {
    header.descr = in.string();
    return header.descr.has_value();
  }
  if (key == "fortran_order") {
    if (in.take("True")) {
      header.fortran_order = true;
    } else if (in.take("False")) {
      header.fortran_order = false;
    }
    return header.fortran_order.has_value();
  }
  if (key == "shape") {
    header.shape = parse_shape(in);
    return header.shape.has_value();
  }
  return false;
}

// Nothing when the text is not a complete header.
std::optional<Header> parse_header(std::string_view text) {
  Scanner in(text);
  Header header;
  if (!in.take("{")) return std::nullopt;
  while (!in.take("}")) {
    const std::optional<std::string_view> key = in.string();
    if (!key || !in.take(":") || !parse_entry(in, *key, header)) return std::nullopt;
    if (!in.take(",")) {
      if (!in.take("}")) return std::nullopt;
      break;
    }
  }
  if (!in.at_end() || !header.descr || !header.fortran_order || !header.shape) return std::nullopt;
  return header;
}

std::uint32_t little_endian(std::span<const std::byte> bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = bytes.size(); i > 0; --i) {
    value = value << 8 | std::to_integer<std::uint32_t>(bytes[i - 1]);
  }
  return value;
}

struct Sections {
  std::string_view header;
  std::span<const std::byte> data;
};

Result<Sections> split(std::span<const std::byte> file, std::string_view path) {
  if (file.size() < kMagic.size() + 4 ||
      std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    return fail(Code::kBadFile, "{}: not an .npy file", path);
  }
  const auto version = std::to_integer<int>(file[kMagic.size()]);
  if (version != 1 && version != 2) {
    return fail(Code::kUnsupported, "{}: .npy version {}, expected 1 or 2", path, version);
  }
  const std::size_t length_at = kMagic.size() + 2;
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  if (file.size() < length_at + length_bytes) {
    return fail(Code::kBadFile, "{}: truncated at byte {}", path, file.size());
  }
  const std::size_t header_bytes = little_endian(file.subspan(length_at, length_bytes));
  const std::span<const std::byte> rest = file.subspan(length_at + length_bytes);
  if (rest.size() < header_bytes) {
    return fail(
        Code::kBadFile,
        "{}: the header has {} bytes but the file ends after {}",
        path,
        header_bytes,
        rest.size()
    );
  }
  const auto* text = reinterpret_cast<const char*>(rest.data());
  return Sections{std::string_view(text, header_bytes), rest.subspan(header_bytes)};
}

// Bytes of all values; nothing beyond 64 bits.
std::optional<std::uint64_t> total_bytes(
    std::span<const std::int64_t> shape, std::size_t value_bytes
) {
  std::uint64_t total = value_bytes;
  for (const std::int64_t dimension : shape) {
    if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(dimension), &total)) {
      return std::nullopt;
    }
  }
  return total;
}

}  // namespace

std::string_view npy_name(NpyType type) { return row_of(type).name; }
std::size_t npy_bytes(NpyType type) { return row_of(type).bytes; }

NpyArray::NpyArray(
    std::string path, NpyType type, std::vector<std::int64_t> shape, std::vector<std::byte> data
)
    : path_(std::move(path)), type_(type), shape_(std::move(shape)), data_(std::move(data)) {}

Result<NpyArray> NpyArray::parse(std::span<const std::byte> file, std::string_view path) {
  const Sections sections = TRY(split(file, path));
  std::optional<Header> header = parse_header(sections.header);
  if (!header) {
    return fail(
        Code::kBadFile, "{}: the header is not a dict of descr, fortran_order and shape", path
    );
  }
  const auto row = std::ranges::find(kTypeRows, *header->descr, &TypeRow::name);
  if (row == kTypeRows.end()) {
    return fail(Code::kUnsupported, "{}: values of type '{}' are not read", path, *header->descr);
  }
  if (*header->fortran_order && header->shape->size() > 1) {
    return fail(Code::kUnsupported, "{}: Fortran order; save it in C order", path);
  }
  const std::optional<std::uint64_t> bytes = total_bytes(*header->shape, row->bytes);
  if (!bytes || *bytes != sections.data.size()) {
    return fail(
        Code::kBadFile,
        "{}: the shape needs {} bytes of values, the file has {}",
        path,
        bytes ? std::to_string(*bytes) : "over 2^64",
        sections.data.size()
    );
  }
  std::vector<std::byte> data(sections.data.begin(), sections.data.end());
  return NpyArray(std::string(path), row->type, std::move(*header->shape), std::move(data));
}

Result<NpyArray> NpyArray::read(
    const FileSystem& files, const std::string& path, std::size_t bytes_max
) {
  const std::string file = TRY(files.read(path, bytes_max));
  return parse(std::as_bytes(std::span(file)), path);
}

Result<void> NpyArray::check_type(NpyType wanted) const {
  if (type_ == wanted) return {};
  return fail(
      Code::kBadFile,
      "{}: holds values of type '{}', expected '{}'",
      path_,
      npy_name(type_),
      npy_name(wanted)
  );
}

std::string format_npy(std::span<const std::int64_t> shape, std::span<const float> values) {
  const std::optional<std::uint64_t> bytes = total_bytes(shape, sizeof(float));
  CHECK(bytes == values.size_bytes(), "the shape does not hold {} values", values.size());
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  for (const std::int64_t dimension : shape) header += std::to_string(dimension) + ", ";
  header += "), }";
  const std::size_t before = kMagic.size() + 4;
  const std::size_t used = before + header.size() + 1;
  header.append((kHeaderAlignment - used % kHeaderAlignment) % kHeaderAlignment, ' ');
  header += '\n';

  std::string file(kMagic);
  file += '\x01';
  file += '\x00';
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  file.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return file;
}

Result<void> write_npy(
    const std::string& path, std::span<const std::int64_t> shape, std::span<const float> values
) {
  const std::string bytes = format_npy(shape, values);
  const auto failed = [&path](int code) {
    return fail(
        code == ENOENT ? Code::kNotFound : Code::kIo,
        "{}: cannot write: {}",
        path,
        std::error_code(code, std::generic_category()).message()
    );
  };
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return failed(errno);
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const int write_error = errno;
  const bool closed = std::fclose(file) == 0;
  if (!written) return failed(write_error);
  if (!closed) return failed(errno);
  return {};
}

}  // namespace artery
