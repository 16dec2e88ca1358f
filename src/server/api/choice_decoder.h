#pragma once
// Token ids of one choice to deltas: detokenizer, reasoning and tool calls, stop strings, counts,
// log probabilities. The same deltas feed the stream and the whole answer. Token by token, so the
// result does not depend on how the engine's events were merged. One thread at a time.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codec/stream/detokenizer.h"
#include "codec/stream/output_parser.h"
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
  bool is_content = false;       // its text is in the answer's text; not reasoning, calls, markup
  std::int64_t text_offset = 0;  // characters before it in the choice's text
  std::vector<ShownToken> top;   // best first; their `top` is empty
};

// A part of one tool call. Its first part has id and name, the others arguments.
struct CallDelta {
  int index = 0;
  std::string id, name, arguments;
};

// A part of an answer: text, reasoning or a part of a call.
struct Delta {
  std::string text, reasoning;
  std::vector<CallDelta> calls;    // one; in a whole answer all, each put together
  std::vector<ShownToken> tokens;  // when log probabilities were asked for
  bool has_parts() const { return !text.empty() || !reasoning.empty() || !calls.empty(); }
  // Adds a later part of the same choice.
  void append(Delta later);
};

// How the tokens of a choice are read; by default all of them are text.
struct OutputWish {
  codec::OutputParser parser;
  bool parallel_calls = true;     // false: nothing follows the first call
  bool include_reasoning = true;  // false: it is read and left out
  std::function<std::string()> new_call_id;
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
  ChoiceDecoder(const codec::Tokenizer& tokenizer, const DecodeOptions& options, OutputWish wish);

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

  // A stop string came, or a call that is not wanted: no more tokens count.
  bool stopped() const { return stop_.stopped() || call_refused_; }
  // The stop string that came, or "".
  std::string stop_string() const { return stop_.stopped() ? stop_.matched() : std::string(); }
  bool has_calls() const { return has_calls_; }
  std::int64_t token_count() const { return count_; }  // generated, the stop token included
  std::vector<Delta> take() { return std::exchange(deltas_, {}); }

 private:
  bool is_markup(TokenId id) const;
  void feed(TokenId id);
  void take_events();
  void take_event(codec::OutputEvent event);
  void show(std::string_view text);
  void add_text(std::string_view text);
  Delta& text_delta();
  ShownToken shown(const engine::TokenLogprob& entry) const;
  ShownToken noted(TokenId id, const engine::PositionLogprobs& logprobs);
  void place_tokens(std::size_t text_before, std::size_t other_before);
  void place_rest();

  const codec::Tokenizer* tokenizer_;
  DecodeOptions options_;
  codec::Detokenizer detokenizer_;
  OutputWish wish_;
  codec::StopMatcher stop_;
  std::vector<Delta> deltas_;
  std::vector<ShownToken> pending_;                // what they say is held back, or was markup
  std::size_t text_bytes_ = 0, other_events_ = 0;  // put into deltas so far
  bool has_calls_ = false, call_refused_ = false;
  std::int64_t count_ = 0;
  std::int64_t offset_ = 0;
};

}  // namespace artery::server::api
