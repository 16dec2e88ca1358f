#include "cli/memory_plan.h"

#include <algorithm>

#include "base/chain_key.h"
#include "cli/report.h"

namespace artery::cli {
namespace {

std::int64_t whole_pages(std::int64_t tokens) { return tokens / kPageTokens * kPageTokens; }

}  // namespace

std::string ContextPlan::text() const {
  return fmt::format(
      "context {} of {}; {:.2f} GiB KV",
      context,
      model_context,
      static_cast<double>(context * bytes_per_token) / (1 << 30)
  );
}

Result<ContextPlan> plan_context(const ContextWish& wish) {
  if (wish.asked > wish.model_context)
    return fail_field(
        "--max-model-len",
        "{} is beyond the {} tokens the model was made for",
        wish.asked,
        wish.model_context
    );
  // Activations, the text side and the rest of the machine need room too.
  constexpr std::int64_t kReserveMin = std::int64_t{128} << 20;
  const std::int64_t reserve = std::max(kReserveMin, wish.usable_bytes / 10);
  const std::int64_t budget = wish.pool_bytes_asked > 0
                                  ? std::min(wish.pool_bytes_asked, wish.usable_bytes)
                                  : wish.usable_bytes - reserve;
  const std::int64_t wanted = wish.asked > 0 ? wish.asked : wish.model_context;
  const std::int64_t page_bytes = wish.bytes_per_token * kPageTokens;
  const std::int64_t pages_wanted = (wanted + kPageTokens - 1) / kPageTokens;
  const bool fits = pages_wanted * page_bytes <= budget;
  const std::int64_t fitting =
      fits ? wanted : whole_pages(std::max<std::int64_t>(budget, 0) / wish.bytes_per_token);
  if (fitting < kPageTokens || (!fits && wish.asked > 0))
    return fail(
        Code::kOutOfMemory,
        "a context of {} tokens needs {} for keys and values, {} can be used; at most {} tokens "
        "fit: use --max-model-len, or a machine with more memory",
        wanted,
        bytes_text(static_cast<double>(wanted * wish.bytes_per_token)),
        bytes_text(static_cast<double>(std::max<std::int64_t>(budget, 0))),
        fitting
    );
  ContextPlan plan{fitting, wish.model_context, wish.bytes_per_token, 0};
  const std::int64_t one = (fitting + kPageTokens - 1) / kPageTokens * page_bytes;
  // Room for several conversations and their cached prefixes, without taking over the machine.
  constexpr std::int64_t kContexts = 4;
  plan.pool_bytes =
      wish.pool_bytes_asked > 0 ? budget : std::max(one, std::min(kContexts * one, budget / 4));
  return plan;
}

}  // namespace artery::cli
