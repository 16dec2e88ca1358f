#pragma once
// The KV side of one sequence: its global pages from position 0 on, its window pages near its end
// where the model has window groups, and how many positions are computed. Owns page references.
// Engine thread only; never writes a page.
//
// A sequence that starts from a prefix hit may hold global pages beyond computed(): the rows below
// ready() run again only to rebuild windows, and leave global entries alone.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/ids.h"
#include "engine/kv_spaces.h"
#include "engine/sequence_state.h"

namespace artery::engine {

class SequenceKv final : public SequenceState {
 public:
  explicit SequenceKv(KvSpaces& spaces) : spaces_(spaces) {}

  SequenceSnapshot snapshot() const override { return {computed_}; }
  void restore(const SequenceSnapshot& point) override { truncate(point.tokens); }
  // A partly kept page that others may read is given back whole, because the next token would be
  // written into it: computed() is then the page's first position. Where the window before that is
  // gone it is to be rebuilt: computed() is where that starts.
  void truncate(std::int64_t tokens) override;

  std::int64_t computed() const { return computed_; }
  // Positions up to `tokens` now have their KV in pages; pages_for(tokens) pages must be held.
  void set_computed(std::int64_t tokens);
  // All global pages held are whole and computed. Rows run from `position` on, which is where they
  // end or, to rebuild windows, earlier. `exact`: the window before `position` will be restored, or
  // has no positions.
  void start_at(std::int64_t position, bool exact);
  // Entries of the global groups are there up to here, at least computed().
  std::int64_t ready() const { return std::max(ready_, computed_); }
  // Where the pages it started with end.
  std::int64_t hit_end() const { return ready_; }

  const std::vector<PageRef>& pages() const { return pages_; }
  std::int64_t page_count() const { return static_cast<std::int64_t>(pages_.size()); }
  // Pages that truncate(0) would make available.
  std::int64_t exclusive_pages() const;
  void append(PageRef page) { pages_.push_back(std::move(page)); }
  // Puts an equal page in the place of page `index`; the old reference was already passed on.
  void replace(std::int64_t index, PageId page);

  // Window pages window_begin() .. window_end() - 1, in a model with window groups.
  std::int64_t window_begin() const { return window_begin_; }
  std::int64_t window_end() const { return window_begin_ + window_count(); }
  std::int64_t window_count() const { return static_cast<std::int64_t>(window_pages_.size()); }
  PageId window_page(std::int64_t index) const {
    return window_pages_[static_cast<std::size_t>(index - window_begin_)].page();
  }
  void append_window(PageRef page) { window_pages_.push_back(std::move(page)); }
  // The window before computed(); none is held.
  void restore_window(std::vector<PageRef> pages);
  // Whether the window before page boundary `boundary` is held whole, computed and exact.
  bool window_exact(std::int64_t boundary) const;
  // References of its own to the pages of such a window.
  std::vector<PageRef> share_window(std::int64_t boundary) const;
  // Gives back the pages that no row from computed() on reads.
  void release_behind();
  // Gives back the pages that no position below `tokens` needs.
  void trim_windows(std::int64_t tokens);
  // Gives all back, when no row of the sequence will be run (or only ones that nobody reads).
  void drop_windows() { window_pages_.clear(); }

 private:
  void truncate_windows();

  KvSpaces& spaces_;
  std::vector<PageRef> pages_;
  std::int64_t computed_ = 0;
  std::int64_t ready_ = 0;
  std::deque<PageRef> window_pages_;
  std::int64_t window_begin_ = 0;  // index of the first one: a page of the sequence
  std::int64_t exact_from_ = 0;    // windows before boundaries below this are not exact
};

}  // namespace artery::engine
