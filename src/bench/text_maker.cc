#include "bench/text_maker.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace artery::bench {
namespace {

constexpr std::string_view kStart = "The";

// Single tokens in every large English vocabulary we know of; what they really cost is asked.
constexpr std::array<std::string_view, 64> kWords = {
    "a",      "the",   "of",     "and",   "to",    "in",     "is",    "that",   "for",  "it",
    "as",     "was",   "with",   "be",    "by",    "on",     "not",   "he",     "this", "are",
    "or",     "his",   "from",   "at",    "which", "but",    "have",  "an",     "had",  "they",
    "you",    "were",  "their",  "one",   "all",   "we",     "can",   "her",    "has",  "there",
    "been",   "if",    "more",   "when",  "will",  "would",  "who",   "so",     "no",   "time",
    "people", "water", "number", "house", "world", "school", "state", "family", "work", "group",
    "system", "point", "line",   "place",
};

// Ends to try when words alone do not meet the count.
constexpr std::array<std::string_view, 12> kEnds = {
    "a", "ab", "abc", "abcd", ".", "..", ". .", "s", "1", " 1", "!?", "\n"
};

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

void drop_last_word(std::string& text) {
  const std::size_t space = text.rfind(' ');
  text.resize(space == std::string::npos ? 0 : space);
}

}  // namespace

Result<TextMaker> TextMaker::make(TokenCounter* counter) {
  TextMaker maker;
  maker.counter_ = counter;
  maker.start_cost_ = TRY(maker.count(std::string(kStart)));
  constexpr int kTimes = 4;
  for (const std::string_view word : kWords) {
    Word entry = {fmt::format(" {}", word), 1};
    if (counter != nullptr) {
      std::string text(kStart);
      for (int i = 0; i < kTimes; ++i) text += entry.text;
      const std::int64_t cost = TRY(counter->count(text)) - maker.start_cost_;
      if (cost <= 0 || cost % kTimes != 0) continue;
      entry.cost = cost / kTimes;
    }
    maker.words_.push_back(std::move(entry));
  }
  if (maker.words_.empty())
    return fail(Code::kUnsupported, "the server's token counts make no sense for English words");
  std::sort(maker.words_.begin(), maker.words_.end(), [](const Word& a, const Word& b) {
    return std::tie(a.cost, a.text) < std::tie(b.cost, b.text);
  });
  return maker;
}

Result<std::int64_t> TextMaker::count(const std::string& text) {
  if (counter_ != nullptr) return counter_->count(text);
  return 1 + std::count(text.begin(), text.end(), ' ');
}

std::int64_t TextMaker::append_words(std::string& text, std::int64_t tokens, Dice& dice) const {
  while (tokens > 0) {
    const auto affordable = static_cast<std::size_t>(std::distance(
        words_.begin(),
        std::partition_point(
            words_.begin(), words_.end(), [&](const Word& word) { return word.cost <= tokens; }
        )
    ));
    if (affordable == 0) break;
    const Word& word = words_[dice() % affordable];
    text += word.text;
    tokens -= word.cost;
  }
  return tokens;
}

std::string TextMaker::block(std::uint64_t id, std::int64_t tokens) const {
  Dice dice(mixed(id + 0x9e3779b97f4a7c15u));
  std::string text;
  append_words(text, tokens, dice);
  return text;
}

Result<MadeText> TextMaker::make_text(std::int64_t tokens, Dice& dice) {
  std::string text(kStart);
  append_words(text, tokens - start_cost_, dice);
  return fit(std::move(text), tokens, dice);
}

Result<MadeText> TextMaker::join(
    const std::vector<std::string>& blocks, std::int64_t tokens, Dice& dice
) {
  std::string text(kStart);
  for (const std::string& block : blocks) text += block;
  return fit(std::move(text), tokens, dice);
}

Result<MadeText> TextMaker::fit(std::string text, std::int64_t tokens, Dice& dice) {
  // Words cost what they did alone, so a few rounds meet the count or come as near as words can.
  constexpr int kRounds = 12;
  std::int64_t now = TRY(count(text));
  for (int round = 0; round < kRounds && now != tokens; ++round) {
    if (now > tokens) {
      const std::int64_t dearest = words_.back().cost;
      for (std::int64_t excess = now - tokens; excess > 0 && text.size() > kStart.size();
           excess -= dearest)
        drop_last_word(text);
      if (text.size() <= kStart.size()) break;
    } else if (append_words(text, tokens - now, dice) == tokens - now) {
      break;
    }
    now = TRY(count(text));
  }
  if (now == tokens || counter_ == nullptr || now > tokens) return MadeText{std::move(text), now};
  return fit_end(std::move(text), tokens);
}

Result<MadeText> TextMaker::fit_end(std::string text, std::int64_t tokens) {
  for (const std::string_view end : kEnds) {
    const std::string longer = text + std::string(end);
    if (TRY(count(longer)) == tokens) return MadeText{longer, tokens};
  }
  const std::int64_t now = TRY(count(text));
  return MadeText{std::move(text), now};
}

}  // namespace artery::bench
