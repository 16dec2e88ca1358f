#pragma once
// Whether chats with a model are written and read as DeepSeek's own encoding does it. Pure
// functions, any thread.

#include <optional>
#include <string_view>

#include "base/result.h"
#include "codec/api/convert.h"
#include "codec/tokenizer.h"

namespace artery::cli {

// `chosen`: --chat-template; "deepseek-v4" and "deepseek-v4.1" are not templates but these
// encodings, and what models of these architectures get where nothing was chosen.
std::optional<codec::api::ModelVersion> deepseek_format(
    std::string_view chosen, std::string_view architecture
);

// kBadFile naming the special token that the vocabulary lacks.
Result<> check_deepseek_vocabulary(
    codec::api::ModelVersion version, const codec::Tokenizer& tokenizer
);

}  // namespace artery::cli
