#include "bench/forward_driver.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace artery::bench {

Result<KvMemory> KvMemory::make(const model::KvLayout& layout, std::int64_t pages) {
  KvMemory memory;
  for (const model::KvGroup& group : layout.groups) {
    memory.kinds_.push_back(group.kind);
    const auto bytes = static_cast<std::size_t>(group.geometry.page_bytes() * pages);
    if (bytes == 0) {  // no layer of this kind: Mistral has a window in all of them
      memory.groups_.push_back({nullptr, group.geometry});
      memory.group_bytes_.push_back(0);
      continue;
    }
    void* base = mmap(
        nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0
    );
    if (base == MAP_FAILED)
      return fail(Code::kOutOfMemory, "no address space for {} bytes of KV cache", bytes);
    madvise(base, bytes, MADV_HUGEPAGE);  // fewer faults while timed; may be refused
    memory.groups_.push_back({static_cast<std::byte*>(base), group.geometry});
    memory.group_bytes_.push_back(bytes);
  }
  memory.references_.resize(static_cast<std::size_t>(pages));
  for (std::int64_t p = pages; p-- > 0;) memory.free_.push_back(static_cast<PageId>(p));
  return memory;
}

KvMemory::KvMemory(KvMemory&& other) noexcept
    : groups_(std::exchange(other.groups_, {})),
      kinds_(std::move(other.kinds_)),
      group_bytes_(std::exchange(other.group_bytes_, {})),
      references_(std::move(other.references_)),
      free_(std::move(other.free_)) {}

KvMemory::~KvMemory() {
  for (std::size_t i = 0; i < groups_.size(); ++i)
    if (group_bytes_[i] > 0) munmap(groups_[i].base, group_bytes_[i]);
}

PageId KvMemory::take() {
  if (free_.empty()) return kNoPage;
  const PageId page = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void KvMemory::hold(PageId page) { ++references_[static_cast<std::size_t>(page)]; }

void KvMemory::release(PageId page) {
  int& count = references_[static_cast<std::size_t>(page)];
  CHECK(count > 0, "page {} released twice", page);
  if (--count == 0) free_.push_back(page);
}

namespace {

using PagesOf = std::span<const PageId> (*)(const Slice&);

// [slices, pages_max] of the pages that `of` names.
std::vector<PageId> table_of(std::span<const Slice> slices, std::size_t pages_max, PagesOf of) {
  std::vector<PageId> table(slices.size() * pages_max, kNoPage);
  for (std::size_t s = 0; s < slices.size(); ++s) {
    const std::span<const PageId> pages = of(slices[s]);
    std::copy(
        pages.begin(), pages.end(), table.begin() + static_cast<std::ptrdiff_t>(s * pages_max)
    );
  }
  return table;
}

std::span<const PageId> global_pages(const Slice& slice) { return slice.pages; }
std::span<const PageId> window_pages(const Slice& slice) {
  return slice.window_pages.empty() ? slice.pages : slice.window_pages;
}

}  // namespace

void run_forward(
    model::Model& model,
    const KvMemory& memory,
    std::span<const Slice> slices,
    std::vector<float>& logits
) {
  std::vector<TokenId> tokens;
  std::vector<Position> positions;
  std::vector<std::int32_t> offsets = {0};
  std::vector<std::int32_t> rows;
  std::vector<Position> window_first;
  std::vector<Position> write_from;
  std::size_t pages_max = 1;
  for (const Slice& slice : slices) {
    const auto begin = static_cast<std::int32_t>(tokens.size());
    tokens.insert(tokens.end(), slice.tokens.begin(), slice.tokens.end());
    for (std::size_t i = 0; i < slice.tokens.size(); ++i)
      positions.push_back(slice.first + static_cast<Position>(i));
    for (const std::int32_t row : slice.logit_rows) rows.push_back(begin + row);
    offsets.push_back(static_cast<std::int32_t>(tokens.size()));
    window_first.push_back(slice.window_first);
    write_from.push_back(slice.write_from);
    pages_max = std::max({pages_max, slice.pages.size(), slice.window_pages.size()});
  }
  const std::vector<PageId> global = table_of(slices, pages_max, global_pages);
  const std::vector<PageId> window = table_of(slices, pages_max, window_pages);
  std::vector<model::PageTable> tables;
  for (std::size_t group = 0; group < memory.groups().size(); ++group) {
    model::PageTable table{global, static_cast<std::int64_t>(pages_max)};
    if (memory.kind(group) == model::KvKind::kWindow) {
      table.pages = window;
      table.first = window_first;
    } else {
      table.write_from = write_from;
    }
    tables.push_back(table);
  }
  logits.resize(rows.size() * static_cast<std::size_t>(model.info().vocab_size));
  model::ForwardBatch batch;
  batch.tokens = tokens;
  batch.positions = positions;
  batch.offsets = offsets;
  batch.page_tables = tables;
  batch.kv = memory.groups();
  batch.logit_rows = rows;
  model.forward(batch, logits);
}

}  // namespace artery::bench
