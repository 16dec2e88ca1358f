#include "engine/sequence_kv.h"

#include "base/check.h"
#include "engine/scheduler.h"

namespace artery::engine {

void SequenceKv::truncate(std::int64_t tokens) {
  CHECK(tokens >= 0 && tokens <= computed_, "truncate to {} of {} tokens", tokens, computed_);
  computed_ = tokens;
  pages_.resize(static_cast<std::size_t>(pages_for(tokens)));
  if (tokens % kPageTokens != 0) {
    const PageId last = pages_.back().page();
    if (spaces_.global().references(last) > 1 || spaces_.global().cached(last)) {
      pages_.pop_back();
      computed_ = page_count() * kPageTokens;
    }
  }
  ready_ = std::min(ready_, computed_);
  if (spaces_.shape()) truncate_windows();
}

void SequenceKv::truncate_windows() {
  if (computed_ == 0) {
    window_pages_.clear();
    window_begin_ = exact_from_ = 0;
    return;
  }
  trim_windows(computed_);
  if (computed_ % kPageTokens != 0 && window_end() == pages_for(computed_) &&
      spaces_.window().references(window_pages_.back().page()) > 1) {
    window_pages_.pop_back();
    computed_ = computed_ / kPageTokens * kPageTokens;
  }
  const bool whole = window_begin_ <= spaces_.shape().first_page(computed_) &&
                     window_end() >= pages_for(computed_);
  if (whole) return;
  const std::int64_t end = computed_ / kPageTokens * kPageTokens;
  pages_.resize(static_cast<std::size_t>(end / kPageTokens));
  const std::int64_t from = spaces_.shape().rebuild_from(end);
  start_at(from, from == 0);
}

void SequenceKv::set_computed(std::int64_t tokens) {
  CHECK(tokens >= computed_ && pages_for(tokens) <= page_count());
  computed_ = tokens;
}

void SequenceKv::start_at(std::int64_t position, bool exact) {
  const std::int64_t end = page_count() * kPageTokens;
  CHECK(position % kPageTokens == 0 && position <= end, "start at {} of {}", position, end);
  computed_ = position;
  ready_ = end;
  window_pages_.clear();
  window_begin_ = exact ? spaces_.shape().first_page(position) : position / kPageTokens;
  exact_from_ = exact ? position : end;
}

std::int64_t SequenceKv::exclusive_pages() const {
  return std::count_if(pages_.begin(), pages_.end(), [&](const PageRef& page) {
    return spaces_.global().exclusive(page.page());
  });
}

void SequenceKv::replace(std::int64_t index, PageId page) {
  PageRef& held = pages_[static_cast<std::size_t>(index)];
  held.release();
  held = PageRef::adopt(spaces_.global(), page);
}

void SequenceKv::restore_window(std::vector<PageRef> pages) {
  CHECK(window_pages_.empty() && computed_ % kPageTokens == 0);
  window_begin_ = computed_ / kPageTokens - static_cast<std::int64_t>(pages.size());
  CHECK(window_begin_ == spaces_.shape().first_page(computed_), "a window of another size");
  for (PageRef& page : pages) window_pages_.push_back(std::move(page));
}

bool SequenceKv::window_exact(std::int64_t boundary) const {
  return boundary >= exact_from_ && boundary <= computed_ &&
         window_begin_ <= spaces_.shape().first_page(boundary) &&
         window_end() >= boundary / kPageTokens;
}

std::vector<PageRef> SequenceKv::share_window(std::int64_t boundary) const {
  CHECK(boundary % kPageTokens == 0 && window_exact(boundary));
  std::vector<PageRef> out;
  for (std::int64_t page = spaces_.shape().first_page(boundary); page < boundary / kPageTokens;
       ++page) {
    out.push_back(window_pages_[static_cast<std::size_t>(page - window_begin_)].share());
  }
  return out;
}

void SequenceKv::release_behind() {
  const std::int64_t first = spaces_.shape().first_page(computed_);
  while (window_begin_ < first && !window_pages_.empty()) {
    window_pages_.pop_front();
    ++window_begin_;
  }
}

void SequenceKv::trim_windows(std::int64_t tokens) {
  while (!window_pages_.empty() && window_end() > pages_for(tokens)) window_pages_.pop_back();
}

}  // namespace artery::engine
