#include "cli/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/chain_key.h"
#include "bench/forward_driver.h"

namespace artery::cli {
namespace {

double negative_log_likelihood(std::span<const float> logits, TokenId token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  return top + std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(token)]);
}

// Sum over one window that fits the context.
double window_nll(
    model::Model& model, bench::KvMemory& memory, std::span<const TokenId> tokens, std::size_t chunk
) {
  std::vector<PageId> pages;
  for (std::size_t at = 0; at < tokens.size(); at += kPageTokens) pages.push_back(memory.take());
  const auto vocab = static_cast<std::size_t>(model.info().vocab_size);
  std::vector<float> logits;
  double sum = 0;
  for (std::size_t at = 0; at < tokens.size(); at += chunk) {
    const std::size_t count = std::min(chunk, tokens.size() - at);
    bench::Slice slice{tokens.subspan(at, count), static_cast<Position>(at), pages, {}};
    // The last token of the window predicts nothing.
    const std::size_t predicting = std::min(count, tokens.size() - 1 - at);
    for (std::size_t i = 0; i < predicting; ++i)
      slice.logit_rows.push_back(static_cast<std::int32_t>(i));
    bench::run_forward(model, memory, std::span(&slice, 1), logits);
    for (std::size_t i = 0; i < predicting; ++i)
      sum +=
          negative_log_likelihood(std::span(logits).subspan(i * vocab, vocab), tokens[at + i + 1]);
  }
  for (const PageId page : pages) memory.release(page);
  return sum;
}

}  // namespace

Result<Perplexity> measure_perplexity(
    model::Model& model,
    const codec::Tokenizer& tokenizer,
    const std::string& text,
    int chunk,
    const std::function<void(std::int64_t done, std::int64_t total)>& on_progress
) {
  const std::vector<TokenId> tokens = tokenizer.encode(text, {.add_special = true});
  if (tokens.size() < 2)
    return fail_field(
        "--perplexity", "the text has {} tokens, at least 2 are needed", tokens.size()
    );
  const auto context = static_cast<std::size_t>(model.info().context_length);
  const std::size_t window = std::min(context, tokens.size());
  bench::KvMemory memory = TRY(
      bench::KvMemory::make(model.kv_layout(), static_cast<std::int64_t>(window / kPageTokens + 1))
  );
  Perplexity out;
  out.tokens = static_cast<std::int64_t>(tokens.size());
  double sum = 0;
  for (std::size_t at = 0; at + 1 < tokens.size(); at += window) {
    const auto part = std::span(tokens).subspan(at, std::min(window, tokens.size() - at));
    sum += window_nll(model, memory, part, static_cast<std::size_t>(chunk));
    out.predicted += static_cast<std::int64_t>(part.size()) - 1;
    on_progress(static_cast<std::int64_t>(at + part.size()), out.tokens);
  }
  out.mean_nll = sum / static_cast<double>(out.predicted);
  return out;
}

}  // namespace artery::cli
