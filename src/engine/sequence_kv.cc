#include "engine/sequence_kv.h"

#include <algorithm>

#include "base/check.h"
#include "engine/scheduler.h"

namespace artery::engine {

void SequenceKv::truncate(std::int64_t tokens) {
  CHECK(tokens >= 0 && tokens <= computed_, "truncate to {} of {} tokens", tokens, computed_);
  computed_ = tokens;
  pages_.resize(static_cast<std::size_t>(pages_for(tokens)));
  if (tokens % kPageTokens == 0) return;
  const PageId last = pages_.back().page();
  if (pool_.references(last) > 1 || pool_.cached(last)) {
    pages_.pop_back();
    computed_ = page_count() * kPageTokens;
  }
}

void SequenceKv::set_computed(std::int64_t tokens) {
  CHECK(tokens >= computed_ && pages_for(tokens) <= page_count());
  computed_ = tokens;
}

std::int64_t SequenceKv::exclusive_pages() const {
  return std::count_if(pages_.begin(), pages_.end(), [&](const PageRef& page) {
    return pool_.exclusive(page.page());
  });
}

void SequenceKv::replace(std::int64_t index, PageId page) {
  PageRef& held = pages_[static_cast<std::size_t>(index)];
  held.release();
  held = PageRef::adopt(pool_, page);
}

}  // namespace artery::engine
