#include "cli/eval_store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/chain_key.h"
#include "base/check.h"
#include "engine/kv_namespace.h"
#include "engine/kv_pool.h"

namespace artery::cli {
namespace {

constexpr std::int64_t kPollBytes = std::int64_t{1} << 40;  // all that has come
constexpr std::int64_t kLoadSeconds = 60;
constexpr auto kLook = std::chrono::microseconds(200);

// A page's bytes of all global groups, one after the other: the payload of records
// (engine/record_io.h).
void copy_page(const bench::KvMemory& memory, PageId page, std::span<std::byte> out) {
  std::size_t at = 0;
  for (std::size_t group = 0; group < memory.groups().size(); ++group) {
    if (memory.kind(group) != model::KvKind::kGlobal) continue;
    const tensor::KvPages& kv = memory.groups()[group];
    const auto bytes = static_cast<std::size_t>(kv.geometry.page_bytes());
    if (bytes == 0) continue;
    std::memcpy(out.data() + at, kv.base + page * kv.geometry.page_bytes(), bytes);
    at += bytes;
  }
  CHECK(at == out.size());
}

void fill_page(const bench::KvMemory& memory, PageId page, std::span<const std::byte> in) {
  std::size_t at = 0;
  for (std::size_t group = 0; group < memory.groups().size(); ++group) {
    if (memory.kind(group) != model::KvKind::kGlobal) continue;
    const tensor::KvPages& kv = memory.groups()[group];
    const auto bytes = static_cast<std::size_t>(kv.geometry.page_bytes());
    if (bytes == 0) continue;
    std::memcpy(kv.base + page * kv.geometry.page_bytes(), in.data() + at, bytes);
    at += bytes;
  }
  CHECK(at == in.size());
}

std::size_t end_of(const kvstore::Extent& extent) {
  return static_cast<std::size_t>(extent.first_page + extent.pages);
}

}  // namespace

Result<> EvalStore::check(const model::KvLayout& layout) {
  if (engine::KvPool::page_bytes(layout, model::KvKind::kGlobal) > 0) return {};
  return fail(
      Code::kUnsupported,
      "--cache: all layers of this model have a sliding window, and nothing of them is kept on "
      "disk: "
      "use --cache ram"
  );
}

std::unique_ptr<EvalStore> EvalStore::make(
    std::shared_ptr<kvstore::DiskStore> store, const model::Model& model, int swa_replay
) {
  const model::KvLayout layout = model.kv_layout();
  kvstore::SpaceSpec spec;
  spec.identity = engine::kv_namespace(model.info(), layout, swa_replay);
  spec.model = model.info().name;
  spec.page_bytes = engine::KvPool::page_bytes(layout, model::KvKind::kGlobal);
  spec.record_pages = layout.record_pages;
  const ChainKey root = engine::kv_root(store->secret(), spec.identity, "", "");
  return std::unique_ptr<EvalStore>(new EvalStore(std::move(store), std::move(spec), root));
}

EvalStore::EvalStore(
    std::shared_ptr<kvstore::DiskStore> store, kvstore::SpaceSpec spec, ChainKey root
)
    : store_(std::move(store)),
      spec_(std::move(spec)),
      space_(store_->open_space(spec_)),
      root_(root) {}

std::vector<PageId> EvalStore::load(
    std::span<const TokenId> tokens,
    std::size_t pages_max,
    const bench::KvMemory& memory,
    const std::function<PageId()>& take
) {
  // What earlier lines left may be on its way. An error shows as a miss, and at the end.
  if (std::exchange(unflushed_, false)) static_cast<void>(flush());
  const std::vector<ChainKey> keys = chain_keys(root_, tokens);
  const kvstore::Found found = store_->find(space_, keys);
  std::vector<kvstore::Wanted> wanted;
  for (const kvstore::Extent& extent : found.extents) {
    if (static_cast<std::size_t>(extent.first_page) >= pages_max) break;
    kvstore::Wanted& one = wanted.emplace_back();
    one.key = keys[end_of(extent) - 1];
    one.pages = extent.pages;
    const auto ids = tokens.subspan(
        static_cast<std::size_t>(extent.first_page) * kPageTokens,
        static_cast<std::size_t>(extent.pages) * kPageTokens
    );
    one.ids.assign(ids.begin(), ids.end());
  }
  std::vector<PageId> pages;
  if (wanted.empty()) return pages;
  const auto page_bytes = static_cast<std::size_t>(spec_.page_bytes);
  const std::int64_t deadline = system_clock().monotonic_ns() + kLoadSeconds * 1'000'000'000;
  const kvstore::LoadId id = store_->load(space_, wanted, deadline);
  bool more = true;
  const auto take_piece = [&](const kvstore::Piece& piece) {
    if (piece.load != id) return;
    more = !piece.is_last;
    if (piece.payload.empty()) return;
    const kvstore::Extent& extent = found.extents[piece.index];
    for (std::size_t page = pages.size(); page < std::min(end_of(extent), pages_max); ++page) {
      const std::size_t at = (page - static_cast<std::size_t>(extent.first_page)) * page_bytes;
      pages.push_back(take());
      fill_page(memory, pages.back(), piece.payload.subspan(at, page_bytes));
    }
  };
  while (more && system_clock().monotonic_ns() < deadline) {
    store_->poll(kPollBytes, take_piece);
    if (more) std::this_thread::sleep_for(kLook);
  }
  store_->cancel(id);
  tokens_loaded_ += static_cast<std::int64_t>(pages.size()) * kPageTokens;
  store_->touch(space_, keys, static_cast<std::int64_t>(pages.size()), kvstore::TtlClass::kHour, 0);
  return pages;
}

// As a server writes them: whole records from multiples of record_pages on, and tails where the
// prompt and the text end.
void EvalStore::save(
    std::span<const TokenId> tokens,
    std::size_t prompt_tokens,
    std::span<const PageId> pages,
    const bench::KvMemory& memory
) {
  const std::vector<ChainKey> keys = chain_keys(root_, tokens);
  const std::size_t end = std::min(keys.size(), pages.size());
  const std::size_t prompt = std::min(prompt_tokens / kPageTokens, end);
  const auto step = static_cast<std::size_t>(spec_.record_pages);
  const auto put = [&](std::size_t first, std::size_t last) {
    return first >= last || offer(keys, tokens, pages.subspan(first, last - first), first, memory);
  };
  unflushed_ = true;
  for (std::size_t first = 0; first < end; first += step) {
    const std::size_t last = std::min(first + step, end);
    const std::size_t cut = std::clamp(prompt, first, last);
    const bool whole = last == first + step;
    const bool done =
        cut == last ? put(first, last) : put(first, cut) && put(whole ? first : cut, last);
    if (done) continue;
    ++refused_;
    return;  // what follows would hang on nothing
  }
}

// False: refused.
bool EvalStore::offer(
    const std::vector<ChainKey>& keys,
    std::span<const TokenId> tokens,
    std::span<const PageId> pages,
    std::size_t first,
    const bench::KvMemory& memory
) {
  kvstore::RecordFacts facts;
  facts.space = space_;
  facts.key = keys[first + pages.size() - 1];
  facts.parent = first == 0 ? root_ : keys[first - 1];
  facts.pages = static_cast<int>(pages.size());
  const auto page_bytes = static_cast<std::size_t>(spec_.page_bytes);
  const auto fill = [&](std::span<std::byte> payload) {
    for (std::size_t i = 0; i < pages.size(); ++i)
      copy_page(memory, pages[i], payload.subspan(i * page_bytes, page_bytes));
  };
  const auto ids = tokens.subspan(first * kPageTokens, pages.size() * kPageTokens);
  // Written in the background: a full queue is waited for, a full disk is not.
  constexpr int kTries = 50;
  for (int tries = 0; tries < kTries; ++tries) {
    if (store_->offer(facts, ids, fill) != kvstore::Offer::kRefused) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

}  // namespace artery::cli
