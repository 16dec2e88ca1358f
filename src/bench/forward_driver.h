#pragma once
// Runs a model without an engine: KV pages by hand and one forward call over a few slices of
// sequences. What `bench model` and `eval` stand on. One thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/model.h"

namespace artery::bench {

// Pages for every group of a KvLayout; a page id means the same page in all groups. Memory is
// reserved, and touched only where pages are used. Pages have reference counts so that sequences
// can share a prefix.
class KvMemory {
 public:
  // kOutOfMemory when the address space cannot be had.
  static Result<KvMemory> make(const model::KvLayout& layout, std::int64_t pages);
  KvMemory(KvMemory&& other) noexcept;
  KvMemory& operator=(KvMemory&&) = delete;
  ~KvMemory();

  std::int64_t pages_free() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t pages_total() const { return static_cast<std::int64_t>(references_.size()); }
  // A free page with one reference; kNoPage when there is none.
  PageId take();
  void hold(PageId page);
  void release(PageId page);
  int references(PageId page) const { return references_[static_cast<std::size_t>(page)]; }

  std::span<const tensor::KvPages> groups() const { return groups_; }
  model::KvKind kind(std::size_t group) const { return kinds_[group]; }

 private:
  KvMemory() = default;
  std::vector<tensor::KvPages> groups_;
  std::vector<model::KvKind> kinds_;
  std::vector<std::size_t> group_bytes_;
  std::vector<int> references_;
  std::vector<PageId> free_;  // last one first
};

// A run of consecutive tokens of one sequence.
struct Slice {
  std::span<const TokenId> tokens;
  Position first = 0;                    // position of tokens[0]
  std::span<const PageId> pages;         // page of positions 16 p .. 16 p + 15
  std::vector<std::int32_t> logit_rows;  // indices into `tokens`, ascending
  // After a hit whose windows are gone (sliding-window layers): pages of the window groups, by the
  // same positions (empty: `pages`); entries of positions before window_first are gone; rows before
  // write_from leave the entries of global groups as they are.
  std::span<const PageId> window_pages = {};
  Position window_first = 0;
  Position write_from = 0;
};

// One forward call over all slices; logits [sum of logit_rows, vocab_size] in the order of the
// slices.
void run_forward(
    model::Model& model,
    const KvMemory& memory,
    std::span<const Slice> slices,
    std::vector<float>& logits
);

}  // namespace artery::bench
