#include "codec/deepseek/token_runs.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "codec/unicode.h"
#include "codec/vocab.h"

namespace artery::codec::deepseek {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Tail {
  std::size_t begin = 0;  // of the last character
  Utf8Char character;
};

Tail last_character(std::string_view bytes) {
  std::size_t begin = bytes.size() - 1;
  const std::size_t least = bytes.size() > 4 ? bytes.size() - 4 : 0;
  while (begin > least && (static_cast<unsigned char>(bytes[begin]) & 0xC0) == 0x80) --begin;
  return {begin, decode_utf8(bytes, begin)};
}

bool ends_in_replacement(std::string_view bytes) {
  const auto [begin, character] = last_character(bytes);
  return character.state != Utf8State::kValid || begin + character.bytes != bytes.size() ||
         character.code == 0xFFFD;
}

// `bytes` as text; the places in `begins` (ascending) move with it, into a character's begin.
std::string to_text(std::string_view bytes, std::vector<std::size_t>& begins) {
  std::string text;
  text.reserve(bytes.size());
  std::size_t next = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Char character = decode_utf8(bytes, at);
    const std::size_t end = at + character.bytes;
    while (next < begins.size() && begins[next] < end) begins[next++] = text.size();
    if (character.state == Utf8State::kValid) {
      text += bytes.substr(at, character.bytes);
    } else {
      text += kReplacement;
    }
    at = end;
  }
  while (next < begins.size()) begins[next++] = text.size();
  return text;
}

bool is_ascii(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x80;
  });
}

api::TokenLogprob named(TokenId id, float logprob, const Tokenizer& tokenizer) {
  return {std::string(tokenizer.piece(id)), logprob, {}};
}

}  // namespace

void TokenRuns::add(TokenId id, const IdLogprob* logprob, const Tokenizer& tokenizer) {
  if (logprob != nullptr) {
    api::TokenLogprob entry = named(id, logprob->logprob, tokenizer);
    for (const auto& [other, value] : logprob->top) {
      entry.top.push_back(named(other, value, tokenizer));
    }
    logprobs_.entries.push_back(std::move(entry));
    logprobs_.begins.push_back(bytes_.size());
  }
  bytes_ += tokenizer.piece(id);
  ++tokens_;
}

// Gives out that many bytes, all tokens so far and the log probabilities of those that begin there:
// tokens without bytes go with what follows them, wherever a chunk ends. recipe gives all it has.
void TokenRuns::end_run(std::size_t bytes, std::vector<Run>& out) {
  if (tokens_ == 0 && bytes == 0) return;
  Run& run = out.emplace_back();
  run.tokens = std::exchange(tokens_, 0);
  if (!is_safe_) {
    run.logprobs = std::exchange(logprobs_, {});
  } else {
    const auto kept = std::lower_bound(logprobs_.begins.begin(), logprobs_.begins.end(), bytes);
    const auto count = kept - logprobs_.begins.begin();
    const auto entries = logprobs_.entries.begin() + count;
    run.logprobs.begins.assign(logprobs_.begins.begin(), kept);
    run.logprobs.entries.assign(
        std::make_move_iterator(logprobs_.entries.begin()), std::make_move_iterator(entries)
    );
    logprobs_.begins.erase(logprobs_.begins.begin(), kept);
    logprobs_.entries.erase(logprobs_.entries.begin(), entries);
    for (std::size_t& begin : logprobs_.begins) begin -= bytes;
  }
  const std::string_view given = std::string_view(bytes_).substr(0, bytes);
  run.text = is_ascii(given) ? std::string(given) : to_text(given, run.logprobs.begins);
  bytes_.erase(0, bytes);
}

void TokenRuns::end_chunk(std::vector<Run>& out) {
  if (bytes_.empty()) return;
  if (!is_safe_) {
    if (!ends_in_replacement(bytes_)) end_run(bytes_.size(), out);
    return;
  }
  const auto [begin, character] = last_character(bytes_);
  const std::size_t whole = character.state == Utf8State::kCut ? begin : bytes_.size();
  if (whole > 0) end_run(whole, out);
}

void TokenRuns::push(
    std::span<const TokenId> ids,
    std::span<const IdLogprob> logprobs,
    const Tokenizer& tokenizer,
    std::vector<Run>& out
) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const IdLogprob* const logprob = logprobs.empty() ? nullptr : &logprobs[i];
    if (!tokenizer.is_added(ids[i])) {
      add(ids[i], logprob, tokenizer);
      continue;
    }
    end_run(bytes_.size(), out);
    add(ids[i], logprob, tokenizer);
    end_run(bytes_.size(), out);
    out.back().is_added = true;
  }
  end_chunk(out);
}

void TokenRuns::finish(std::vector<Run>& out) {
  if (is_safe_) end_run(bytes_.size(), out);
}

}  // namespace artery::codec::deepseek
