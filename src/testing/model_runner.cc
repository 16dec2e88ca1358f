#include "testing/model_runner.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace artery::testing {

Result<ModelRunner> ModelRunner::make(model::Model& model, std::int64_t tokens_max) {
  const model::KvLayout layout = model.kv_layout();
  CHECK(layout.groups.size() == 1, "a model with one group of layers");
  ModelRunner out;
  out.model_ = &model;
  out.geometry_ = layout.groups[0].geometry;
  const auto pages = static_cast<std::size_t>((tokens_max + kPageTokens - 1) / kPageTokens);
  const auto page_bytes = static_cast<std::size_t>(out.geometry_.page_bytes());
  out.memory_ = TRY(tensor::HugeBuffer::make(pages * page_bytes));
  // Last page first: whoever forgets the page table is found out.
  out.pages_.resize(pages);
  std::iota(out.pages_.rbegin(), out.pages_.rend(), PageId{0});
  return out;
}

std::vector<float> ModelRunner::step(
    std::span<const TokenId> tokens, std::span<const std::int32_t> logit_rows
) {
  std::vector<Position> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), next_);
  next_ += static_cast<Position>(tokens.size());
  CHECK(static_cast<std::size_t>(next_) <= pages_.size() * kPageTokens, "more than tokens_max");
  const std::vector<std::int32_t> offsets = {0, static_cast<std::int32_t>(tokens.size())};
  const std::vector<model::PageTable> tables = {
      {.pages = pages_, .pages_max = static_cast<std::int64_t>(pages_.size())}
  };
  const std::vector<tensor::KvPages> kv = {{.base = memory_.data(), .geometry = geometry_}};
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
