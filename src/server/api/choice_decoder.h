#pragma once
// Token ids of one choice to text deltas: detokenizer, stop strings, counts, log probabilities.
// The same deltas feed the stream and the whole answer. Token by token, so the result does not
// depend on how the engine's events were merged. One thread at a time.

#include <cstdint>
#include <string>
#include <vector>

#include "codec/stream/detokenizer.h"
#include "codec/stream/stop_matcher.h"
#include "codec/tokenizer.h"
#include "engine/engine.h"

namespace artery::server::api {

// One token with its log probability, as the APIs show it.
struct ShownToken {
  std::string text;   // token_text()
  std::string bytes;  // the piece
  float logprob = 0;
  bool has_logprob = true;       // false: the first token of an echoed prompt
  std::int64_t text_offset = 0;  // characters before it in the choice's text
  std::vector<ShownToken> top;   // best first; their `top` is empty
};

struct Delta {
  std::string text;
  std::vector<ShownToken> tokens;  // when log probabilities were asked for
  bool empty() const { return text.empty() && tokens.empty(); }
};

struct DecodeOptions {
  std::vector<std::string> stops;
  bool include_stop = false;
  bool skip_special = true;
  std::int64_t min_tokens = 0;  // stop strings in the first so many tokens do not count
  int logprobs = -1;
};

class ChoiceDecoder {
 public:
  ChoiceDecoder(const codec::Tokenizer& tokenizer, const DecodeOptions& options);

  // An echoed prompt: `text`, and one token per prompt id when `logprobs` is not null (entry i
  // belongs to id i + 1).
  void push_prompt(
      const std::string& text,
      const std::vector<TokenId>& ids,
      const std::vector<engine::PositionLogprobs>* logprobs
  );
  void push(TokenId id, const engine::PositionLogprobs* logprobs);
  // Flushes what was held back. `stop_token`: the stop id that ended the choice, or -1.
  void finish(TokenId stop_token);

  bool stopped() const { return stop_.stopped(); }  // a stop string came: no more tokens count
  const std::string& stop_string() const { return stop_.matched(); }
  std::int64_t token_count() const { return count_; }  // generated, the stop token included
  Delta take() { return std::exchange(delta_, {}); }

 private:
  void show(std::string_view text, bool check_stops);
  ShownToken shown(const engine::TokenLogprob& entry) const;
  void note_token(TokenId id, const engine::PositionLogprobs& logprobs);

  const codec::Tokenizer* tokenizer_;
  DecodeOptions options_;
  codec::Detokenizer detokenizer_;
  codec::StopMatcher stop_;
  Delta delta_;
  std::int64_t count_ = 0;
  std::int64_t offset_ = 0;
};

}  // namespace artery::server::api
