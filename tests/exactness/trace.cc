#include "trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace artery::exactness {
namespace {

std::vector<std::uint32_t> flatten(const engine::PositionLogprobs& position) {
  std::vector<std::uint32_t> out;
  const auto add = [&](const engine::TokenLogprob& one) {
    out.push_back(static_cast<std::uint32_t>(one.token));
    out.push_back(std::bit_cast<std::uint32_t>(one.logprob));
  };
  add(position.chosen);
  out.push_back(static_cast<std::uint32_t>(position.rank));
  for (const engine::TokenLogprob& one : position.top) add(one);
  return out;
}

using Rows = std::vector<std::vector<std::uint32_t>>;

std::string hex_words(const std::vector<std::uint32_t>& words) {
  std::string out;
  for (const std::uint32_t word : words) out += fmt::format(" {:08x}", word);
  return out;
}

std::string row_difference(const char* what, const Rows& got, const Rows& wanted) {
  const auto [a, b] = std::mismatch(got.begin(), got.end(), wanted.begin(), wanted.end());
  if (a == got.end() && b == wanted.end()) return {};
  const auto at = a - got.begin();
  return fmt::format(
      "{} {}: got{} wanted{}",
      what,
      at,
      a == got.end() ? " nothing" : hex_words(*a),
      b == wanted.end() ? " nothing" : hex_words(*b)
  );
}

std::string choice_difference(const ChoiceTrace& got, const ChoiceTrace& wanted) {
  if (!got.in_order) return "events overlap or leave gaps";
  const auto [a, b] = std::mismatch(
      got.tokens.begin(), got.tokens.end(), wanted.tokens.begin(), wanted.tokens.end()
  );
  if (a != got.tokens.end() || b != wanted.tokens.end()) {
    return fmt::format(
        "token {} of {}: got {} wanted {}",
        a - got.tokens.begin(),
        wanted.tokens.size(),
        a == got.tokens.end() ? -1 : *a,
        b == wanted.tokens.end() ? -1 : *b
    );
  }
  std::string rows = row_difference("log probabilities of token", got.logprobs, wanted.logprobs);
  if (rows.empty()) {
    rows = row_difference("prompt row", got.prompt_logprobs, wanted.prompt_logprobs);
  }
  if (!rows.empty()) return rows;
  if (!got.finish) return "no end";
  if (got.finish->reason != wanted.finish->reason ||
      got.finish->stop_token != wanted.finish->stop_token) {
    return fmt::format(
        "ended by {} ({}), wanted {}",
        name(got.finish->reason),
        got.finish->message,
        name(wanted.finish->reason)
    );
  }
  return {};
}

// The reference as far as the cancelled one came.
ChoiceTrace shortened(const ChoiceTrace& got, ChoiceTrace wanted) {
  if (!got.finish || got.finish->reason != engine::FinishReason::kCancelled) return wanted;
  wanted.tokens.resize(std::min(wanted.tokens.size(), got.tokens.size()));
  wanted.logprobs.resize(std::min(wanted.logprobs.size(), got.logprobs.size()));
  if (got.prompt_logprobs.empty()) wanted.prompt_logprobs.clear();
  wanted.finish = got.finish;
  return wanted;
}

}  // namespace

void Trace::absorb(const engine::Event& event) {
  ChoiceTrace& choice = choices.at(static_cast<std::size_t>(event.choice));
  if (!event.token_ids.empty()) {
    if (choice.next && *choice.next != event.first_position) choice.in_order = false;
    choice.next = event.first_position + static_cast<Position>(event.token_ids.size());
  }
  choice.tokens.insert(choice.tokens.end(), event.token_ids.begin(), event.token_ids.end());
  for (const auto& position : event.logprobs) choice.logprobs.push_back(flatten(position));
  for (const auto& position : event.prompt_logprobs) {
    choice.prompt_logprobs.push_back(flatten(position));
  }
  if (event.finish) choice.finish = event.finish;
}

bool Trace::finished() const {
  return std::ranges::all_of(choices, [](const ChoiceTrace& c) { return c.finish.has_value(); });
}

std::string difference(const Trace& got, const Trace& wanted, bool cancelled) {
  for (std::size_t i = 0; i < wanted.choices.size(); ++i) {
    const ChoiceTrace& mine = got.choices[i];
    const ChoiceTrace truth = cancelled ? shortened(mine, wanted.choices[i]) : wanted.choices[i];
    const std::string found = choice_difference(mine, truth);
    if (!found.empty()) return fmt::format("choice {}, {}", i, found);
  }
  return {};
}

}  // namespace artery::exactness
