#include "codec/spm/piece_merger.h"

#include <algorithm>
#include <array>
#include <functional>

#include "codec/unicode.h"

namespace artery::codec {

void PieceMerger::split_characters(std::string_view text) {
  text_ = text;
  symbols_.clear();
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    const std::size_t bytes = c.state == Utf8State::kValid ? c.bytes : 1;
    const auto at = static_cast<std::uint32_t>(symbols_.size());
    symbols_.push_back(
        {static_cast<std::uint32_t>(pos),
         static_cast<std::uint32_t>(bytes),
         at == 0 ? kNone : at - 1,
         at + 1,
         pieces_->find(text.substr(pos, bytes))}
    );
    pos += bytes;
  }
  if (!symbols_.empty()) symbols_.back().next = kNone;
}

// What the symbol at `at` and the next, which is there, make.
PieceMerger::Pair PieceMerger::pair_at(std::uint32_t at) const {
  const Symbol& left = symbols_[at];
  const TokenId id =
      pieces_->find(text_.substr(left.begin, left.bytes + symbols_[left.next].bytes));
  if (id < 0) return {kNoPair, -1};
  return {(*order_)[static_cast<std::size_t>(id)], id};
}

// Looks for the best pair anew for each merge. `live` lists the symbols not joined yet.
const std::vector<PieceMerger::Symbol>& PieceMerger::merge(std::string_view text) {
  if (text.size() > kShort) return merge_by_heap(text);
  split_characters(text);
  std::array<Pair, kShort> pairs;
  std::array<std::uint32_t, kShort> live;
  std::size_t last = symbols_.size() - 1;
  for (std::size_t i = 0; i <= last; ++i) live[i] = static_cast<std::uint32_t>(i);
  for (std::size_t i = 0; i < last; ++i) pairs[i] = pair_at(live[i]);
  for (; last > 0; --last) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < last; ++i)
      if (pairs[i].order < pairs[best].order) best = i;
    if (pairs[best].order == kNoPair) break;
    Symbol& left = symbols_[live[best]];
    Symbol& right = symbols_[left.next];
    left.bytes += right.bytes;
    left.id = pairs[best].id;
    left.next = right.next;
    right.bytes = 0;
    for (std::size_t i = best + 1; i < last; ++i) {
      live[i] = live[i + 1];
      pairs[i] = pairs[i + 1];
    }
    if (best + 1 < last) pairs[best] = pair_at(live[best]);
    if (best > 0) pairs[best - 1] = pair_at(live[best - 1]);
  }
  return symbols_;
}

void PieceMerger::rate(std::uint32_t at) {
  const Symbol& left = symbols_[at];
  if (left.next == kNone) return;
  const Pair pair = pair_at(at);
  if (pair.order == kNoPair) return;
  heap_.push_back({(pair.order << 32) | at, left.bytes + symbols_[left.next].bytes, pair.id});
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

const std::vector<PieceMerger::Symbol>& PieceMerger::merge_by_heap(std::string_view text) {
  split_characters(text);
  heap_.clear();
  for (std::uint32_t i = 0; i < symbols_.size(); ++i) rate(i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const Candidate best = heap_.back();
    heap_.pop_back();
    const auto at = static_cast<std::uint32_t>(best.key);
    Symbol& left = symbols_[at];
    if (left.bytes == 0 || left.next == kNone) continue;
    Symbol& right = symbols_[left.next];
    if (left.bytes + right.bytes != best.bytes) continue;  // one side has grown since
    left.bytes = best.bytes;
    left.id = best.id;
    left.next = right.next;
    right.bytes = 0;
    if (left.next != kNone) symbols_[left.next].previous = at;
    rate(at);
    if (left.previous != kNone) rate(left.previous);
  }
  return symbols_;
}

}  // namespace artery::codec
