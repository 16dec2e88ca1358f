#pragma once
// Whether a file's tokenizer arrays fit together and fit the model, without building a tokenizer
// (that is codec's work). Pure, any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/format/model_file.h"

namespace artery::model {

// `vocab`: rows of token_embd.weight. kBadFile: arrays missing or of different lengths;
// kUnsupported: a tokenizer.ggml.model we do not know. What is odd but usable (duplicate tokens, a
// merge without a space, a special id outside the vocabulary) is appended to `warnings`.
Result<> check_tokenizer(
    const ModelFile& file, std::int64_t vocab, std::vector<std::string>& warnings
);

}  // namespace artery::model
