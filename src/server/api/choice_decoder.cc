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

void Delta::append(Delta later) {
  text += later.text;
  reasoning += later.reasoning;
  for (CallDelta& call : later.calls) {
    if (calls.empty() || calls.back().index != call.index) {
      calls.push_back(std::move(call));
    } else {
      calls.back().arguments += call.arguments;
    }
  }
  std::move(later.tokens.begin(), later.tokens.end(), std::back_inserter(tokens));
}

ChoiceDecoder::ChoiceDecoder(
    const codec::Tokenizer& tokenizer, const DecodeOptions& options, OutputWish wish
)
    : tokenizer_(&tokenizer),
      options_(options),
      // Generated text continues the prompt: its leading space is real (FR-A4).
      detokenizer_(tokenizer, options.skip_special, true),
      wish_(std::move(wish)),
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
  if (deltas_.empty()) deltas_.emplace_back();
  deltas_.back().tokens.push_back(std::move(token));
}

void ChoiceDecoder::push_prompt(
    const std::string& text,
    const std::vector<TokenId>& ids,
    const std::vector<engine::PositionLogprobs>* logprobs
) {
  text_delta().text += text;
  if (logprobs != nullptr) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i > 0 && i - 1 < logprobs->size()) {
        note_token(ids[i], (*logprobs)[i - 1]);
      } else {
        note_token(ids[i], {});
        deltas_.back().tokens.back().has_logprob = false;
      }
    }
  }
  offset_ = characters(text);
}

// The last delta where text may go on, or a new one.
Delta& ChoiceDecoder::text_delta() {
  if (deltas_.empty() || !deltas_.back().reasoning.empty() || !deltas_.back().calls.empty()) {
    deltas_.emplace_back();
  }
  return deltas_.back();
}

void ChoiceDecoder::show(std::string_view text) {
  const std::string shown = count_ > options_.min_tokens ? stop_.push(text) : std::string(text);
  if (!shown.empty()) text_delta().text += shown;
}

void ChoiceDecoder::take_event(codec::OutputEvent event) {
  using Kind = codec::OutputEvent::Kind;
  if (event.kind == Kind::kContent) {
    show(event.text);
    return;
  }
  // A stop string does not reach across reasoning or a call.
  if (const std::string held = stop_.finish(); !held.empty()) text_delta().text += held;
  if (event.kind == Kind::kReasoning) {
    if (!wish_.include_reasoning) return;
    if (deltas_.empty() || !deltas_.back().text.empty() || !deltas_.back().calls.empty()) {
      deltas_.emplace_back();
    }
    deltas_.back().reasoning += event.text;
    return;
  }
  if (event.kind == Kind::kCallEnd) return;
  const bool begins = event.kind == Kind::kCallBegin;
  if (begins && event.call > 0 && !wish_.parallel_calls) {
    call_refused_ = true;
    return;
  }
  has_calls_ = true;
  CallDelta call{event.call, {}, {}, {}};
  if (begins) {
    call.id = event.id.empty() && wish_.new_call_id ? wish_.new_call_id() : std::move(event.id);
    call.name = std::move(event.text);
  } else {
    call.arguments = std::move(event.text);
  }
  // The parts of a call are chunks of their own, as clients expect them.
  const bool goes_on = !begins && !deltas_.empty() && !deltas_.back().calls.empty() &&
                       deltas_.back().calls.back().name.empty();
  if (goes_on) {
    deltas_.back().calls.back().arguments += call.arguments;
    return;
  }
  if (deltas_.empty() || deltas_.back().has_parts()) deltas_.emplace_back();
  deltas_.back().calls.push_back(std::move(call));
}

void ChoiceDecoder::take_events() {
  for (codec::OutputEvent& event : wish_.parser.take()) {
    if (stopped()) return;
    take_event(std::move(event));
  }
}

void ChoiceDecoder::feed(TokenId id) {
  const std::string_view piece = tokenizer_->piece(id);
  if (tokenizer_->is_control(id) && wish_.parser.takes(piece)) {
    wish_.parser.push_text(detokenizer_.finish());
    wish_.parser.push_control(piece);
  } else {
    wish_.parser.push_text(detokenizer_.push(id));
  }
}

void ChoiceDecoder::push(TokenId id, const engine::PositionLogprobs* logprobs) {
  if (stopped()) return;
  ++count_;
  if (options_.logprobs >= 0 && logprobs != nullptr) note_token(id, *logprobs);
  feed(id);
  take_events();
}

void ChoiceDecoder::finish(TokenId stop_token) {
  if (stopped()) return;
  if (stop_token >= 0) {
    ++count_;
    const std::string_view piece = tokenizer_->piece(stop_token);
    const bool is_markup = tokenizer_->is_control(stop_token) && wish_.parser.takes(piece);
    if (is_markup || options_.include_stop) feed(stop_token);
  }
  wish_.parser.push_text(detokenizer_.finish());
  wish_.parser.finish();
  take_events();
  if (stopped()) return;
  if (const std::string held = stop_.finish(); !held.empty()) text_delta().text += held;
}

}  // namespace artery::server::api
