#include "engine/kv_pool.h"

#include "base/check.h"

namespace artery::engine {

PageRef PageRef::adopt(KvPool& pool, PageId page) {
  CHECK(pool.references(page) > 0);
  return PageRef(&pool, page);
}

PageRef PageRef::share() const {
  if (pool_ == nullptr) return {};
  pool_->add_reference(page_);
  return PageRef(pool_, page_);
}

PageId PageRef::release() {
  pool_ = nullptr;
  return std::exchange(page_, kNoPage);
}

void PageRef::reset() {
  if (pool_ != nullptr) pool_->drop_reference(page_);
  pool_ = nullptr;
  page_ = kNoPage;
}

std::int64_t KvPool::page_bytes(const model::KvLayout& layout) {
  std::int64_t sum = 0;
  for (const model::KvGroup& group : layout.groups) sum += group.geometry.page_bytes();
  return sum;
}

std::int64_t KvPool::page_bytes(const model::KvLayout& layout, model::KvKind kind) {
  std::int64_t sum = 0;
  for (const model::KvGroup& group : layout.groups) {
    if (group.kind == kind) sum += group.geometry.page_bytes();
  }
  return sum;
}

Result<std::unique_ptr<KvPool>> KvPool::make(
    std::span<const model::KvGroup> groups, std::int64_t pages
) {
  CHECK(pages > 0);
  // Not make_unique: the constructor is private.
  std::unique_ptr<KvPool> pool(new KvPool);
  const auto count = static_cast<std::size_t>(pages);
  std::size_t bytes = 0;
  for (const model::KvGroup& group : groups) {
    bytes += static_cast<std::size_t>(group.geometry.page_bytes()) * count;
  }
  pool->buffer_ = TRY(tensor::HugeBuffer::make(bytes));
  std::byte* base = pool->buffer_.data();
  for (const model::KvGroup& group : groups) {
    pool->kv_.push_back({base, group.geometry});
    base += static_cast<std::size_t>(group.geometry.page_bytes()) * count;
  }
  pool->references_.assign(count, 0);
  pool->cached_.assign(count, 0);
  pool->free_.reserve(count);
  for (std::int64_t page = pages; page > 0; --page) {
    pool->free_.push_back(static_cast<PageId>(page - 1));
  }
  return pool;
}

PageRef KvPool::allocate() {
  if (free_.empty()) return {};
  const PageId page = free_.back();
  free_.pop_back();
  references_[index(page)] = 1;
  return PageRef::adopt(*this, page);
}

void KvPool::add_reference(PageId page) {
  CHECK(references(page) > 0, "page {} is free", page);
  if (is_idle(page)) --idle_;
  ++references_[index(page)];
}

void KvPool::drop_reference(PageId page) {
  CHECK(references(page) > 0, "page {} is free", page);
  CHECK(!is_idle(page), "the cache dropped page {} without set_cached", page);
  if (--references_[index(page)] == 0) free_.push_back(page);
  if (is_idle(page)) ++idle_;
}

void KvPool::set_cached(PageId page, bool cached_now) {
  CHECK(references(page) > 0 && cached(page) != cached_now);
  if (is_idle(page)) --idle_;
  cached_[index(page)] = cached_now ? 1 : 0;
  if (is_idle(page)) ++idle_;
}

void KvPool::check_integrity() const {
  std::int64_t free_count = 0;
  std::int64_t idle_count = 0;
  for (PageId page = 0; page < static_cast<PageId>(pages_total()); ++page) {
    CHECK(references(page) >= 0);
    if (references(page) == 0) ++free_count;
    if (is_idle(page)) ++idle_count;
    CHECK(references(page) > 0 || !cached(page), "page {} is free and cached", page);
  }
  CHECK(free_count == pages_free(), "{} pages free, {} listed", free_count, pages_free());
  CHECK(idle_count == idle_, "{} pages idle, {} counted", idle_count, idle_);
  std::vector<std::uint8_t> seen(references_.size());
  for (const PageId page : free_) {
    CHECK(references(page) == 0 && seen[index(page)] == 0, "page {} listed twice", page);
    seen[index(page)] = 1;
  }
}

}  // namespace artery::engine
