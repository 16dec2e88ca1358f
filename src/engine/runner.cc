#include "engine/runner.h"

#include <algorithm>

#include "base/check.h"
#include "engine/scheduler.h"

namespace artery::engine {
namespace {

template <typename T>
std::size_t size_of(const T& count) {
  return static_cast<std::size_t>(count);
}

}  // namespace

Runner::Runner(model::Model& model, KvPool& pool, const Clock& clock)
    : model_(model), pool_(pool), clock_(clock) {
  const tensor::ComputePool* threads = model_.compute_pool();
  samplers_.resize(size_of(threads == nullptr ? 1 : threads->threads()));
}

void Runner::fill(StepWork& work) const {
  work.tokens.clear();
  work.positions.clear();
  work.offsets.assign(1, 0);
  work.logit_rows.clear();
  work.pages_max = 1;
  for (const StepItem& item : work.items) {
    work.pages_max = std::max(work.pages_max, pages_for(item.first + item.rows));
  }
  work.page_table.assign(work.items.size() * size_of(work.pages_max), kNoPage);
  for (std::size_t i = 0; i < work.items.size(); ++i) {
    work.items[i].first_logits = work.logit_rows.size();
    add(work, work.items[i], i);
  }
}

void Runner::add(StepWork& work, const StepItem& item, std::size_t at) const {
  const std::int64_t end = item.first + item.rows;
  const std::vector<TokenId>& known = item.choice->tokens;
  const std::vector<PageRef>& pages = item.choice->kv.pages();
  CHECK(item.rows > 0 && end <= static_cast<std::int64_t>(known.size()) + (item.late ? 1 : 0));
  CHECK(pages_for(end) <= item.choice->kv.page_count(), "a chunk without pages");
  const auto row = static_cast<std::int64_t>(work.tokens.size());
  for (std::int64_t i = 0; i < item.rows; ++i) {
    work.tokens.push_back(item.late ? 0 : known[size_of(item.first + i)]);
    work.positions.push_back(static_cast<Position>(item.first + i));
    if (i >= item.logits_from) work.logit_rows.push_back(static_cast<std::int32_t>(row + i));
  }
  work.offsets.push_back(static_cast<std::int32_t>(work.tokens.size()));
  PageId* table = work.page_table.data() + at * size_of(work.pages_max);
  for (std::int64_t page = 0; page < pages_for(end); ++page) {
    table[page] = pages[size_of(page)].page();
  }
  // A page is written by one sequence or read by many, never both (invariant 2).
  for (std::int64_t page = item.first / kPageTokens; page < pages_for(end); ++page) {
    CHECK(
        pool_.references(table[page]) == 1 && !pool_.cached(table[page]),
        "page {} is shared and about to be written",
        table[page]
    );
  }
}

void Runner::take_late_tokens(StepWork& work) const {
  bool dropped = false;
  for (std::size_t i = 0; i < work.items.size(); ++i) {
    StepItem& item = work.items[i];
    if (!item.late) continue;
    CHECK(item.rows == 1 && item.late_from < carried_.size());
    const Carried& carried = carried_[item.late_from];
    work.tokens[size_of(work.offsets[i])] = carried.token;
    item.dropped = carried.ended;
    dropped = dropped || carried.ended;
  }
  if (dropped) drop_rows(work);
}

// Moves what stays to the front; a dropped item keeps its place with no rows in `offsets`' sense,
// so its entries are closed up.
void Runner::drop_rows(StepWork& work) {
  const std::vector<std::int32_t> old = work.offsets;
  const std::size_t width = size_of(work.pages_max);
  work.offsets.assign(1, 0);
  work.logit_rows.clear();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < work.items.size(); ++i) {
    StepItem& item = work.items[i];
    if (item.dropped) continue;
    const auto begin = size_of(old[i]);
    const auto row = size_of(work.offsets.back());
    item.first_logits = work.logit_rows.size();
    for (std::size_t r = 0; r < size_of(item.rows); ++r) {
      work.tokens[row + r] = work.tokens[begin + r];
      work.positions[row + r] = work.positions[begin + r];
      if (static_cast<std::int64_t>(r) >= item.logits_from) {
        work.logit_rows.push_back(static_cast<std::int32_t>(row + r));
      }
    }
    work.offsets.push_back(static_cast<std::int32_t>(row + size_of(item.rows)));
    const auto from = work.page_table.begin() + static_cast<std::ptrdiff_t>(i * width);
    std::copy_n(from, width, work.page_table.begin() + static_cast<std::ptrdiff_t>(kept * width));
    ++kept;
  }
  work.tokens.resize(size_of(work.offsets.back()));
  work.positions.resize(work.tokens.size());
  work.page_table.resize(kept * width);
}

void Runner::forward(StepWork& work) {
  take_late_tokens(work);
  work.begin_ns = clock_.monotonic_ns();
  const std::size_t vocab = size_of(model_.info().vocab_size);
  if (logits_.size() < work.logit_rows.size() * vocab) {
    logits_.resize(work.logit_rows.size() * vocab);
  }
  if (!work.tokens.empty()) {
    const model::PageTable table{work.page_table, work.pages_max};
    // One PageId names a page in every group, so all groups read the same table.
    const std::vector<model::PageTable> tables(pool_.kv().size(), table);
    model::ForwardBatch batch;
    batch.tokens = work.tokens;
    batch.positions = work.positions;
    batch.offsets = work.offsets;
    batch.page_tables = tables;
    batch.kv = pool_.kv();
    batch.logit_rows = work.logit_rows;
    model_.forward(batch, std::span(logits_).first(work.logit_rows.size() * vocab));
  }
  work.forward_end_ns = clock_.monotonic_ns();
}

std::span<const float> Runner::logits(const StepItem& item, std::int64_t row) const {
  const std::size_t vocab = size_of(model_.info().vocab_size);
  return std::span(logits_).subspan(
      (item.first_logits + size_of(row - item.logits_from)) * vocab, vocab
  );
}

// Row i of the prompt predicts token i + 1.
void Runner::list_jobs(StepWork& work) {
  jobs_.clear();
  for (StepItem& item : work.items) {
    if (item.dropped) continue;
    if (item.prompt_logprobs) {
      const std::int64_t next = item.first + item.logits_from + 1;
      const std::int64_t count =
          std::min(item.rows - item.logits_from, item.request->prompt_tokens() - next);
      item.prompt.resize(size_of(std::max<std::int64_t>(0, count)));
      for (std::int64_t i = 0; i < count; ++i) jobs_.push_back({&item, item.logits_from + i, true});
    }
    if (item.samples && item.wanted) jobs_.push_back({&item, item.rows - 1, false});
  }
}

void Runner::run_job(const Job& job, Sampler& sampler) const {
  StepItem& item = *job.item;
  const Request& request = item.request->in.request;
  if (job.prompt) {
    item.prompt[size_of(job.row - item.logits_from)] = sampler.logprobs(
        logits(item, job.row),
        request.prompt[size_of(item.first + job.row + 1)],
        request.prompt_logprobs
    );
    return;
  }
  const SampleContext context{
      request.sampling,
      item.choice->choice,
      item.next_position(),
      item.next_position() - item.request->prompt_tokens(),
      &item.choice->history,
      item.mask.empty() ? nullptr : &item.mask
  };
  item.sampled = sampler.sample(logits(item, job.row), context);
}

void Runner::sample(StepWork& work) {
  const std::int64_t start = clock_.monotonic_ns();
  list_jobs(work);
  const auto count = static_cast<std::int64_t>(jobs_.size());
  tensor::ComputePool* threads = model_.compute_pool();
  const auto body = [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t i = begin; i < end; ++i)
      run_job(jobs_[size_of(i)], samplers_[size_of(thread)]);
  };
  if (threads != nullptr) {
    threads->parallel_for(count, 1, body);
  } else {
    body(0, count, 0);
  }
  carried_.assign(work.items.size(), {0, true});
  for (std::size_t i = 0; i < work.items.size(); ++i) {
    const StepItem& item = work.items[i];
    if (!item.sampled || !*item.sampled) continue;
    const TokenId token = (*item.sampled)->token;
    const std::vector<TokenId>& stops = item.request->in.request.sampling.stop_ids;
    carried_[i] = {token, std::find(stops.begin(), stops.end(), token) != stops.end()};
  }
  work.end_ns = clock_.monotonic_ns();
  work.sampling_ns = work.end_ns - start;
}

}  // namespace artery::engine
