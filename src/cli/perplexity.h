#pragma once
// `eval --perplexity`: how well a model predicts a text. One thread.

#include <functional>
#include <string>

#include "base/result.h"
#include "codec/tokenizer.h"
#include "model/model.h"

namespace artery::cli {

struct Perplexity {
  std::int64_t tokens = 0;
  std::int64_t predicted = 0;  // all but the first of each window
  double mean_nll = 0;         // natural logarithm, per predicted token
};

// One pass from position 0, every token after the first predicted from all before it; a text longer
// than the context is cut into windows of the context's length. kInvalidArgument: fewer than two
// tokens.
Result<Perplexity> measure_perplexity(
    model::Model& model,
    const codec::Tokenizer& tokenizer,
    const std::string& text,
    int chunk,
    const std::function<void(std::int64_t done, std::int64_t total)>& on_progress
);

}  // namespace artery::cli
