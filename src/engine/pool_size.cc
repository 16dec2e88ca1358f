#include "engine/pool_size.h"

#include <algorithm>

#include "base/check.h"
#include "engine/kv_pool.h"
#include "engine/scheduler.h"

namespace artery::engine {
namespace {

constexpr std::int64_t kContextMin = 64;       // tokens; less serves nobody
constexpr std::int64_t kPagesMax = 1 << 30;    // PageId is 32 bits
constexpr std::int64_t kDefaultSequences = 2;  // full contexts in a pool of default size
constexpr std::int64_t kUnknown = std::int64_t{1} << 50;
constexpr std::int64_t kCountedPages = 1
                                       << 18;  // of 0 bytes, but the caches have an entry for each

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

std::string limit_text(const Config& config, std::int64_t available) {
  if (config.kv_pool_bytes > 0) {
    return fmt::format("--kv-pool-bytes gives {:.1f} MiB", mib(config.kv_pool_bytes));
  }
  return fmt::format("{:.1f} MiB of memory are available", mib(available));
}

Result<PoolSize> size_global(
    const Config& config, std::int64_t wanted_len, std::int64_t available, PoolSize out
) {
  const bool explicit_len = config.max_model_len > 0;
  std::int64_t pages_max = 0;  // that one sequence may take
  if (config.kv_pool_bytes > 0) {
    out.pages = TRY(pages_of_flag(config, out.page_bytes, available));
    pages_max = out.pages;
  } else {
    // Asked for explicitly, a context may take what is there; by default a quarter of it.
    const std::int64_t share = explicit_len ? available : available / 4;
    pages_max = std::min(share / out.page_bytes, kPagesMax);
    const std::int64_t plenty = kDefaultSequences * pages_for(wanted_len);
    const std::int64_t modest = std::min(available / 4 / out.page_bytes, kPagesMax);
    out.pages = std::max(std::min(plenty, modest), std::min(pages_for(wanted_len), pages_max));
  }
  out.max_model_len = std::min(wanted_len, pages_max * kPageTokens);
  const bool usable = out.max_model_len >= std::min(kContextMin, wanted_len);
  if ((explicit_len && out.max_model_len < wanted_len) || !usable) {
    const std::int64_t bytes = pages_for(wanted_len) * out.page_bytes;
    return too_long(wanted_len, bytes, limit_text(config, available), out.max_model_len);
  }
  return out;
}

// What the sizes of a model with window groups depend on.
struct WindowBudget {
  std::int64_t page_bytes;
  std::int64_t window_page_bytes;
  WindowShape shape;
  std::int64_t step_tokens;

  std::int64_t running(std::int64_t sequences, std::int64_t tokens) const {
    return window_pages_running(shape, sequences, step_tokens, tokens);
  }
  // Of one sequence.
  std::int64_t bytes(std::int64_t tokens) const {
    return pages_for(tokens) * page_bytes + running(1, tokens) * window_page_bytes;
  }
  // Longest context, in whole pages, of which one sequence fits into `limit` bytes.
  std::int64_t longest(std::int64_t limit, std::int64_t tokens_max) const {
    std::int64_t low = 0;
    std::int64_t high = pages_for(tokens_max);
    while (low < high) {
      const std::int64_t middle = low + (high - low + 1) / 2;
      if (bytes(middle * kPageTokens) <= limit) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low * kPageTokens;
  }
};

// Divides `budget` bytes, of which one sequence takes no more. Windows get half, or all but what
// `plenty` global pages take; room for saved ones is added, as far as it costs no sequence its
// slot.
void split(PoolSize& out, const WindowBudget& of, std::int64_t budget, std::int64_t plenty) {
  const std::int64_t least = pages_for(out.max_model_len) * of.page_bytes;
  const std::int64_t cap =
      std::min(std::max(budget / 2, budget - plenty * of.page_bytes), budget - least);
  const std::int64_t pages_max = cap / of.window_page_bytes;
  const auto running = [&](std::int64_t slots) { return of.running(slots, out.max_model_len); };
  const auto with_quarter = [&](std::int64_t slots) { return running(slots) / 4 + running(slots); };
  while (out.slots > 1 && with_quarter(out.slots) > pages_max) --out.slots;
  out.window_pages_running = running(out.slots);
  const std::int64_t room = (budget - least) / of.window_page_bytes;
  CHECK(room >= out.window_pages_running);
  const std::int64_t saved = window_pages_saved(
      of.shape,
      out.window_pages_running,
      of.page_bytes > 0 ? budget / (of.page_bytes + of.window_page_bytes) : kPagesMax
  );
  out.window_pages = std::max(
      std::min(with_quarter(out.slots), room), std::min(out.window_pages_running + saved, pages_max)
  );
}

Result<PoolSize> size_windowed(
    const Config& config,
    const WindowBudget& of,
    std::int64_t wanted_len,
    std::int64_t available,
    PoolSize out
) {
  const bool explicit_len = config.max_model_len > 0;
  const bool explicit_pool = config.kv_pool_bytes > 0;
  if (explicit_pool) TRY(pages_of_flag(config, of.page_bytes + of.window_page_bytes, available));
  const std::int64_t share = explicit_len ? available : available / 4;
  const std::int64_t limit = explicit_pool ? config.kv_pool_bytes : share;
  const std::int64_t longest = of.longest(limit, wanted_len);
  out.max_model_len = std::min(wanted_len, longest);
  const bool usable = out.max_model_len >= std::min(kContextMin, wanted_len);
  if ((explicit_len && out.max_model_len < wanted_len) || !usable) {
    return too_long(wanted_len, of.bytes(wanted_len), limit_text(config, available), longest);
  }
  const std::int64_t plenty = kDefaultSequences * pages_for(wanted_len);
  std::int64_t budget = config.kv_pool_bytes;
  if (!explicit_pool) {
    // Never more than if its windows were as long as the context.
    const std::int64_t all = plenty * (of.page_bytes + of.window_page_bytes);
    budget = std::max(std::min(all, available / 4), of.bytes(out.max_model_len));
  }
  split(out, of, budget, plenty);
  if (of.page_bytes > 0) {
    const std::int64_t pages = (budget - out.window_bytes()) / of.page_bytes;
    out.pages = std::min(pages, explicit_pool ? kPagesMax : plenty);
  } else {
    // What is known of prefixes, whose windows may be saved.
    if (explicit_pool) out.window_pages = std::min(budget / of.window_page_bytes, kPagesMax);
    const std::int64_t one = pages_for(out.max_model_len);
    out.pages = std::max(one, std::min(kCountedPages, kDefaultSequences * out.slots * one));
  }
  return out;
}

}  // namespace

std::int64_t window_pages_running(
    const WindowShape& shape,
    std::int64_t sequences,
    std::int64_t step_tokens,
    std::int64_t max_model_len
) {
  // Each has the window before its last whole page, the rest of that page and the rows of two
  // steps, which they share.
  const std::int64_t whole = pages_for(max_model_len);
  const std::int64_t windows = sequences * (shape.pages() + 2) + pages_for(2 * step_tokens);
  return std::min(sequences * whole, windows);
}

std::int64_t window_pages_saved(
    const WindowShape& shape, std::int64_t running, std::int64_t pages
) {
  constexpr std::int64_t kWindows = 8;  // conversations that go on, one after the other
  return std::max(running / 4, std::min(kWindows * shape.pages(), pages - running));
}

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
  const std::int64_t available = memory_available < 0 ? kUnknown : memory_available;
  const bool explicit_len = config.max_model_len > 0;
  const std::int64_t wanted_len = explicit_len ? config.max_model_len : info.context_length;
  PoolSize out;
  out.slots = std::min(config.max_num_seqs, config.max_num_batched_tokens);
  out.page_bytes = KvPool::page_bytes(layout, model::KvKind::kGlobal);
  out.window_page_bytes = KvPool::page_bytes(layout, model::KvKind::kWindow);
  if (const WindowShape shape = WindowShape::of(layout)) {
    const WindowBudget of{
        out.page_bytes, out.window_page_bytes, shape, config.max_num_batched_tokens
    };
    return size_windowed(config, of, wanted_len, available, out);
  }
  return size_global(config, wanted_len, available, out);
}

}  // namespace artery::engine
