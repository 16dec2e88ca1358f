#include "engine/pool_size.h"

#include <algorithm>

#include "engine/kv_pool.h"
#include "engine/scheduler.h"

namespace artery::engine {
namespace {

constexpr std::int64_t kContextMin = 64;       // tokens; less serves nobody
constexpr std::int64_t kPagesMax = 1 << 30;    // PageId is 32 bits
constexpr std::int64_t kDefaultSequences = 2;  // full contexts in a pool of default size
constexpr std::int64_t kUnknown = std::int64_t{1} << 50;

double mib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// A size the user gave.
Result<std::int64_t> pages_of_flag(
    const Config& config, std::int64_t page_bytes, std::int64_t available
) {
  const std::int64_t pages = std::min(config.kv_pool_bytes / page_bytes, kPagesMax);
  if (pages < 1) {
    return fail_field(
        "--kv-pool-bytes",
        "--kv-pool-bytes {} is less than one KV page of {} bytes",
        config.kv_pool_bytes,
        page_bytes
    );
  }
  if (config.kv_pool_bytes > available) {
    return fail(
        Code::kOutOfMemory,
        "--kv-pool-bytes {} ({:.1f} MiB) is more than the {:.1f} MiB of memory available; lower it",
        config.kv_pool_bytes,
        mib(config.kv_pool_bytes),
        mib(available)
    );
  }
  return pages;
}

tl::unexpected<Error> too_long(
    std::int64_t tokens, std::int64_t bytes, std::string_view limit, std::int64_t fits
) {
  return fail(
      Code::kOutOfMemory,
      "a context of {} tokens needs {:.1f} MiB of KV cache and {}; at most {} tokens fit: set "
      "--max-model-len {} or lower, or change --kv-pool-bytes",
      tokens,
      mib(bytes),
      limit,
      fits,
      fits
  );
}

}  // namespace

Result<PoolSize> size_pool(
    const Config& config,
    const model::ModelInfo& info,
    const model::KvLayout& layout,
    std::int64_t memory_available
) {
  if (config.max_model_len > info.context_length) {
    return fail_field(
        "--max-model-len",
        "--max-model-len {} is beyond the context of {} tokens this model was made for",
        config.max_model_len,
        info.context_length
    );
  }
  const std::int64_t page_bytes = KvPool::page_bytes(layout);
  const std::int64_t available = memory_available < 0 ? kUnknown : memory_available;
  const bool explicit_len = config.max_model_len > 0;
  const std::int64_t wanted_len = explicit_len ? config.max_model_len : info.context_length;
  PoolSize out;
  std::int64_t pages_max = 0;  // that one sequence may take
  if (config.kv_pool_bytes > 0) {
    out.pages = TRY(pages_of_flag(config, page_bytes, available));
    pages_max = out.pages;
  } else {
    // Asked for explicitly, a context may take what is there; by default a quarter of it.
    const std::int64_t share = explicit_len ? available : available / 4;
    pages_max = std::min(share / page_bytes, kPagesMax);
    const std::int64_t plenty = kDefaultSequences * pages_for(wanted_len);
    const std::int64_t modest = std::min(available / 4 / page_bytes, kPagesMax);
    out.pages = std::max(std::min(plenty, modest), std::min(pages_for(wanted_len), pages_max));
  }
  out.max_model_len = std::min(wanted_len, pages_max * kPageTokens);
  const bool usable = out.max_model_len >= std::min(kContextMin, wanted_len);
  if ((explicit_len && out.max_model_len < wanted_len) || !usable) {
    const std::string limit =
        config.kv_pool_bytes > 0
            ? fmt::format("--kv-pool-bytes gives {:.1f} MiB", mib(config.kv_pool_bytes))
            : fmt::format("{:.1f} MiB of memory are available", mib(available));
    const std::int64_t bytes = pages_for(wanted_len) * page_bytes;
    return too_long(wanted_len, bytes, limit, out.max_model_len);
  }
  return out;
}

}  // namespace artery::engine
