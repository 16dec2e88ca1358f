#pragma once
// Requests to prompt token ids: template, tokenizer and the rules for special tokens. Pure
// functions, any thread; time grows with the prompt, so never on a connection thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "server/api/requests.h"
#include "server/server.h"

namespace artery::server::api {

struct TokenPrompt {
  std::vector<TokenId> ids;
  std::string text;  // what `echo` shows
};

// The longest text worth tokenizing: beyond it, even the vocabulary's longest piece, over and over,
// gives more tokens than the context has. Four times that, because a tokenizer may drop some of a
// text (spaces, composed characters).
std::size_t prompt_bytes_max(const codec::Tokenizer& tokenizer, std::int64_t max_model_len);
// kContextLength naming `field` when `bytes` is more than `bytes_max` (0: no limit).
Result<> check_prompt_bytes(
    std::size_t bytes, std::size_t bytes_max, std::int64_t max_model_len, const std::string& field
);

// Template text may become control tokens, text of messages never does (FR-B7). BOS is added only
// when the vocabulary asks and the rendered text does not start with it (FR-A5). kUnsupported
// without a template.
Result<TokenPrompt> chat_prompt(
    const Serving& serving, const codec::ChatInput& input, bool add_special
);

// A raw prompt belongs to the user as a whole, as in vLLM: texts of control tokens in it become
// those tokens, so that a hand-rendered chat prompt works. kInvalidArgument when no token is left.
Result<TokenPrompt> text_prompt(
    const Serving& serving, const std::string& text, bool add_special, const std::string& field
);

// The gap between two texts, which are data. kInvalidArgument naming "suffix" where the vocabulary
// has no marks for it.
Result<TokenPrompt> gap_prompt(
    const Serving& serving, const std::string& before, const std::string& behind
);

Result<TokenPrompt> ids_prompt(const Serving& serving, std::vector<TokenId> ids, bool skip_special);

// Text of one token for people: the piece as UTF-8, or "bytes:\xf0\x9f" when it is only a part of a
// character (the spelling of OpenAI's legacy log probabilities).
std::string token_text(const codec::Tokenizer& tokenizer, TokenId id);

}  // namespace artery::server::api
