#include "model/load.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "model/digest.h"
#include "model/digest_cache.h"
#include "model/registry.h"
#include "model/tokenizer_check.h"

namespace artery::model {
namespace {

// A part opened by itself (not through open_model).
Result<> refuse_part(const ModelFile& file) {
  if (file.find_key("split.count") == nullptr) return {};
  const std::uint64_t count = TRY(file.get_unsigned("split.count"));
  if (count <= file.files().size() || count <= 1) return {};
  return fail(
      Code::kBadFile,
      "{}: one of {} parts of a split model (split.count), opened without the others",
      file.path(),
      count
  );
}

Result<> refuse_bare(const ModelFile& file) {
  if (!file.metadata().empty() || !file.path().ends_with(".safetensors")) return {};
  return fail(
      Code::kBadFile,
      "{}: a safetensors file without config.json beside it is no model; give the model's folder",
      file.path()
  );
}

// Of one file, kept from start to start. Hashing reads the file once, front to back, so that
// packing finds it in the page cache.
std::string file_digest(
    const MappedFile& file, const DigestCache& digests, tensor::ComputePool& pool
) {
  if (std::optional<std::string> known = digests.find(file.stamp())) return *std::move(known);
  std::string digest = tree_digest(file.bytes(), pool);
  const bool kept = digests.store(file.stamp(), digest, system_clock().unix_ms() * 1'000'000);
  log_debug("hashed {} bytes; {}", file.bytes().size(), kept ? "kept" : "not kept");
  return digest;
}

}  // namespace

std::string weights_digest(
    const ModelFile& file, const std::string& folder, tensor::ComputePool& pool
) {
  const DigestCache digests(folder);
  std::string all;
  for (const MappedFile* part : file.files()) all += file_digest(*part, digests, pool);
  if (file.files().size() == 1) return all;
  return hex(sha256(std::as_bytes(std::span(all))));
}

Result<ModelInfo> check_model(const ModelFile& file) {
  TRY(refuse_bare(file));
  TRY(refuse_part(file));
  const Architecture* architecture = TRY(find_architecture(file));
  ModelInfo info = TRY(architecture->check(file));
  // A folder's tokenizer is a file of its own; who builds it checks it.
  if (file.folder().empty()) TRY(check_tokenizer(file, info.vocab_size, info.warnings));
  return info;
}

Result<std::unique_ptr<Model>> load_model(
    const ModelFile& file, tensor::Backend& backend, const LoadOptions& options
) {
  ModelInfo info = TRY(check_model(file));
  const Architecture* architecture = TRY(find_architecture(file));
  info.weights_digest = weights_digest(file, options.digest_folder, backend.pool());
  if (options.context_max > 0)
    info.context_length = std::min(info.context_length, options.context_max);
  return architecture->load(file, std::move(info), backend, options);
}

}  // namespace artery::model
