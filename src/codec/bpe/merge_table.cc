#include "codec/bpe/merge_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

namespace artery::codec {
namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFF;

}  // namespace

MergeTable::MergeTable(std::size_t merges_max)
    : slots_(std::bit_ceil(merges_max + merges_max / 2 + 2)), mask_(slots_.size() - 1) {}

void MergeTable::add(TokenId left, TokenId right, std::uint32_t rank, TokenId joined) {
  const std::uint64_t pair = pair_key(left, right);
  std::size_t at = slot_of(pair);
  for (; slots_[at].pair != kEmpty; at = (at + 1) & mask_)
    if (slots_[at].pair == pair) return;
  slots_[at] = Slot{pair, Merge{rank, joined}};
}

void WordMerger::merge_short(std::vector<TokenId>& word) const {
  if (word.size() < 2) return;
  std::array<MergeTable::Merge, kShort> merges;  // of each symbol with the next
  std::size_t last = word.size() - 1;
  for (std::size_t i = 0; i < last; ++i) merges[i] = table_->find(word[i], word[i + 1]);
  for (; last > 0; --last) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < last; ++i)
      if (merges[i].rank < merges[best].rank) best = i;
    if (merges[best].rank == MergeTable::kNoRank) break;
    word[best] = merges[best].joined;
    for (std::size_t i = best + 1; i < last; ++i) {
      word[i] = word[i + 1];
      merges[i] = merges[i + 1];
    }
    if (best + 1 < last) merges[best] = table_->find(word[best], word[best + 1]);
    if (best > 0) merges[best - 1] = table_->find(word[best - 1], word[best]);
  }
  word.resize(last + 1);
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

void WordMerger::merge_by_heap(std::vector<TokenId>& word) {
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
