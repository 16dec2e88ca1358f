#include "model/format/hf_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "model/format/json.h"
#include "model/format/text.h"

namespace artery::model {
namespace {

constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::size_t kIndexBytesMax = std::size_t{256} << 20;
constexpr std::size_t kShownMax = 5;

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string some(const std::vector<std::string>& all) {
  const std::size_t shown = std::min(all.size(), kShownMax);
  std::string out = fmt::format(
      "{}", fmt::join(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), ", ")
  );
  return all.size() > shown ? fmt::format("{} and {} more", out, all.size() - shown) : out;
}

class ShardOpener {
 public:
  ShardOpener(
      const std::string& folder,
      const std::vector<std::string>& names,
      const FileSystem& fs,
      std::vector<std::string>& warnings
  )
      : folder_(folder), names_(names), fs_(fs), warnings_(warnings) {}

  Result<std::vector<SafetensorsFile>> run() {
    TRY(has(names_, kIndex) ? read_index() : choose());
    TRY(check_all_here());
    for (const auto& [name, count] : shards_)
      out_.push_back(TRY(SafetensorsFile::open(folder_ + "/" + name, fs_)));
    TRY(check_tensors());
    return std::move(out_);
  }

 private:
  template <typename... Args>
  tl::unexpected<Error> bad(fmt::format_string<Args...> text, Args&&... args) const {
    return fail(Code::kBadFile, "{}: {}", folder_, fmt::format(text, std::forward<Args>(args)...));
  }

  Result<> read_index() {
    const std::string path = fmt::format("{}/{}", folder_, kIndex);
    const std::string text = TRY(fs_.read(path, kIndexBytesMax));
    Result<JsonValue> root = parse_json(text);
    if (!root) return fail(Code::kBadFile, "{}: the file {}", path, root.error().message);
    const JsonValue* map = root->find("weight_map");
    if (map == nullptr || map->object() == nullptr || map->object()->empty())
      return fail(Code::kBadFile, "{}: weight_map is missing or empty", path);
    for (const JsonMember& member : *map->object()) {
      const std::string* shard = member.value.text();
      if (shard == nullptr || shard->empty() || shard->find('/') != std::string::npos ||
          shard->find('\0') != std::string::npos) {
        return fail(
            Code::kBadFile,
            "{}: weight_map gives tensor {} the file '{}', expected a name in this folder",
            path,
            printable(member.name),
            shard == nullptr ? "" : printable(*shard)
        );
      }
      if (!index_.emplace(member.name, *shard).second) {
        return fail(Code::kBadFile, "{}: duplicate tensor name {}", path, printable(member.name));
      }
      ++shards_[*shard];
    }
    return {};
  }

  // Without an index: model.safetensors, or the only one, or one set of parts.
  Result<> choose() {
    std::vector<std::string> found;
    for (const std::string& name : names_)
      if (name.ends_with(".safetensors")) found.push_back(name);
    if (has(found, "model.safetensors")) found = {"model.safetensors"};
    if (found.empty()) return none();
    const PartName part = parse_part_name(found[0]);
    if (part.number != 0 && part.count <= 100'000) {
      for (const std::string& name : found) {
        const PartName other = parse_part_name(name);
        if (other.stem != part.stem || other.count != part.count) return several(found);
      }
      for (std::uint64_t i = 1; i <= part.count; ++i) shards_[part.sibling(i)] = 0;
      return {};
    }
    if (found.size() > 1) return several(found);
    shards_[found[0]] = 0;
    return {};
  }

  Result<> none() const {
    for (const std::string& name : names_) {
      if (!name.ends_with(".bin") && !name.ends_with(".pt") && !name.ends_with(".pth")) continue;
      return fail(
          Code::kUnsupported,
          "{}: no safetensors files, only {}: PyTorch's own format runs code when it is read and "
          "is "
          "not supported; use a safetensors release of the model",
          folder_,
          printable(name)
      );
    }
    for (const std::string& name : names_) {
      if (name.ends_with(".incomplete"))
        return bad("no safetensors files, only {}; finish the download", printable(name));
    }
    return bad("no safetensors files beside config.json; finish the download");
  }

  Result<> several(const std::vector<std::string>& found) const {
    return bad(
        "{} safetensors files and no {}: {}; leave one model in the folder, or add the index",
        found.size(),
        kIndex,
        some(found)
    );
  }

  Result<> check_all_here() const {
    std::vector<std::string> here;
    std::vector<std::string> missing;
    std::size_t lost = 0;
    for (const auto& [name, count] : shards_) {
      const bool found = has(names_, name) && !TRY(fs_.map(folder_ + "/" + name))->bytes().empty();
      (found ? here : missing).push_back(printable(name));
      if (!found) lost += count;
    }
    if (missing.empty()) return {};
    const std::string tensors =
        index_.empty() ? "" : fmt::format(", with {} of {} tensors", lost, index_.size());
    return bad(
        "{} of {} shards found{}; missing or empty: {}{}; finish the download",
        here.size(),
        shards_.size(),
        here.empty() ? "" : fmt::format(" ({})", some(here)),
        some(missing),
        tensors
    );
  }

  Result<> check_tensors() {
    std::map<std::string_view, const SafetensorsFile*> seen;
    std::vector<std::string> extra;
    for (const SafetensorsFile& shard : out_) {
      for (const StTensor& tensor : shard.tensors()) {
        const auto [at, fresh] = seen.emplace(tensor.name, &shard);
        if (!fresh) {
          return bad(
              "tensor {} is in {} and in {}: parts of different models?",
              printable(tensor.name),
              at->second->path(),
              shard.path()
          );
        }
        if (!index_.empty() && !index_.contains(tensor.name))
          extra.push_back(printable(tensor.name));
      }
    }
    std::vector<std::string> absent;
    for (const auto& [name, shard] : index_) {
      const auto at = seen.find(name);
      const bool there = at != seen.end() && at->second->path() == folder_ + "/" + shard;
      if (!there) absent.push_back(fmt::format("{} (in {})", printable(name), printable(shard)));
    }
    if (!absent.empty()) {
      return bad(
          "{} of {} tensors that {} names are not where it says: {}; fetch the folder again",
          absent.size(),
          index_.size(),
          kIndex,
          some(absent)
      );
    }
    if (!extra.empty()) {
      warnings_.push_back(fmt::format(
          "{}: {} tensors are not in {}: {}", folder_, extra.size(), kIndex, some(extra)
      ));
    }
    return {};
  }

  const std::string& folder_;
  const std::vector<std::string>& names_;
  const FileSystem& fs_;
  std::vector<std::string>& warnings_;
  std::map<std::string, std::string, std::less<>> index_;  // tensor to shard
  std::map<std::string, std::size_t> shards_;              // to its tensors in the index
  std::vector<SafetensorsFile> out_;
};

}  // namespace

Result<std::vector<SafetensorsFile>> open_hf_shards(
    const std::string& folder,
    const std::vector<std::string>& names,
    const FileSystem& fs,
    std::vector<std::string>& warnings
) {
  return ShardOpener(folder, names, fs, warnings).run();
}

PartName parse_part_name(std::string_view name) {
  PartName out;
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return out;
  std::string_view rest = name.substr(0, dot);
  const std::size_t of = rest.rfind("-of-");
  if (of == std::string_view::npos) return out;
  const std::size_t dash = rest.substr(0, of).rfind('-');
  if (dash == std::string_view::npos) return out;
  auto number = [](std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = why == std::errc() && end == text.data() + text.size() && text.size() == 5;
    return whole ? value : 0;
  };
  const std::uint64_t count = number(rest.substr(of + 4));
  const std::uint64_t index = number(rest.substr(dash + 1, of - dash - 1));
  if (index == 0 || index > count) return out;
  return {rest.substr(0, dash), name.substr(dot), index, count};
}

std::string PartName::sibling(std::uint64_t other) const {
  return fmt::format("{}-{:05}-of-{:05}{}", stem, other, count, extension);
}

}  // namespace artery::model
