#include "model/format/hf_folder.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/format/hf_shards.h"
#include "model/format/hf_tensors.h"

namespace artery::model {
namespace {

constexpr std::size_t kConfigBytesMax = std::size_t{16} << 20;

// "b" of "/a/b".
std::string last_part(const std::string& folder) {
  const std::size_t slash = folder.rfind('/');
  const std::string name = slash == std::string::npos ? folder : folder.substr(slash + 1);
  return name.empty() || name == "." || name == ".." ? "model" : name;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Result<std::unique_ptr<HfFolder>> HfFolder::open(
    const std::string& folder, const std::vector<std::string>& names, const FileSystem& fs
) {
  std::unique_ptr<HfFolder> out(new HfFolder);
  out->path_ = folder;
  const std::string config_path = folder + "/config.json";
  out->config_ = TRY(fs.map(config_path));
  if (out->config_->bytes().size() > kConfigBytesMax) {
    return fail(
        Code::kBadFile,
        "{}: {} bytes, the limit is {}",
        config_path,
        out->config_->bytes().size(),
        kConfigBytesMax
    );
  }
  const HfConfig config = TRY(HfConfig::parse(config_path, as_text(out->config_->bytes())));
  const HfFamily& family = *TRY(find_hf_family(config));
  const HfSizes sizes = TRY(read_hf_sizes(config, family));
  out->metadata_ = TRY(read_hf_metadata(config, family, sizes, last_part(folder)));
  out->shards_ = TRY(open_hf_shards(folder, names, fs, out->warnings_));
  HfTensors mapped =
      TRY(map_hf_tensors(folder, config, family, sizes, out->shards_, out->metadata_.tensors));
  out->tensors_ = std::move(mapped.tensors);
  out->recipes_ = std::move(mapped.recipes);
  for (auto* more : {&mapped.warnings, &out->metadata_.warnings})
    out->warnings_.insert(out->warnings_.end(), more->begin(), more->end());
  out->keys_ = out->metadata_.store.keys();
  TRY(out->order_keys());
  TRY(out->order_tensors());
  for (const MappedFile* file : out->files()) out->bytes_.push_back(file->bytes());
  return out;
}

std::string HfFolder::format() const {
  const std::size_t count = shards_.size();
  return fmt::format("safetensors, {} file{}", count, count == 1 ? "" : "s");
}

std::vector<const MappedFile*> HfFolder::files() const {
  std::vector<const MappedFile*> out{config_.get()};
  for (const SafetensorsFile& shard : shards_) out.push_back(&shard.file());
  return out;
}

std::vector<std::string> HfFolder::file_names() const {
  std::vector<std::string> out{path_ + "/config.json"};
  for (const SafetensorsFile& shard : shards_) out.push_back(shard.path());
  return out;
}

Result<std::span<const std::byte>> HfFolder::rows(
    const TensorInfo& tensor,
    std::int64_t first,
    std::int64_t count,
    std::vector<std::byte>& scratch
) const {
  auto out = lay_rows(recipe(tensor), tensor, bytes_, first, count, scratch);
  if (!out) return fail(out.error().code, "{}: {}", path_, out.error().message);
  return out;
}

void HfFolder::release(const TensorInfo& tensor) const {
  const std::vector<const MappedFile*> all = files();
  const HfRecipe& made_of = recipe(tensor);
  for (const auto* parts : {&made_of.parts, &made_of.scales})
    for (const HfPart& part : *parts) all[part.file]->release(part.offset, part.bytes);
}

Result<std::unique_ptr<BareSafetensors>> BareSafetensors::open(
    const std::string& path, const FileSystem& fs
) {
  SafetensorsFile file = TRY(SafetensorsFile::open(path, fs));
  std::unique_ptr<BareSafetensors> out(new BareSafetensors(std::move(file)));
  out->path_ = path;
  for (const StTensor& tensor : out->file_.tensors()) {
    TensorInfo info;
    info.name = tensor.name;
    info.type = plain_type(tensor.type);
    info.shape.assign(tensor.shape.rbegin(), tensor.shape.rend());
    // Types of less than a byte are shown as the bytes they fill.
    if (bits(tensor.type) < 8) info.shape = {static_cast<std::int64_t>(tensor.bytes)};
    if (info.shape.empty()) info.shape = {1};
    info.offset = tensor.offset;
    info.bytes = tensor.bytes;
    info.source_type = model::name(tensor.type);
    out->tensors_.push_back(std::move(info));
  }
  TRY(out->order_tensors());
  return out;
}

Result<std::span<const std::byte>> BareSafetensors::
    rows(const TensorInfo& tensor, std::int64_t first, std::int64_t count, std::vector<std::byte>&)
        const {
  const std::uint64_t row = tensor.row_bytes();
  return file_.file().bytes().subspan(
      tensor.offset + static_cast<std::uint64_t>(first) * row,
      static_cast<std::uint64_t>(count) * row
  );
}

}  // namespace artery::model
