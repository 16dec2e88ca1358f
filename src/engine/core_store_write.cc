// The store behind the prefix cache, writing: records are offered as soon as their pages are
// computed, in order from the first page that the store lacks, so that none of them hangs on
// nothing. A refused one is tried again a few times, and when the choice ends. Nothing here runs
// without a store.

#include <algorithm>

#include "base/check.h"
#include "engine/core.h"
#include "engine/core_parts.h"
#include "engine/record_io.h"

namespace artery::engine {
namespace {

constexpr std::int64_t kOfferBytes = 16 << 20;  // in one go: a few milliseconds of copying
constexpr int kRefusalsMax = 8;                 // in a row
constexpr std::int64_t kRetryNs = 250'000'000;

}  // namespace

// The next page after those stored where a tail is to end: where a hit ended in the middle of a
// record, because other prompts may branch off there too; the prompt's end; and when the choice
// ends, the end of what it computed. -1: none among the first `pages`.
std::int64_t Core::next_unit(const Live& live, std::int64_t pages, bool ends) const {
  const Choice& choice = *live.choice;
  const std::int64_t stored = choice.stored.stored();
  const std::int64_t prompt = live.request->prompt_tokens() / kPageTokens;
  const std::int64_t hit = choice.kv.hit_end() / kPageTokens;
  if (hit > stored && hit < prompt && hit <= pages) return hit;
  if (prompt > stored && prompt <= pages) return prompt;
  return ends && pages > stored ? pages : -1;
}

void Core::write_through(const Live& live, bool ends) {
  Choice& choice = *live.choice;
  StoreUse& mine = choice.stored;
  if (link_.store == nullptr || !live.request->in.use_cache || !choice.offering) return;
  // Those below ready() came from a hit, and rows that rebuild windows leave them alone.
  const std::int64_t pages = choice.kv.ready() / kPageTokens;
  std::int64_t bytes = 0;
  while (bytes < kOfferBytes) {
    const std::int64_t whole = mine.whole + link_.record_pages;
    std::int64_t unit = next_unit(live, pages, ends);
    if (unit >= whole || (unit < 0 && whole <= pages)) unit = whole;
    if (unit < 0) return;
    if (mine.refusals > 0 && !ends) {
      if (mine.refusals > kRefusalsMax || clock_.monotonic_ns() < mine.retry_ns) return;
    }
    const std::int64_t first = unit == whole ? mine.whole : mine.stored();
    if (!offer_record(live, first, unit - first)) return;
    if (unit == whole) mine.whole = whole;
    mine.tail = std::max(mine.tail, unit);
    bytes += (unit - first) * link_.page_bytes;
  }
}

// False: refused.
bool Core::offer_record(const Live& live, std::int64_t first, std::int64_t pages) {
  const RequestState& request = *live.request;
  Choice& choice = *live.choice;
  extend_keys(request, choice);
  const auto begin = static_cast<std::size_t>(first);
  const auto count = static_cast<std::size_t>(pages);
  kvstore::RecordFacts facts;
  facts.space = link_.space_of(request.in.request.tenant);
  facts.ttl = request.in.request.ttl_class;
  facts.key = choice.keys[begin + count - 1];
  facts.parent = first == 0 ? request.in.root : choice.keys[begin - 1];
  facts.pages = static_cast<int>(pages);
  if (first + pages <= request.prompt_tokens() / kPageTokens) {
    facts.guaranteed_until_s = request.guaranteed_until_s;
  }
  const auto ids =
      std::span<const TokenId>(choice.tokens).subspan(begin * kPageTokens, count * kPageTokens);
  const auto fill = [&](std::span<std::byte> payload) {
    gather_pages(pool_, std::span(choice.kv.pages()).subspan(begin, count), payload);
  };
  const kvstore::Offer answer = link_.store->offer(facts, ids, fill);
  StoreUse& mine = choice.stored;
  if (answer == kvstore::Offer::kRefused) {
    ++counters_.records_refused;
    ++mine.refusals;
    mine.retry_ns = clock_.monotonic_ns() + kRetryNs;
    return false;
  }
  mine.refusals = 0;
  if (answer == kvstore::Offer::kTaken) ++counters_.records_offered;
  return true;
}

// Bytes on disk of the prompt's records: those that are there, as whole ones, and one tail more.
std::int64_t Core::promise_bytes(const Live& live) const {
  const std::int64_t pages = live.request->prompt_tokens() / kPageTokens;
  const auto bytes_of = [this](std::int64_t count) {
    return count == 0 ? 0 : kvstore::stored_bytes(count * kPageTokens, count * link_.page_bytes);
  };
  const std::int64_t tail = live.choice->stored.known_pages % link_.record_pages;
  return pages / link_.record_pages * bytes_of(link_.record_pages) +
         bytes_of(pages % link_.record_pages) + bytes_of(tail);
}

// The first time that a request is admitted: what it found lives on, and what it asked to be kept
// is promised.
void Core::note_use(const Live& live, std::int64_t matched) {
  RequestState& request = *live.request;
  const Request& in = request.in.request;
  const std::int64_t prompt = request.prompt_tokens() / kPageTokens;
  const kvstore::SpaceId space = link_.space_of(in.tenant);
  if (in.guarantee && prompt > 0) {
    request.guaranteed_until_s = link_.store->guarantee(space, promise_bytes(live), in.ttl_class);
  }
  const bool promised = request.guaranteed_until_s > 0;
  const std::int64_t pages = promised ? prompt : matched;
  if (pages == 0) return;
  const auto keys =
      std::span<const ChainKey>(live.choice->keys).first(static_cast<std::size_t>(pages));
  link_.store->touch(space, keys, pages, in.ttl_class, request.guaranteed_until_s);
}

}  // namespace artery::engine
