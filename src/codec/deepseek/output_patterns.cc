#include "codec/deepseek/output_patterns.h"

#include <utility>

namespace artery::codec::deepseek {
namespace {

constexpr std::string_view kInvoke = "invoke name=\"", kCalls = "calls", kToolCalls = "tool_calls";
constexpr std::uint8_t kWordOfInvoke = 6;
constexpr std::uint8_t kWordMax = 32;

bool is_word_byte(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// The name of the block, in full.
bool is_block_name(const PatternProgress& progress) {
  return (progress.is_calls && progress.word == kCalls.size()) ||
         (progress.is_tool_calls && progress.word == kToolCalls.size());
}

// One more byte of the word behind `bytes`. False: it is none of it.
bool extend_word(PatternProgress& progress, char byte) {
  const std::uint8_t at = progress.word;
  const auto agrees = [&](std::string_view name, bool so_far) {
    return (at == 0 || so_far) && at < name.size() && name[at] == byte;
  };
  const bool is_invoke = agrees(kInvoke, progress.is_invoke);
  if (!is_invoke && (!is_word_byte(byte) || at >= kWordMax)) return false;
  progress.is_invoke = is_invoke;
  progress.is_calls = agrees(kCalls, progress.is_calls);
  progress.is_tool_calls = agrees(kToolCalls, progress.is_tool_calls);
  ++progress.word;
  return true;
}

// Behind `bytes` of a pattern that opens a block. False: this is none.
bool step_word(PatternProgress& progress, char byte, StepResult& result) {
  if (progress.word == 0 && byte == ' ' && !progress.has_space) {
    progress.has_space = true;
    return true;
  }
  if (!progress.has_blank && extend_word(progress, byte)) {
    if (progress.is_invoke && progress.word == kInvoke.size()) result = StepResult::kInvoke;
    return true;
  }
  // `invoke name` of a call that is none: only letters may stand before the `>`.
  if (progress.word == 0 || (progress.is_invoke && progress.word > kWordOfInvoke)) return false;
  const bool is_block = is_block_name(progress);
  if (byte == '>' || (byte == '<' && is_block)) {
    result = StepResult::kMatch;
    return true;
  }
  progress.has_blank = is_block && is_blank(byte);
  return progress.has_blank;
}

}  // namespace

Pattern finish_pattern(Pattern pattern) {
  const std::string& bytes = pattern.bytes;
  pattern.fallback.assign(bytes.size() + 1, 0);
  std::uint32_t border = 0;
  for (std::size_t i = 1; i < bytes.size(); ++i) {
    while (border > 0 && bytes[i] != bytes[border]) border = pattern.fallback[border];
    if (bytes[i] == bytes[border]) ++border;
    pattern.fallback[i + 1] = border;
  }
  return pattern;
}

StepResult step_rarely(
    const Pattern& pattern, PatternProgress& progress, char byte, bool is_spelling
) {
  // A newline that breaks a match is no newline before the next one: so the record has it.
  if (progress.matched >= pattern.bytes.size()) {
    StepResult result = StepResult::kNothing;
    if (step_word(progress, byte, result)) {
      ++progress.matched;
      return result;
    }
    // Nothing behind `bytes` can begin the pattern again but this byte.
    progress = PatternProgress();
  } else {
    progress.newlines = 0;
    do {
      progress.matched = pattern.fallback[progress.matched];
    } while (progress.matched > 0 && !accepts(pattern, progress.matched, byte, is_spelling));
  }
  if (!accepts(pattern, progress.matched, byte, is_spelling)) return StepResult::kNothing;
  ++progress.matched;
  return progress.matched == pattern.bytes.size() && !pattern.opens_block ? StepResult::kMatch
                                                                          : StepResult::kNothing;
}

StepResult step_added(const Pattern& pattern, PatternProgress& progress, std::string_view token) {
  const std::size_t size = pattern.special_end - pattern.special_begin;
  const bool is_special =
      size > 0 && std::string_view(pattern.bytes).substr(pattern.special_begin, size) == token;
  if (is_special && progress.matched <= pattern.bytes.size()) {
    while (progress.matched > pattern.special_begin) {
      progress.matched = pattern.fallback[progress.matched];
      progress.newlines = 0;
    }
    if (progress.matched == pattern.special_begin) {
      progress.matched = pattern.special_end;
      return progress.matched == pattern.bytes.size() && !pattern.opens_block
                 ? StepResult::kMatch
                 : StepResult::kNothing;
    }
  }
  progress = PatternProgress();
  return StepResult::kNothing;
}

bool may_open_block(const Pattern& pattern, const PatternProgress& progress) {
  if (!pattern.opens_block || progress.matched < pattern.bytes.size()) return false;
  return progress.word == 0 || progress.is_invoke || progress.is_calls || progress.is_tool_calls;
}

void PatternSet::add(Pattern pattern) {
  // Newlines are taken before the pattern is tried: one that begins with a newline never comes.
  if (pattern.bytes.empty() || (pattern.after_newlines && pattern.bytes[0] == '\n')) return;
  begins[static_cast<unsigned char>(pattern.bytes[0])] = true;
  if (pattern.after_newlines) begins['\n'] = true;
  patterns.push_back(finish_pattern(std::move(pattern)));
}

void PatternSet::finish() {
  for (Pattern& pattern : patterns) {
    std::size_t from = pattern.bytes.size();
    while (from > 1 && !begins[static_cast<unsigned char>(pattern.bytes[from - 1])]) --from;
    pattern.alone_from = from;
  }
}

}  // namespace artery::codec::deepseek
