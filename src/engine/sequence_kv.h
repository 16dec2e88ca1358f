#pragma once
// The KV side of one sequence of a dense model: its page list and how many positions are computed.
// Owns page references. Engine thread only; never writes a page.

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "engine/kv_pool.h"
#include "engine/sequence_state.h"

namespace artery::engine {

class SequenceKv final : public SequenceState {
 public:
  explicit SequenceKv(KvPool& pool) : pool_(pool) {}

  SequenceSnapshot snapshot() const override { return {computed_}; }
  void restore(const SequenceSnapshot& point) override { truncate(point.tokens); }
  // A partly kept page that others may read is given back whole, because the next token would be
  // written into it: computed() is then the page's first position.
  void truncate(std::int64_t tokens) override;

  std::int64_t computed() const { return computed_; }
  // Positions up to `tokens` now have their KV in pages; pages_for(tokens) pages must be held.
  void set_computed(std::int64_t tokens);
  const std::vector<PageRef>& pages() const { return pages_; }
  std::int64_t page_count() const { return static_cast<std::int64_t>(pages_.size()); }
  // Pages that truncate(0) would make available.
  std::int64_t exclusive_pages() const;
  void append(PageRef page) { pages_.push_back(std::move(page)); }
  // Puts an equal page in the place of page `index`; the old reference was already passed on.
  void replace(std::int64_t index, PageId page);

 private:
  KvPool& pool_;
  std::vector<PageRef> pages_;
  std::int64_t computed_ = 0;
};

}  // namespace artery::engine
