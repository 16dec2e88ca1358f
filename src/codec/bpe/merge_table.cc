#include "codec/bpe/merge_table.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace artery::codec {
namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFF;

std::uint64_t pair_key(TokenId left, TokenId right) {
  return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
         static_cast<std::uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(std::size_t merges_max)
    : slots_(std::bit_ceil(merges_max + merges_max / 2 + 2)) {}

// The finalizer of MurmurHash3 (public domain): ids are small and dense, so their bits must be
// spread.
std::size_t MergeTable::slot_of(std::uint64_t pair) const {
  pair ^= pair >> 33;
  pair *= 0xFF51AFD7ED558CCDULL;
  pair ^= pair >> 33;
  pair *= 0xC4CEB9FE1A85EC53ULL;
  pair ^= pair >> 33;
  std::size_t slot = pair & (slots_.size() - 1);
  return slot;
}

void MergeTable::add(TokenId left, TokenId right, std::uint32_t rank, TokenId joined) {
  const std::uint64_t key = pair_key(left, right);
  std::size_t slot = slot_of(key);
  while (slots_[slot].pair != kEmpty) {
    if (slots_[slot].pair == key) return;
    slot = (slot + 1) & (slots_.size() - 1);
  }
  slots_[slot] = Slot{key, Merge{rank, joined}};
}

MergeTable::Merge MergeTable::find(TokenId left, TokenId right) const {
  const std::uint64_t key = pair_key(left, right);
  std::size_t slot = slot_of(key);
  while (slots_[slot].pair != kEmpty) {
    if (slots_[slot].pair == key) return slots_[slot].merge;
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return {};
}

// Looks up the pair that starts at `at` and queues it.
void WordMerger::rate(std::uint32_t at) {
  Symbol& symbol = symbols_[at];
  symbol.rank = MergeTable::kNoRank;
  if (symbol.next == kNone) return;
  const MergeTable::Merge merge = table_->find(symbol.id, symbols_[symbol.next].id);
  symbol.rank = merge.rank;
  symbol.joined = merge.joined;
  if (merge.rank == MergeTable::kNoRank) return;
  heap_.push_back((std::uint64_t{merge.rank} << 32) | at);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void WordMerger::merge(std::vector<TokenId>& word) {
  if (word.size() < 2) return;
  const auto count = static_cast<std::uint32_t>(word.size());
  symbols_.resize(count);
  heap_.clear();
  for (std::uint32_t i = 0; i < count; ++i)
    symbols_[i] = {word[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1, kNone, -1};
  for (std::uint32_t i = 0; i + 1 < count; ++i) rate(i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const std::uint64_t best = heap_.back();
    heap_.pop_back();
    const auto at = static_cast<std::uint32_t>(best);
    Symbol& left = symbols_[at];
    // A rank names one pair, so an entry is stale exactly when the place has another rank by now.
    if (left.rank != best >> 32) continue;
    Symbol& right = symbols_[left.next];
    left.id = left.joined;
    left.next = right.next;
    right.rank = MergeTable::kNoRank;
    if (left.next != kNone) symbols_[left.next].previous = at;
    rate(at);
    if (left.previous != kNone) rate(left.previous);
  }
  word.clear();
  for (std::uint32_t at = 0; at != kNone; at = symbols_[at].next) word.push_back(symbols_[at].id);
}

}  // namespace artery::codec
