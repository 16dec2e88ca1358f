#include "model/format/gguf_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/format/hf_shards.h"
#include "model/format/text.h"

namespace artery::model {
namespace {

constexpr std::uint64_t kPartsMax = 10'000;

// What must be alike in all parts, where they have it.
constexpr std::array<std::string_view, 4> kCommonKeys = {
    "split.count", "split.tensors.count", "general.architecture", "general.name"
};

std::string value_text(const GgufValue& value) {
  if (const auto* text = std::get_if<std::string_view>(&value.value))
    return fmt::format("'{}'", printable(*text));
  if (const auto* number = std::get_if<std::uint64_t>(&value.value))
    return fmt::format("{}", *number);
  if (const auto* number = std::get_if<std::int64_t>(&value.value))
    return fmt::format("{}", *number);
  return std::string(name(value.type));
}

Result<> check_alike(const GgufFile& first, const GgufFile& other) {
  for (const std::string_view key : kCommonKeys) {
    const GgufValue* a = first.find_key(key);
    const GgufValue* b = other.find_key(key);
    if (a == nullptr || b == nullptr || value_text(*a) == value_text(*b)) continue;
    return fail(
        Code::kBadFile,
        "{}: {} is {}, but in {} it is {}: parts of different models",
        other.path(),
        key,
        value_text(*b),
        first.path(),
        value_text(*a)
    );
  }
  return {};
}

// The files of all parts, or what is missing of them.
Result<std::vector<std::string>> part_paths(
    const std::string& path, const PartName& part, const FileSystem& fs
) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  std::vector<std::string> paths;
  std::vector<std::string> missing;
  for (std::uint64_t i = 1; i <= part.count; ++i) {
    paths.push_back(folder + part.sibling(i));
    if (!fs.map(paths.back())) missing.push_back(part.sibling(i));
  }
  if (missing.empty()) return paths;
  const std::size_t shown = std::min<std::size_t>(missing.size(), 5);
  return fail(
      Code::kBadFile,
      "{}: {} of {} parts found; missing: {}{}; fetch them into the same folder",
      path,
      part.count - missing.size(),
      part.count,
      fmt::join(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      missing.size() > shown ? fmt::format(" and {} more", missing.size() - shown) : ""
  );
}

}  // namespace

Result<std::unique_ptr<SplitGguf>> SplitGguf::open(const std::string& path, const FileSystem& fs) {
  const std::size_t slash = path.rfind('/');
  const PartName part = parse_part_name(std::string_view(path).substr(slash + 1));
  const auto given = TRY(GgufFile::open(path, fs));
  const std::uint64_t count = TRY(given->get_unsigned("split.count"));
  if (part.number == 0 || part.count != count || count > kPartsMax) {
    const std::uint64_t index = TRY(given->get_unsigned("split.no"));
    return fail(
        Code::kBadFile,
        "{}: split.count is {} and split.no {}, so this is part {} of {}, but its name is not of "
        "the form NAME-{:05}-of-{:05}.gguf; give it its name, beside the other parts",
        path,
        count,
        index,
        index + 1,
        count,
        index + 1,
        count
    );
  }
  std::unique_ptr<SplitGguf> out(new SplitGguf);
  out->path_ = path;
  for (const std::string& one : TRY(part_paths(path, part, fs)))
    out->parts_.push_back(TRY(GgufFile::open(one, fs)));
  TRY(out->join());
  return out;
}

Result<> SplitGguf::join() {
  const GgufFile& first = *parts_[0];
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const GgufFile& part = *parts_[i];
    const std::uint64_t number = TRY(part.get_unsigned("split.no"));
    if (number != i) {
      return fail(
          Code::kBadFile,
          "{}: split.no is {}, but its name makes it part {} (split.no {})",
          part.path(),
          number,
          i + 1,
          i
      );
    }
    TRY(check_alike(first, part));
    for (TensorInfo info : part.tensors()) {
      info.file = static_cast<std::uint32_t>(i);
      tensors_.push_back(std::move(info));
    }
    warnings_.insert(warnings_.end(), part.warnings().begin(), part.warnings().end());
  }
  keys_.assign(first.metadata().begin(), first.metadata().end());
  TRY(order_keys());
  TRY(order_tensors());
  const std::uint64_t total = TRY(first.get_unsigned("split.tensors.count"));
  if (total == tensors_.size()) return {};
  return fail(
      Code::kBadFile,
      "{}: split.tensors.count is {}, but the {} parts have {} tensors: parts of different models?",
      path_,
      total,
      parts_.size(),
      tensors_.size()
  );
}

std::string SplitGguf::format() const {
  return fmt::format("{}, {} parts", parts_[0]->format(), parts_.size());
}

std::vector<std::string> SplitGguf::file_names() const {
  std::vector<std::string> out;
  for (const auto& part : parts_) out.push_back(part->path());
  return out;
}

std::vector<const MappedFile*> SplitGguf::files() const {
  std::vector<const MappedFile*> out;
  for (const auto& part : parts_) out.push_back(part->files()[0]);
  return out;
}

}  // namespace artery::model
