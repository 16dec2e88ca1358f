#include "model/load.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "model/digest.h"
#include "model/digest_cache.h"
#include "model/registry.h"
#include "model/tokenizer_check.h"

namespace artery::model {
namespace {

Result<> refuse_split(const GgufFile& file) {
  if (file.find_key("split.count") == nullptr) return {};
  const std::uint64_t count = TRY(file.get_unsigned("split.count"));
  if (count <= 1) return {};
  return fail(
      Code::kUnsupported,
      "{}: one of {} parts of a split model (split.count); split files are not supported yet: join "
      "the parts into one file (llama-gguf-split --merge)",
      file.path(),
      count
  );
}

}  // namespace

Result<ModelInfo> check_model(const GgufFile& file) {
  TRY(refuse_split(file));
  const Architecture* architecture = TRY(find_architecture(file));
  ModelInfo info = TRY(architecture->check(file));
  TRY(check_tokenizer(file, info.vocab_size, info.warnings));
  return info;
}

Result<std::unique_ptr<Model>> load_model(
    const GgufFile& file, tensor::Backend& backend, const LoadOptions& options
) {
  ModelInfo info = TRY(check_model(file));
  const Architecture* architecture = TRY(find_architecture(file));
  const DigestCache digests(options.digest_folder);
  if (std::optional<std::string> known = digests.find(file.stamp())) {
    info.weights_digest = *std::move(known);
  } else {
    // Hashing reads the file once, front to back, so that packing finds it in the page cache.
    info.weights_digest = tree_digest(file.file_contents(), backend.pool());
    const bool kept =
        digests.store(file.stamp(), info.weights_digest, system_clock().unix_ms() * 1'000'000);
    log_debug("hashed {} bytes; {}", file.file_bytes(), kept ? "kept" : "not kept");
  }
  if (options.context_max > 0)
    info.context_length = std::min(info.context_length, options.context_max);
  return architecture->load(file, std::move(info), backend, options);
}

}  // namespace artery::model
