#include "server/api/choice_decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/api/prompts.h"

namespace artery::server::api {
namespace {

// JSON has no infinity; -9999 is what vLLM writes.
float writable(float logprob) { return std::isfinite(logprob) ? logprob : -9999.0F; }

// Characters that begin in `bytes`: a character split over tokens counts for its first one.
std::int64_t characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
}

}  // namespace

ChoiceDecoder::ChoiceDecoder(const codec::Tokenizer& tokenizer, const DecodeOptions& options)
    : tokenizer_(&tokenizer),
      options_(options),
      // Generated text continues the prompt: its leading space is real (FR-A4).
      detokenizer_(tokenizer, options.skip_special, true),
      stop_(options.stops, options.include_stop) {}

ShownToken ChoiceDecoder::shown(const engine::TokenLogprob& entry) const {
  ShownToken token;
  token.text = token_text(*tokenizer_, entry.token);
  token.bytes = std::string(tokenizer_->piece(entry.token));
  token.logprob = writable(entry.logprob);
  return token;
}

void ChoiceDecoder::note_token(TokenId id, const engine::PositionLogprobs& logprobs) {
  ShownToken token = shown({id, logprobs.chosen.logprob});
  token.text_offset = offset_;
  const auto wanted = static_cast<std::size_t>(std::max(options_.logprobs, 0));
  for (const engine::TokenLogprob& entry : logprobs.top) {
    if (token.top.size() == wanted) break;
    token.top.push_back(shown(entry));
  }
  if (!(options_.skip_special && tokenizer_->is_control(id))) offset_ += characters(token.bytes);
  delta_.tokens.push_back(std::move(token));
}

void ChoiceDecoder::push_prompt(
    const std::string& text,
    const std::vector<TokenId>& ids,
    const std::vector<engine::PositionLogprobs>* logprobs
) {
  delta_.text += text;
  if (logprobs != nullptr) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i > 0 && i - 1 < logprobs->size()) {
        note_token(ids[i], (*logprobs)[i - 1]);
      } else {
        note_token(ids[i], {});
        delta_.tokens.back().has_logprob = false;
      }
    }
  }
  offset_ = characters(text);
}

void ChoiceDecoder::show(std::string_view text, bool check_stops) {
  delta_.text += check_stops ? stop_.push(text) : std::string(text);
}

void ChoiceDecoder::push(TokenId id, const engine::PositionLogprobs* logprobs) {
  if (stopped()) return;
  ++count_;
  if (options_.logprobs >= 0 && logprobs != nullptr) note_token(id, *logprobs);
  show(detokenizer_.push(id), count_ > options_.min_tokens);
}

void ChoiceDecoder::finish(TokenId stop_token) {
  if (stopped()) return;
  if (stop_token >= 0) {
    ++count_;
    if (options_.include_stop) show(detokenizer_.push(stop_token), true);
  }
  show(detokenizer_.finish(), count_ > options_.min_tokens);
  if (!stopped()) delta_.text += stop_.finish();
}

}  // namespace artery::server::api
