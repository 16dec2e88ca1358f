#include "engine/runner.h"

#include <algorithm>

#include "base/check.h"
#include "engine/scheduler.h"

namespace artery::engine {

void Runner::run(std::span<const Chunk> chunks) {
  tokens_.clear();
  positions_.clear();
  offsets_.assign(1, 0);
  logit_rows_.clear();
  first_logit_.clear();
  std::int64_t pages_max = 1;
  for (const Chunk& chunk : chunks) {
    pages_max = std::max(pages_max, pages_for(chunk.kv->computed() + chunk.count));
  }
  page_table_.assign(chunks.size() * static_cast<std::size_t>(pages_max), kNoPage);
  for (std::size_t i = 0; i < chunks.size(); ++i) add(chunks[i], pages_max, i);

  const auto vocab = static_cast<std::size_t>(model_.info().vocab_size);
  if (logits_.size() < logit_rows_.size() * vocab) logits_.resize(logit_rows_.size() * vocab);
  const model::PageTable table{page_table_, pages_max};
  // One PageId names a page in every group, so all groups read the same table.
  const std::vector<model::PageTable> tables(pool_.kv().size(), table);
  model::ForwardBatch batch;
  batch.tokens = tokens_;
  batch.positions = positions_;
  batch.offsets = offsets_;
  batch.page_tables = tables;
  batch.kv = pool_.kv();
  batch.logit_rows = logit_rows_;
  model_.forward(batch, std::span(logits_).first(logit_rows_.size() * vocab));
}

void Runner::add(const Chunk& chunk, std::int64_t pages_max, std::size_t at) {
  const std::int64_t first = chunk.kv->computed();
  const std::int64_t end = first + chunk.count;
  CHECK(chunk.count > 0 && end <= static_cast<std::int64_t>(chunk.tokens.size()));
  CHECK(pages_for(end) <= chunk.kv->page_count(), "a chunk without pages");
  const auto row = static_cast<std::int64_t>(tokens_.size());
  first_logit_.push_back(static_cast<std::int64_t>(logit_rows_.size()) - chunk.logits_from);
  for (std::int64_t i = 0; i < chunk.count; ++i) {
    tokens_.push_back(chunk.tokens[static_cast<std::size_t>(first + i)]);
    positions_.push_back(static_cast<Position>(first + i));
    if (i >= chunk.logits_from) logit_rows_.push_back(static_cast<std::int32_t>(row + i));
  }
  offsets_.push_back(static_cast<std::int32_t>(tokens_.size()));
  PageId* table = page_table_.data() + static_cast<std::int64_t>(at) * pages_max;
  for (std::int64_t page = 0; page < pages_for(end); ++page) {
    table[page] = chunk.kv->pages()[static_cast<std::size_t>(page)].page();
  }
  // A page is written by one sequence or read by many, never both (invariant 2).
  for (std::int64_t page = first / kPageTokens; page < pages_for(end); ++page) {
    CHECK(
        pool_.references(table[page]) == 1 && !pool_.cached(table[page]),
        "page {} is shared and about to be written",
        table[page]
    );
  }
}

std::span<const float> Runner::logits(std::size_t chunk, std::int64_t row) const {
  const auto vocab = static_cast<std::size_t>(model_.info().vocab_size);
  const auto at = static_cast<std::size_t>(first_logit_[chunk] + row);
  return std::span(logits_).subspan(at * vocab, vocab);
}

}  // namespace artery::engine
