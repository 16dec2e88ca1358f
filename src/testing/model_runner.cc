#include "testing/model_runner.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace artery::testing {

Result<ModelRunner> ModelRunner::make(model::Model& model, std::int64_t tokens_max) {
  ModelRunner out;
  out.model_ = &model;
  const auto pages = static_cast<std::size_t>((tokens_max + kPageTokens - 1) / kPageTokens);
  for (const model::KvGroup& layout : model.kv_layout().groups) {
    Group& group = out.groups_.emplace_back();
    group.layout = layout;
    const auto page_bytes = static_cast<std::size_t>(layout.geometry.page_bytes());
    group.memory = TRY(tensor::HugeBuffer::make(pages * page_bytes));
    // Last page first, and each group begins elsewhere: whoever forgets a page table is found out.
    group.pages.resize(pages);
    std::iota(group.pages.rbegin(), group.pages.rend(), PageId{0});
    const auto shift = static_cast<std::ptrdiff_t>((out.groups_.size() - 1) % pages);
    std::rotate(group.pages.begin(), group.pages.begin() + shift, group.pages.end());
  }
  return out;
}

std::vector<float> ModelRunner::step(
    std::span<const TokenId> tokens, std::span<const std::int32_t> logit_rows
) {
  std::vector<Position> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), next_);
  const std::vector<std::int32_t> offsets = {0, static_cast<std::int32_t>(tokens.size())};
  std::vector<Position> first;  // of each group's only sequence
  std::vector<std::vector<PageId>> pages;
  for (const Group& group : groups_) {
    const bool window = group.layout.kind == model::KvKind::kWindow;
    first.push_back(window ? std::max(0, next_ - group.layout.window_tokens + 1) : 0);
    pages.push_back(group.pages);
    std::fill_n(pages.back().begin(), first.back() / kPageTokens, kNoPage);
  }
  std::vector<model::PageTable> tables;
  std::vector<tensor::KvPages> kv;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    tables.push_back({
        .pages = pages[g],
        .pages_max = static_cast<std::int64_t>(pages[g].size()),
        .first = std::span(first).subspan(g, 1),
        .write_from = {},
    });
    kv.push_back({groups_[g].memory.data(), groups_[g].layout.geometry});
  }
  next_ += static_cast<Position>(tokens.size());
  CHECK(static_cast<std::size_t>(next_) <= pages[0].size() * kPageTokens, "more than tokens_max");
  model::ForwardBatch batch;
  batch.tokens = tokens;
  batch.positions = positions;
  batch.offsets = offsets;
  batch.page_tables = tables;
  batch.kv = kv;
  batch.logit_rows = logit_rows;
  std::vector<float> logits(logit_rows.size() * static_cast<std::size_t>(vocab()));
  model_->forward(batch, logits);
  return logits;
}

std::vector<float> ModelRunner::run(
    std::span<const TokenId> tokens, std::span<const std::int32_t> wanted, std::int64_t chunk
) {
  next_ = 0;
  std::vector<float> out;
  const auto step_size = static_cast<std::size_t>(chunk);
  for (std::size_t at = 0; at < tokens.size(); at += step_size) {
    const std::size_t count = std::min(step_size, tokens.size() - at);
    std::vector<std::int32_t> rows;
    for (const std::int32_t position : wanted) {
      const auto index = static_cast<std::size_t>(position);
      if (index >= at && index < at + count) rows.push_back(static_cast<std::int32_t>(index - at));
    }
    const auto logits = step(tokens.subspan(at, count), rows);
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

std::vector<float> ModelRunner::run_all(std::span<const TokenId> tokens, std::int64_t chunk) {
  std::vector<std::int32_t> wanted(tokens.size());
  std::iota(wanted.begin(), wanted.end(), 0);
  return run(tokens, wanted, chunk);
}

}  // namespace artery::testing
