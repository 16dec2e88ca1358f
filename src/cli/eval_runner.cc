#include "cli/eval_runner.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace artery::cli {
namespace {

std::size_t pages_for(std::size_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

const ChainKey& cache_root() {
  static const ChainKey root = chain_root("eval", "eval");
  return root;
}

struct Best {
  TokenId token = 0;
  double margin = 0;
};

// The lowest id wins a tie; NaN never wins.
Best best_of(std::span<const float> logits) {
  float first = -std::numeric_limits<float>::infinity(), second = first;
  std::size_t at = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > first) {
      second = first;
      first = logits[i];
      at = i;
    } else if (logits[i] > second) {
      second = logits[i];
    }
  }
  return {static_cast<TokenId>(at), static_cast<double>(first) - static_cast<double>(second)};
}

}  // namespace

EvalPageCache::~EvalPageCache() {
  for (const auto& [key, page] : entries_) memory_->release(page);
}

std::vector<PageId> EvalPageCache::match(std::span<const TokenId> tokens, std::size_t pages_max) {
  std::vector<PageId> pages;
  const std::size_t whole = std::min(pages_max, tokens.size() / kPageTokens);
  for (const ChainKey& key : chain_keys(cache_root(), tokens.first(whole * kPageTokens))) {
    const auto it = by_key_.find(key);
    if (it == by_key_.end()) break;
    memory_->hold(it->second);
    pages.push_back(it->second);
  }
  return pages;
}

void EvalPageCache::insert(std::span<const TokenId> tokens, std::span<const PageId> pages) {
  const std::vector<ChainKey> keys = chain_keys(cache_root(), tokens);
  for (std::size_t i = 0; i < std::min(keys.size(), pages.size()); ++i) {
    if (!by_key_.emplace(keys[i], pages[i]).second) continue;
    memory_->hold(pages[i]);
    entries_.emplace_back(keys[i], pages[i]);
  }
}

bool EvalPageCache::drop_one() {
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (memory_->references(it->second) > 1) continue;
    memory_->release(it->second);
    by_key_.erase(it->first);
    entries_.erase(it);
    return true;
  }
  return false;
}

Result<std::unique_ptr<EvalRunner>> EvalRunner::make(
    model::Model& model, EvalSettings settings, std::int64_t cache_bytes
) {
  const model::KvLayout layout = model.kv_layout();
  const auto context = static_cast<std::size_t>(model.info().context_length);
  auto pages = static_cast<std::int64_t>(pages_for(context)) * settings.batch;
  if (settings.windows_gone) pages *= 2;  // of the window groups, apart; touched where used
  if (settings.cache) pages += cache_bytes / (layout.bytes_per_token() * kPageTokens);
  bench::KvMemory memory = TRY(bench::KvMemory::make(layout, pages));
  return std::unique_ptr<EvalRunner>(new EvalRunner(model, settings, std::move(memory)));
}

EvalRunner::EvalRunner(model::Model& model, EvalSettings settings, bench::KvMemory memory)
    : model_(model),
      settings_(settings),
      shape_(engine::WindowShape::of(model.kv_layout())),
      memory_(std::move(memory)) {
  if (settings.swa_replay >= 0 && settings.swa_replay < shape_.reach)
    shape_.replay = settings.swa_replay;
  if (settings.cache) cache_.emplace(memory_);
}

bool EvalRunner::has_room() const {
  return lanes_.size() < static_cast<std::size_t>(settings_.batch);
}

Result<> EvalRunner::check(const EvalCase& wanted) const {
  const auto count = static_cast<std::int64_t>(wanted.tokens.size());
  const std::int64_t context = model_.info().context_length;
  // The last generated token is never fed.
  const std::int64_t need = count + std::max<std::int64_t>(wanted.greedy - 1, 0);
  if (need > context)
    return fail(
        Code::kContextLength,
        "{} tokens with their continuation exceed the context of {}",
        need,
        context
    );
  for (const std::int64_t row : wanted.rows)
    if (row < 0 || row >= count)
      return fail_field("rows", "row {} is outside 0 .. {}", row, count - 1);
  if (wanted.hit < 0 || wanted.hit > count)
    return fail_field("hit", "{} is outside 0 .. {}", wanted.hit, count);
  return {};
}

Result<> EvalRunner::start(std::int64_t ticket, EvalCase wanted) {
  CHECK(has_room(), "no room for another sequence");
  TRY(check(wanted));
  Lane lane;
  lane.ticket = ticket;
  lane.tokens = wanted.tokens;
  for (std::size_t i = 0; i < wanted.rows.size(); ++i) lane.rows.emplace_back(wanted.rows[i], i);
  std::sort(lane.rows.begin(), lane.rows.end());
  lane.result.logits.resize(
      wanted.rows.size() * static_cast<std::size_t>(model_.info().vocab_size)
  );
  lane.stop = wanted.hit > 0 ? static_cast<std::size_t>(wanted.hit) : lane.tokens.size();
  lane.wanted = std::move(wanted);
  start_from_cache(lane);
  lanes_.push_back(std::move(lane));
  return {};
}

// Every wanted row must be computed, and so must the last one, whose logits continue the text.
void EvalRunner::start_from_cache(Lane& lane) {
  if (!cache_ && settings_.store == nullptr) return;
  std::size_t needed = lane.stop - 1;
  if (!lane.rows.empty())
    needed = std::min(needed, static_cast<std::size_t>(lane.rows.front().first));
  lane.pages = cache_ ? cache_->match(lane.tokens, needed / kPageTokens)
                      : settings_.store->load(lane.tokens, needed / kPageTokens, memory_, [this] {
                          return take_page();
                        });
  begin_at_hit(lane);
}

// The lane goes on behind its pages, which others may read too.
void EvalRunner::begin_at_hit(Lane& lane) {
  lane.ready = lane.done = lane.pages.size() * kPageTokens;
  if (settings_.windows_gone && shape_ && lane.ready > 0) {
    lane.done =
        static_cast<std::size_t>(shape_.rebuild_from(static_cast<std::int64_t>(lane.ready)));
    lane.apart = true;
    lane.window_first = lane.done;
    lane.window_pages.assign(lane.done / kPageTokens, kNoPage);
  }
  lane.result.cached_tokens = static_cast<std::int64_t>(lane.done);
}

PageId EvalRunner::take_page() {
  PageId page = memory_.take();
  while (page == kNoPage && cache_ && cache_->drop_one()) page = memory_.take();
  CHECK(page != kNoPage, "each sequence has room for a whole context");
  return page;
}

// Phase one of a hit only fills pages: its last row says nothing yet.
bool EvalRunner::continues_after(const Lane& lane, std::size_t position) {
  return position + 1 == lane.tokens.size() && lane.wanted.greedy > 0 && lane.wanted.hit == 0;
}

bench::Slice EvalRunner::next_slice(Lane& lane) {
  const std::size_t prompt = std::min(lane.wanted.prompt_count, lane.stop);
  const std::size_t count =
      lane.done < prompt ? std::min(static_cast<std::size_t>(settings_.chunk), prompt - lane.done)
                         : 1;
  const std::size_t pages = pages_for(lane.done + count);
  while (lane.pages.size() < pages) lane.pages.push_back(take_page());
  while (lane.apart && lane.window_pages.size() < pages) lane.window_pages.push_back(take_page());
  bench::Slice slice;
  slice.tokens = std::span(lane.tokens).subspan(lane.done, count);
  slice.first = static_cast<Position>(lane.done);
  slice.pages = lane.pages;
  slice.window_pages = lane.window_pages;
  slice.window_first = static_cast<Position>(lane.window_first);
  slice.write_from = static_cast<Position>(lane.ready);
  for (std::size_t i = 0; i < count; ++i) {
    const auto position = static_cast<std::int64_t>(lane.done + i);
    const auto it =
        std::lower_bound(lane.rows.begin(), lane.rows.end(), std::pair(position, std::size_t{0}));
    // Rows that only rebuild windows are not exact; these positions had their row before the hit.
    const bool real = lane.done + i >= lane.ready;
    const bool wanted = real && it != lane.rows.end() && it->first == position;
    if (wanted || continues_after(lane, lane.done + i))
      slice.logit_rows.push_back(static_cast<std::int32_t>(i));
  }
  return slice;
}

void EvalRunner::add_greedy(Lane& lane, std::span<const float> logits) {
  const Best best = best_of(logits);
  lane.result.greedy_tokens.push_back(best.token);
  lane.result.margins.push_back(best.margin);
  if (static_cast<std::int64_t>(lane.result.greedy_tokens.size()) == lane.wanted.greedy) return;
  lane.tokens.push_back(best.token);
  lane.stop = lane.tokens.size();
}

void EvalRunner::take_logits(Lane& lane, const bench::Slice& slice, std::span<const float> logits) {
  const auto vocab = static_cast<std::size_t>(model_.info().vocab_size);
  const std::size_t end = lane.done + slice.tokens.size();
  for (std::size_t i = 0; i < slice.logit_rows.size(); ++i) {
    const auto position = static_cast<std::int64_t>(slice.first) + slice.logit_rows[i];
    const std::span<const float> row = logits.subspan(i * vocab, vocab);
    auto it =
        std::lower_bound(lane.rows.begin(), lane.rows.end(), std::pair(position, std::size_t{0}));
    for (; it != lane.rows.end() && it->first == position; ++it)
      std::copy(
          row.begin(),
          row.end(),
          lane.result.logits.begin() + static_cast<std::ptrdiff_t>(it->second * vocab)
      );
    if (continues_after(lane, static_cast<std::size_t>(position))) add_greedy(lane, row);
  }
  lane.done = end;
}

void EvalRunner::release_windows(Lane& lane) {
  for (const PageId page : lane.window_pages)
    if (page != kNoPage) memory_.release(page);
  lane.window_pages.clear();
  lane.apart = false;
  lane.window_first = 0;
}

// Phase two of a hit: only the whole pages of phase one stay, read-only from here on, and the rest
// is computed again on pages of its own. At least one token is left to compute.
void EvalRunner::restart_from_hit(Lane& lane) {
  const std::size_t most = (lane.tokens.size() - 1) / kPageTokens;
  const std::size_t kept = std::min(lane.stop / kPageTokens, most);
  for (std::size_t i = kept; i < lane.pages.size(); ++i) memory_.release(lane.pages[i]);
  lane.pages.resize(kept);
  release_windows(lane);
  begin_at_hit(lane);
  lane.wanted.hit = 0;
  lane.stop = lane.tokens.size();
}

bool EvalRunner::finished(const Lane& lane) const {
  return lane.done == lane.tokens.size() && lane.wanted.hit == 0;
}

void EvalRunner::finish(Lane& lane) {
  if (cache_) cache_->insert(std::span(lane.tokens).first(lane.done), lane.pages);
  if (settings_.store != nullptr)
    settings_.store->save(
        std::span(lane.tokens).first(lane.done), lane.wanted.prompt_count, lane.pages, memory_
    );
  for (const PageId page : lane.pages) memory_.release(page);
  release_windows(lane);
}

std::vector<std::pair<std::int64_t, EvalResult>> EvalRunner::step() {
  std::vector<bench::Slice> slices;
  for (Lane& lane : lanes_) slices.push_back(next_slice(lane));
  bench::run_forward(model_, memory_, slices, logits_);
  const auto vocab = static_cast<std::size_t>(model_.info().vocab_size);
  std::size_t row = 0;
  std::vector<std::pair<std::int64_t, EvalResult>> out;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    const std::size_t count = slices[i].logit_rows.size();
    take_logits(lane, slices[i], std::span(logits_).subspan(row * vocab, count * vocab));
    row += count;
    if (lane.wanted.hit > 0 && lane.done == lane.stop) restart_from_hit(lane);
    if (!finished(lane)) continue;
    finish(lane);
    out.emplace_back(lane.ticket, std::move(lane.result));
    lane.ticket = -1;
  }
  std::erase_if(lanes_, [](const Lane& lane) { return lane.ticket < 0; });
  return out;
}

}  // namespace artery::cli
