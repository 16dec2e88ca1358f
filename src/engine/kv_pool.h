#pragma once
// One page space (kv_spaces.h): pages of 16 positions with reference counts, in one buffer. One
// PageId names the same 16 positions in every group of the space (a page's bytes are the sum over
// groups), so a sequence has one page list a space however many groups its model has.
//
// Owns the memory and the counts; knows no tokens and no keys. Engine thread only. A page with one
// reference belongs to one sequence, which may write it, or only to a cache ("idle" where that is
// the prefix cache).

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/kv_layout.h"
#include "tensor/weights.h"

namespace artery::engine {

class KvPool;

// Holds one reference to one page, or nothing.
class PageRef {
 public:
  PageRef() = default;
  // Takes over a reference that was already counted.
  static PageRef adopt(KvPool& pool, PageId page);
  PageRef(PageRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), page_(std::exchange(other.page_, kNoPage)) {}
  PageRef& operator=(PageRef&& other) noexcept {
    if (this != &other) {
      reset();
      pool_ = std::exchange(other.pool_, nullptr);
      page_ = std::exchange(other.page_, kNoPage);
    }
    return *this;
  }
  ~PageRef() { reset(); }

  PageId page() const { return page_; }
  explicit operator bool() const { return pool_ != nullptr; }
  PageRef share() const;  // one more reference to the same page
  PageId release();       // gives the reference to the caller
  void reset();

 private:
  PageRef(KvPool* pool, PageId page) : pool_(pool), page_(page) {}

  KvPool* pool_ = nullptr;
  PageId page_ = kNoPage;
};

class KvPool {
 public:
  // `groups` may be empty or of 0 bytes: pages that only count. kOutOfMemory when the system does
  // not give pages * the groups' page bytes.
  static Result<std::unique_ptr<KvPool>> make(
      std::span<const model::KvGroup> groups, std::int64_t pages
  );
  // Of all groups; of the groups of one kind.
  static std::int64_t page_bytes(const model::KvLayout& layout);
  static std::int64_t page_bytes(const model::KvLayout& layout, model::KvKind kind);

  // A page with one reference, contents undefined; an empty reference when none is free.
  PageRef allocate();

  std::int64_t pages_total() const { return static_cast<std::int64_t>(references_.size()); }
  std::int64_t pages_free() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t pages_idle() const { return idle_; }  // only the cache holds them
  std::int64_t pages_in_use() const { return pages_total() - pages_free() - pages_idle(); }
  int references(PageId page) const { return references_[index(page)]; }
  bool cached(PageId page) const { return cached_[index(page)] != 0; }
  // True when nobody but one sequence (and perhaps the cache) holds it.
  bool exclusive(PageId page) const { return references(page) == (cached(page) ? 2 : 1); }
  // One per group of the space.
  std::span<const tensor::KvPages> kv() const { return kv_; }

  // Raw references, for PageRef and PageStore only.
  void add_reference(PageId page);
  void drop_reference(PageId page);
  // The cache's own reference is among the page's references while this is set.
  void set_cached(PageId page, bool cached);

  // Ends the process when counts and the free list disagree.
  void check_integrity() const;

 private:
  KvPool() = default;
  static std::size_t index(PageId page) { return static_cast<std::size_t>(page); }
  bool is_idle(PageId page) const { return cached(page) && references(page) == 1; }

  tensor::HugeBuffer buffer_;
  std::vector<tensor::KvPages> kv_;
  std::vector<std::int32_t> references_;
  std::vector<std::uint8_t> cached_;
  std::vector<PageId> free_;
  std::int64_t idle_ = 0;
};

}  // namespace artery::engine
