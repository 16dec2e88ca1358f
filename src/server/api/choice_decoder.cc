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

ShownToken ChoiceDecoder::noted(TokenId id, const engine::PositionLogprobs& logprobs) {
  ShownToken token = shown({id, logprobs.chosen.logprob});
  token.text_offset = offset_;
  const auto wanted = static_cast<std::size_t>(std::max(options_.logprobs, 0));
  for (const engine::TokenLogprob& entry : logprobs.top) {
    if (token.top.size() == wanted) break;
    token.top.push_back(shown(entry));
  }
  if (!(options_.skip_special && tokenizer_->is_control(id))) offset_ += characters(token.bytes);
  return token;
}

// Log probabilities go with what their tokens said: of text that has come, the newest tokens as far
// as it reaches are its own, and those before them were markup or left out.
void ChoiceDecoder::place_tokens(std::size_t text_before, std::size_t other_before) {
  if (text_bytes_ == text_before) {
    if (other_events_ != other_before) place_rest();
    return;
  }
  std::size_t first = pending_.size();
  for (std::size_t left = text_bytes_ - text_before; left > 0 && first > 0;) {
    ShownToken& token = pending_[--first];
    token.is_content = true;
    left -= std::min(left, token.bytes.size());
  }
  auto at = deltas_.end() - 1;
  while (at != deltas_.begin() && at->text.empty()) --at;
  const auto middle = pending_.begin() + static_cast<std::ptrdiff_t>(first);
  auto& before = at == deltas_.begin() ? at->tokens : (at - 1)->tokens;
  before.insert(before.end(), pending_.begin(), middle);
  at->tokens.insert(at->tokens.end(), middle, pending_.end());
  pending_.clear();
}

void ChoiceDecoder::place_rest() {
  if (pending_.empty()) return;
  if (deltas_.empty()) deltas_.emplace_back();
  auto& tokens = deltas_.back().tokens;
  tokens.insert(tokens.end(), pending_.begin(), pending_.end());
  pending_.clear();
}

void ChoiceDecoder::push_prompt(
    const std::string& text,
    const std::vector<TokenId>& ids,
    const std::vector<engine::PositionLogprobs>* logprobs
) {
  Delta& delta = text_delta();
  delta.text += text;
  if (logprobs != nullptr) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool has_logprob = i > 0 && i - 1 < logprobs->size();
      delta.tokens.push_back(
          noted(ids[i], has_logprob ? (*logprobs)[i - 1] : engine::PositionLogprobs())
      );
      delta.tokens.back().has_logprob = has_logprob;
      delta.tokens.back().is_content = true;
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
  add_text(shown);
}

void ChoiceDecoder::add_text(std::string_view text) {
  if (text.empty()) return;
  text_delta().text += text;
  text_bytes_ += text.size();
}

void ChoiceDecoder::take_event(codec::OutputEvent event) {
  using Kind = codec::OutputEvent::Kind;
  if (event.kind == Kind::kContent) {
    show(event.text);
    return;
  }
  // A stop string does not reach across reasoning or a call.
  add_text(stop_.finish());
  if (event.kind == Kind::kReasoning) {
    if (!wish_.include_reasoning) return;
    ++other_events_;
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
  ++other_events_;
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

bool ChoiceDecoder::is_markup(TokenId id) const {
  if (wish_.parser.takes_added()) return tokenizer_->is_added(id);
  return tokenizer_->is_control(id) && wish_.parser.takes(tokenizer_->piece(id));
}

void ChoiceDecoder::feed(TokenId id) {
  const std::string_view piece = tokenizer_->piece(id);
  if (is_markup(id)) {
    wish_.parser.push_text(detokenizer_.finish());
    wish_.parser.push_control(piece);
  } else {
    wish_.parser.push_text(detokenizer_.push(id));
  }
}

void ChoiceDecoder::push(TokenId id, const engine::PositionLogprobs* logprobs) {
  if (stopped()) return;
  ++count_;
  if (options_.logprobs >= 0 && logprobs != nullptr) pending_.push_back(noted(id, *logprobs));
  const std::size_t text_before = text_bytes_, other_before = other_events_;
  feed(id);
  take_events();
  place_tokens(text_before, other_before);
  if (stopped()) place_rest();
}

void ChoiceDecoder::finish(TokenId stop_token) {
  if (stopped()) return;
  if (stop_token >= 0) {
    ++count_;
    const bool ends_parser = is_markup(stop_token) && !wish_.parser.takes_added();
    if (ends_parser || options_.include_stop) feed(stop_token);
  }
  const std::size_t text_before = text_bytes_, other_before = other_events_;
  wish_.parser.push_text(detokenizer_.finish());
  wish_.parser.finish();
  take_events();
  if (!stopped()) add_text(stop_.finish());
  place_tokens(text_before, other_before);
  place_rest();
}

}  // namespace artery::server::api
