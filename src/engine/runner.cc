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

// Entries of item `from` to the place of item `to` before it. Empty: a model without window groups.
template <typename T>
void copy_row(std::vector<T>& values, std::size_t from, std::size_t to, std::size_t width) {
  if (values.empty()) return;
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(from * width);
  std::copy_n(begin, width, values.begin() + static_cast<std::ptrdiff_t>(to * width));
}

}  // namespace

Runner::Runner(model::Model& model, KvSpaces& spaces, const Clock& clock)
    : model_(model), spaces_(spaces), clock_(clock) {
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
  if (spaces_.shape()) {
    work.window_table.assign(work.page_table.size(), kNoPage);
    work.window_first.clear();
    work.global_write_from.clear();
  }
  for (std::size_t i = 0; i < work.items.size(); ++i) {
    work.items[i].first_logits = work.logit_rows.size();
    add(work, work.items[i], i);
  }
}

void Runner::add(StepWork& work, const StepItem& item, std::size_t at) const {
  const std::int64_t end = item.first + item.rows;
  const std::vector<TokenId>& known = item.choice->tokens;
  const auto count = static_cast<std::int64_t>(known.size());
  CHECK(item.rows > 0 && end <= count + (item.late ? 1 : 0) + std::ssize(item.drafts));
  const auto row = static_cast<std::int64_t>(work.tokens.size());
  for (std::int64_t i = 0; i < item.rows; ++i) {
    const std::int64_t at_token = item.first + i;
    if (at_token < count || item.late) {
      work.tokens.push_back(item.late ? 0 : known[size_of(at_token)]);
    } else {
      work.tokens.push_back(item.drafts[size_of(at_token - count)]);
    }
    work.positions.push_back(static_cast<Position>(item.first + i));
    if (i >= item.logits_from) work.logit_rows.push_back(static_cast<std::int32_t>(row + i));
  }
  work.offsets.push_back(static_cast<std::int32_t>(work.tokens.size()));
  add_pages(work, item, at);
  if (spaces_.shape()) add_window_pages(work, item, at);
}

void Runner::add_pages(StepWork& work, const StepItem& item, std::size_t at) const {
  const SequenceKv& kv = item.choice->kv;
  const std::int64_t end = pages_for(item.first + item.rows);
  CHECK(end <= kv.page_count(), "a chunk without pages");
  PageId* table = work.page_table.data() + at * size_of(work.pages_max);
  for (std::int64_t page = 0; page < end; ++page) table[page] = kv.pages()[size_of(page)].page();
  // A page is written by one sequence or read by many, never both (invariant 3).
  const std::int64_t written = std::max(item.first, kv.ready()) / kPageTokens;
  for (std::int64_t page = written; page < end; ++page) {
    CHECK(
        spaces_.global().references(table[page]) == 1 && !spaces_.global().cached(table[page]),
        "page {} is shared and about to be written",
        table[page]
    );
  }
}

void Runner::add_window_pages(StepWork& work, const StepItem& item, std::size_t at) const {
  const SequenceKv& kv = item.choice->kv;
  const std::int64_t end = pages_for(item.first + item.rows);
  CHECK(end <= kv.window_end(), "a chunk without window pages");
  PageId* table = work.window_table.data() + at * size_of(work.pages_max);
  for (std::int64_t page = kv.window_begin(); page < end; ++page) {
    table[page] = kv.window_page(page);
    CHECK(
        page < item.first / kPageTokens || spaces_.window().references(table[page]) == 1,
        "window page {} is shared and about to be written",
        table[page]
    );
  }
  work.window_first.push_back(static_cast<Position>(kv.window_begin() * kPageTokens));
  work.global_write_from.push_back(static_cast<Position>(kv.ready()));
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
    copy_row(work.page_table, i, kept, width);
    copy_row(work.window_table, i, kept, width);
    copy_row(work.window_first, i, kept, 1);
    copy_row(work.global_write_from, i, kept, 1);
    ++kept;
  }
  work.tokens.resize(size_of(work.offsets.back()));
  work.positions.resize(work.tokens.size());
  work.page_table.resize(kept * width);
  if (work.window_table.empty()) return;
  work.window_table.resize(kept * width);
  work.window_first.resize(kept);
  work.global_write_from.resize(kept);
}

std::vector<model::PageTable> Runner::tables_of(const StepWork& work) const {
  std::vector<model::PageTable> tables;
  for (std::size_t group = 0; group < spaces_.kv().size(); ++group) {
    model::PageTable table{work.page_table, work.pages_max};
    if (spaces_.kind(group) == model::KvKind::kWindow) {
      table.pages = work.window_table;
      table.first = work.window_first;
    } else if (spaces_.shape()) {
      table.write_from = work.global_write_from;
    }
    tables.push_back(table);
  }
  return tables;
}

void Runner::forward(StepWork& work) {
  take_late_tokens(work);
  work.begin_ns = clock_.monotonic_ns();
  const std::size_t vocab = size_of(model_.info().vocab_size);
  if (logits_.size() < work.logit_rows.size() * vocab) {
    logits_.resize(work.logit_rows.size() * vocab);
  }
  if (!work.tokens.empty()) {
    const std::vector<model::PageTable> tables = tables_of(work);
    model::ForwardBatch batch;
    batch.tokens = work.tokens;
    batch.positions = work.positions;
    batch.offsets = work.offsets;
    batch.page_tables = tables;
    batch.kv = spaces_.kv();
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
    const std::int64_t last = item.rows - 1 - std::ssize(item.drafts);
    if (item.samples && item.wanted) jobs_.push_back({&item, last, false});
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
  SampleContext context{
      request.sampling,
      item.choice->choice,
      item.next_position(),
      item.next_position() - item.request->prompt_tokens(),
      &item.choice->history,
      item.mask.empty() ? nullptr : &item.mask
  };
  item.sampled = sampler.sample(logits(item, job.row), context);
  verify(item, job.row, context, sampler);
}

// The noise depends on the position, not on how a row came to be: a draft is right when it is what
// the row before it samples, and then its own row gives the next token.
void Runner::verify(StepItem& item, std::int64_t row, SampleContext context, Sampler& sampler)
    const {
  item.verified.clear();
  const Result<Sampled>* last = &*item.sampled;
  for (const TokenId draft : item.drafts) {
    if (!*last || (*last)->token != draft) return;
    ++context.position;
    ++context.generated;
    item.verified.push_back(sampler.sample(logits(item, ++row), context));
    last = &item.verified.back();
  }
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
