#include "cli/memory_plan.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/chain_key.h"
#include "base/file_system.h"
#include "cli/report.h"
#include "engine/kv_pool.h"
#include "engine/pool_size.h"

namespace artery::cli {
namespace {

using model::MemoryNeeds;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
// The rest of the machine needs room, and so do answers under way.
constexpr std::int64_t kHeadroomMin = 64 * kMiB;
constexpr std::int64_t kHeadroomShare = 20;
// Room for several conversations and their cached prefixes, without taking over the machine.
constexpr std::int64_t kContexts = 4;
constexpr std::int64_t kPoolShare = 4;
// Rows of a step that want all logits of a prompt (engine/scheduler.h, logits_max).
constexpr std::int64_t kPromptLogits = 64;
// Partial results of attention are kept up to here (tensor/fast_attention.cc).
constexpr std::int64_t kPartialsMax = 64 * kMiB;
// A page's place in the lists and in the prefix cache; stacks, connections, what malloc holds back.
constexpr std::int64_t kPageBytes = 320;
constexpr std::int64_t kEngineBytes = 8 * kMiB;
constexpr std::int64_t kUnknown = std::int64_t{1} << 50;
constexpr std::int64_t kShortestContext = 1024;

std::int64_t whole_pages(std::int64_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens * kPageTokens;
}

std::string text_of(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

// The bytes of everything at a context and a pool, both chosen by the caller.
class Sizes {
 public:
  Sizes(const MemoryNeeds& needs, const PlanWish& wish) : needs_(needs), wish_(wish) {}

  // A page of the global groups, of the window groups.
  std::int64_t page_bytes() const {
    return engine::KvPool::page_bytes(needs_.kv, model::KvKind::kGlobal);
  }
  std::int64_t window_bytes(std::int64_t context, std::int64_t sequences) const {
    const auto shape = engine::WindowShape::of(needs_.kv);
    if (!shape || sequences == 0) return 0;
    return engine::window_pages_running(shape, sequences, wish_.batch, context) *
           engine::KvPool::page_bytes(needs_.kv, model::KvKind::kWindow);
  }
  // Of windows kept beside those of so many running sequences.
  std::int64_t saved_window_bytes(std::int64_t context, std::int64_t sequences) const {
    const auto shape = engine::WindowShape::of(needs_.kv);
    if (!shape || sequences == 0) return 0;
    const std::int64_t running =
        engine::window_pages_running(shape, sequences, wish_.batch, context);
    const std::int64_t pages = kContexts * whole_pages(context) / kPageTokens;
    return engine::window_pages_saved(shape, running, page_bytes() > 0 ? pages : kUnknown) *
           engine::KvPool::page_bytes(needs_.kv, model::KvKind::kWindow);
  }
  std::int64_t kv(std::int64_t context, std::int64_t sequences) const {
    return sequences * whole_pages(context) / kPageTokens * page_bytes() +
           window_bytes(context, sequences);
  }
  std::int64_t tables(std::int64_t context) const {
    return context * needs_.table_bytes_per_position;
  }
  std::int64_t logits() const {
    const std::int64_t rows = std::min<std::int64_t>(wish_.batch, wish_.sequences + kPromptLogits);
    return rows * needs_.logit_row_bytes;
  }
  // `tokens`: of the pool.
  std::int64_t activations(std::int64_t tokens) const {
    const std::int64_t partials =
        wish_.threads > 1 ? std::min(kPartialsMax, tokens * needs_.partial_bytes_per_position) : 0;
    return wish_.batch * needs_.row_bytes + wish_.threads * needs_.thread_bytes + partials;
  }
  std::int64_t engine(std::int64_t tokens) const {
    return kEngineBytes + tokens / kPageTokens * kPageBytes;
  }
  // What does not depend on context and pool.
  std::int64_t fixed() const {
    return needs_.resident_weight_bytes + activations(0) + logits() + engine(0) + wish_.store_bytes;
  }
  // All that `sequences` of this context add to that.
  std::int64_t growing(std::int64_t context, std::int64_t sequences) const {
    const std::int64_t tokens = sequences * whole_pages(context);
    return kv(context, sequences) + tables(context) + activations(tokens) - activations(0) +
           engine(tokens) - engine(0);
  }

 private:
  const MemoryNeeds& needs_;
  const PlanWish& wish_;
};

// The largest n in [0, most] with fits(n), which holds up to some n and not beyond.
template <typename Fits>
std::int64_t largest(std::int64_t most, const Fits& fits) {
  std::int64_t low = 0;
  while (low < most) {
    const std::int64_t middle = low + (most - low + 1) / 2;
    if (fits(middle))
      low = middle;
    else
      most = middle - 1;
  }
  return low;
}

tl::unexpected<Error> too_large(
    const MemoryPlan& plan, const Sizes& sizes, std::int64_t wanted, std::int64_t fitting
) {
  const std::int64_t usable = plan.limit_bytes - plan.process_bytes;
  if (plan.weight_bytes > usable)
    return fail(
        Code::kOutOfMemory,
        "the weights need {}, {} can be used: take a smaller model or quantization, or a machine "
        "with more memory",
        text_of(plan.weight_bytes),
        text_of(usable)
    );
  const std::string shares = fmt::format(
      "{} can be used; weights take {}, a step of {} rows and {} sequences {}{}, {} are left free",
      text_of(usable),
      text_of(plan.weight_bytes),
      plan.batch,
      plan.sequences,
      text_of(sizes.fixed() - plan.weight_bytes - plan.store_bytes),
      plan.store_bytes == 0
          ? std::string()
          : fmt::format(
                ", the KV store {} (--kv-dir none does without)", text_of(plan.store_bytes)
            ),
      text_of(plan.headroom_bytes)
  );
  if (fitting < kPageTokens)
    return fail(
        Code::kOutOfMemory,
        "no room for keys and values: {}; lower --max-num-batched-tokens and --max-num-seqs, or "
        "take a smaller quantization",
        shares
    );
  return fail(
      Code::kOutOfMemory,
      "a context of {} tokens needs {} for keys and values and tables, and at most {} tokens fit "
      "({}): set --max-model-len {} or lower",
      wanted,
      text_of(sizes.growing(wanted, 1)),
      fitting,
      shares,
      fitting
  );
}

// With a pool of a size that was asked for, the context must fit into that.
tl::unexpected<Error> pool_too_small(
    const PlanWish& wish, std::int64_t wanted, std::int64_t needed, std::int64_t fitting
) {
  if (fitting < kPageTokens)
    return fail(
        Code::kOutOfMemory,
        "a context of {} tokens needs {} of KV cache and --kv-cache-memory-bytes gives {}, less "
        "than "
        "{} tokens need: raise it",
        wanted,
        text_of(needed),
        text_of(wish.pool_bytes_asked),
        kPageTokens
    );
  return fail(
      Code::kOutOfMemory,
      "a context of {} tokens needs {} of KV cache and --kv-cache-memory-bytes gives {}; at most "
      "{} tokens fit: raise it, or set --max-model-len {} or lower",
      wanted,
      text_of(needed),
      text_of(wish.pool_bytes_asked),
      fitting,
      fitting
  );
}

// The longest whole pages whose KV fits into `bytes`, or all that is wanted.
std::int64_t context_of(const Sizes& sizes, std::int64_t wanted, std::int64_t bytes) {
  if (sizes.kv(wanted, 1) <= bytes) return wanted;
  return kPageTokens * largest(wanted / kPageTokens, [&](std::int64_t n) {
           return sizes.kv(n * kPageTokens, 1) <= bytes;
         });
}

std::int64_t pool_of(
    const Sizes& sizes, const PlanWish& wish, std::int64_t context, std::int64_t budget
) {
  const std::int64_t one = sizes.kv(context, 1);
  const std::int64_t windows = sizes.window_bytes(context, wish.sequences);
  const std::int64_t plenty = sizes.kv(context, kContexts) -
                              sizes.window_bytes(context, kContexts) + windows +
                              sizes.saved_window_bytes(context, wish.sequences);
  return std::max(one, std::min(plenty, budget / kPoolShare));
}

void add_fits(const Sizes& sizes, std::int64_t budget, std::int64_t fixed, MemoryPlan& plan) {
  constexpr std::int64_t kMost = 1 << 20;
  std::vector<std::int64_t> contexts;
  for (std::int64_t c = kShortestContext; c < plan.model_context; c *= 4) contexts.push_back(c);
  contexts.push_back(plan.model_context);
  for (const std::int64_t context : contexts) {
    // Sequences share what two steps under way add to windows (engine/pool_size.h).
    const std::int64_t most =
        largest(kMost, [&](std::int64_t n) { return sizes.growing(context, n) <= budget; });
    plan.fits.push_back({context, most, fixed + sizes.growing(context, 1)});
  }
}

}  // namespace

std::int64_t MemoryPlan::total_bytes() const {
  return weight_bytes + table_bytes + pool_bytes + activation_bytes + logit_bytes + process_bytes +
         engine_bytes + store_bytes;
}

std::string MemoryPlan::text() const {
  return fmt::format(
      "context {} of {}; {:.2f} GiB KV",
      context,
      model_context,
      static_cast<double>(context_bytes) / (1 << 30)
  );
}

Result<MemoryPlan> plan_memory(const MemoryNeeds& needs, const PlanWish& wish) {
  if (wish.context_asked > wish.model_context)
    return fail_field(
        "--max-model-len",
        "{} is beyond the {} tokens the model was made for",
        wish.context_asked,
        wish.model_context
    );
  const Sizes sizes(needs, wish);
  const std::int64_t usable = wish.usable_bytes < 0 ? kUnknown : wish.usable_bytes;
  MemoryPlan plan;
  plan.model_context = wish.model_context;
  plan.weights = needs.weights;
  plan.weight_bytes = needs.resident_weight_bytes;
  plan.global_bytes_per_token = sizes.page_bytes() / kPageTokens;
  plan.window_bytes_per_sequence =
      sizes.window_bytes(wish.model_context, 2) - sizes.window_bytes(wish.model_context, 1);
  plan.process_bytes = wish.process_bytes;
  plan.load_bytes = needs.load_bytes;
  plan.store_bytes = wish.store_bytes;
  plan.limit_bytes = usable + wish.process_bytes;
  plan.headroom_bytes = std::max(kHeadroomMin, usable / kHeadroomShare);
  plan.sequences = wish.sequences;
  plan.batch = wish.batch;

  const std::int64_t budget = usable - plan.headroom_bytes - sizes.fixed();
  const std::int64_t wanted = wish.context_asked > 0 ? wish.context_asked : wish.model_context;
  const auto fits = [&](std::int64_t n) { return sizes.growing(n * kPageTokens, 1) <= budget; };
  const bool whole = sizes.growing(wanted, 1) <= budget;
  const std::int64_t fitting = whole ? wanted : kPageTokens * largest(wanted / kPageTokens, fits);
  if (fitting < std::min<std::int64_t>(wanted, kPageTokens) || (!whole && wish.context_asked > 0))
    return too_large(plan, sizes, wanted, fitting);
  plan.context = fitting;
  plan.pool_bytes = pool_of(sizes, wish, fitting, budget);
  if (wish.pool_bytes_asked > 0) {
    plan.context = context_of(sizes, fitting, wish.pool_bytes_asked);
    plan.pool_bytes = wish.pool_bytes_asked;
    if (plan.context < std::min<std::int64_t>(wanted, kPageTokens) ||
        (plan.context < wanted && wish.context_asked > 0))
      return pool_too_small(wish, wanted, sizes.kv(wanted, 1), plan.context);
    if (wish.pool_bytes_asked > budget)
      return fail(
          Code::kOutOfMemory,
          "--kv-cache-memory-bytes {} is more than the {} that are left beside the weights; lower "
          "it",
          wish.pool_bytes_asked,
          text_of(std::max<std::int64_t>(budget, 0))
      );
  }
  const std::int64_t per_token = std::max<std::int64_t>(1, plan.global_bytes_per_token);
  const std::int64_t tokens = (plan.pool_bytes - sizes.window_bytes(plan.context, 1)) / per_token;
  plan.context_bytes = sizes.kv(plan.context, 1);
  plan.table_bytes = sizes.tables(plan.context);
  plan.activation_bytes = sizes.activations(tokens);
  plan.logit_bytes = sizes.logits();
  plan.engine_bytes = sizes.engine(tokens);
  add_fits(sizes, budget, sizes.fixed() + wish.process_bytes, plan);
  return plan;
}

std::int64_t anonymous_bytes() {
  constexpr std::size_t kStatusMax = 1 << 16;
  const std::string text =
      system_file_system().read("/proc/self/status", kStatusMax).value_or(std::string());
  std::int64_t sum = 0;
  for (const std::string_view key : {"\nRssAnon:", "\nVmSwap:"}) {
    const std::size_t at = text.find(key);
    if (at == std::string::npos) continue;
    const std::size_t digit = text.find_first_of("0123456789", at);
    if (digit == std::string::npos) continue;
    std::int64_t kib = 0;
    std::from_chars(text.data() + digit, text.data() + text.size(), kib);
    sum += kib * 1024;
  }
  return sum;
}

}  // namespace artery::cli
