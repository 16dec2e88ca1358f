#pragma once
// What the output machine looks for: tags, stop sequences and fences, each by its own matcher that
// reads the output byte by byte (Knuth, Morris and Pratt: linear whatever is searched in what).
// Patterns are immutable and shared; progress is a small value.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace artery::codec::deepseek {

enum class MatchAction : std::uint8_t {
  kStop,          // a stop sequence of the request
  kThinkEnd,      // reasoning ends
  kStrayEnd,      // a reasoning end where there is none
  kOpenCalls,     // the block of calls
  kFence,         // of JSON
  kBareJson,      // JSON without a fence
  kFenceEnd,      //
  kBeginName,     //
  kNameEnd,       //
  kInvokeHead,    // safe: the attributes of a call follow
  kBeginParam,    //
  kParamHead,     // safe: the attributes of a parameter follow
  kParamNameEnd,  //
  kStringValue,   //
  kRawValue,      //
  kOpener,        // safe: `<`D inside a head, whose `>` is missing
  kCloser,        // `</`D: ends a value or a call
  kCloseBlock     //
};

// Where bytes come from. Special spellings in `bytes` are those of text or of one added token:
// tokens that merely spell them are text.
enum class ByteSource : std::uint8_t { kText, kTokens, kAdded };

struct Pattern {
  std::string bytes;
  // The part of `bytes` that is a special token's spelling; empty: none.
  std::size_t special_begin = 0, special_end = 0;
  bool after_newlines = false;  // newlines just before belong to the match
  // Behind `bytes`, at most one space and then `word>` or `invoke name="` must follow, the latter
  // without a block around it; of the true names of a block the `>` may be missing before a tag.
  bool opens_block = false;
  MatchAction action = MatchAction::kStop;
  std::size_t stop = 0;  // kStop: which one
  // [i]: how many bytes still match when i did and the next does not.
  std::vector<std::uint32_t> fallback = {};
  // Once so many bytes matched, no pattern of the set can begin inside the rest.
  std::size_t alone_from = 0;
};

// Sets fallback.
Pattern finish_pattern(Pattern pattern);

struct PatternProgress {
  std::uint64_t newlines = 0;  // before the match begun or to begin
  std::uint64_t matched = 0;   // bytes
  // opens_block: bytes of the word behind `bytes`, what it begins, blanks around it.
  std::uint8_t word = 0;
  bool is_invoke = false, is_calls = false, is_tool_calls = false;
  bool has_space = false, has_blank = false;
  bool idle() const { return newlines == 0 && matched == 0; }
  std::uint64_t held() const { return newlines + matched; }
};

enum class StepResult : std::uint8_t { kNothing, kMatch, kInvoke };

inline bool accepts(const Pattern& pattern, std::uint64_t at, char byte, bool is_spelling) {
  if (pattern.bytes[at] != byte) return false;
  return is_spelling || at < pattern.special_begin || at >= pattern.special_end;
}

// What `step` leaves: a byte that breaks off what had matched, and what follows `bytes`.
StepResult step_rarely(
    const Pattern& pattern, PatternProgress& progress, char byte, bool is_spelling
);

// One more byte. After a match `held()` is its length; the caller resets the progress.
inline StepResult step(
    const Pattern& pattern, PatternProgress& progress, char byte, bool is_spelling
) {
  if (progress.matched == 0 && byte == '\n' && pattern.after_newlines) {
    ++progress.newlines;
    return StepResult::kNothing;
  }
  if (progress.matched < pattern.bytes.size() &&
      accepts(pattern, progress.matched, byte, is_spelling)) {
    ++progress.matched;
    return progress.matched == pattern.bytes.size() && !pattern.opens_block ? StepResult::kMatch
                                                                            : StepResult::kNothing;
  }
  if (progress.matched == 0) {
    progress.newlines = 0;
    return StepResult::kNothing;
  }
  return step_rarely(pattern, progress, byte, is_spelling);
}
// One added token.
StepResult step_added(const Pattern& pattern, PatternProgress& progress, std::string_view token);

// Whether what matched so far is the beginning of a block or of a call, and of nothing else.
bool may_open_block(const Pattern& pattern, const PatternProgress& progress);

// The patterns of one state, in the order in which they win when they end together.
struct PatternSet {
  std::vector<Pattern> patterns;
  std::array<bool, 256> begins{};  // bytes that something begins with
  void add(Pattern pattern);
  // After the last add(): sets alone_from.
  void finish();
};

}  // namespace artery::codec::deepseek
