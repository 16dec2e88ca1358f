#include "codec/hf/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "codec/unicode.h"

namespace artery::codec {
namespace {

// One match of a sane pattern takes a handful of decisions for each way it can begin; 1,000 are
// thousands of times that. Whole texts may spend more, in proportion to their length.
constexpr std::uint32_t kEffort = 1000;
constexpr std::uint64_t kEffortABudgetByte = 64;
constexpr std::uint64_t kBudgetMin = 1'000'000;
constexpr std::uint32_t kHeapKiB = 4096;
constexpr std::size_t kJitStackMax = 512 * 1024;

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// `text` when it is valid, else a copy in `buffer` with U+0001, a control character, for each
// invalid byte: lengths stay.
std::string_view without_invalid(std::string_view text, std::string& buffer) {
  bool copied = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    if (c.state == Utf8State::kValid) {
      pos += c.bytes;
      continue;
    }
    if (!copied) buffer = text;
    copied = true;
    buffer[pos++] = '\x01';
  }
  return copied ? std::string_view(buffer) : text;
}

// `text` is valid UTF-8; of the character that ends at `end` > 0.
bool ends_a_word(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  const CharClass found = classify(text, begin).char_class;
  return found == CharClass::kLetter || found == CharClass::kNumber;
}

// Bytes of the first part of `text` that is matched on its own, see each_match().
std::size_t part_bytes(std::string_view text) {
  if (text.size() <= Regex::kSoftBytes) return text.size();
  const std::size_t stop = std::min(text.size(), Regex::kHardBytes);
  for (std::size_t i = Regex::kSoftBytes; i < stop; ++i)
    if (text[i] == ' ' && ends_a_word(text, i)) return i;
  if (stop == text.size()) return stop;
  std::size_t cut = stop;
  while (cut > stop - 4 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return cut;
}

}  // namespace

struct Regex::Compiled {
  Owned<pcre2_code> code;
  bool jit = false;
};

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax)
    return fail(
        Code::kUnsupported,
        "a regular expression of {} bytes; {} are the most",
        pattern.size(),
        kPatternBytesMax
    );
  const std::string rewritten = TRY(pcre2_of_oniguruma(pattern));
  const Owned<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_shared<Compiled>();
  compiled->code.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(rewritten.data()),
      rewritten.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C,
      &error,
      &offset,
      context.get()
  ));
  if (compiled->code == nullptr)
    return fail(
        Code::kUnsupported,
        "regular expression '{}': {} near '{}'",
        pattern,
        message_of(error),
        rewritten.substr(std::min(offset, rewritten.size()), 20)
    );
  // Without the compiler (hardened systems forbid its pages) PCRE2's interpreter does the same.
  compiled->jit = pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(compiled));
}

namespace {

// The matches of one part of a text, with what they may still cost.
class Matching {
 public:
  Matching(const pcre2_code* code, std::size_t text_bytes)
      : code_(code),
        data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        budget_(kBudgetMin + kEffortABudgetByte * text_bytes) {
    if (context_ != nullptr) pcre2_set_heap_limit(context_.get(), kHeapKiB);
  }

  enum class Outcome { kMatch, kNone, kTooMuch };
  Outcome find(std::string_view text, std::size_t from) {
    if (data_ == nullptr || context_ == nullptr) return Outcome::kTooMuch;
    std::uint64_t effort = kEffort;
    while (true) {
      pcre2_set_match_limit(context_.get(), static_cast<std::uint32_t>(effort));
      const int found = pcre2_match(
          code_,
          reinterpret_cast<PCRE2_SPTR>(text.data()),
          text.size(),
          from,
          PCRE2_NO_UTF_CHECK,
          data_.get(),
          context_.get()
      );
      if (found >= 0) return Outcome::kMatch;
      if (found == PCRE2_ERROR_NOMATCH) return Outcome::kNone;
      // 32 KiB of the thread's own stack are enough for sane patterns.
      if (found == PCRE2_ERROR_JIT_STACKLIMIT && stack_ == nullptr) {
        stack_.reset(pcre2_jit_stack_create(32 * 1024, kJitStackMax, nullptr));
        if (stack_ == nullptr) return Outcome::kTooMuch;
        pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
        continue;
      }
      if (found != PCRE2_ERROR_MATCHLIMIT || effort > budget_) return Outcome::kTooMuch;
      budget_ -= effort;
      effort *= 8;
      if (effort > UINT32_MAX) return Outcome::kTooMuch;
    }
  }
  std::size_t begin() const { return pcre2_get_ovector_pointer(data_.get())[0]; }
  std::size_t end() const { return pcre2_get_ovector_pointer(data_.get())[1]; }

 private:
  const pcre2_code* code_;
  Owned<pcre2_match_data> data_;
  Owned<pcre2_match_context> context_;
  Owned<pcre2_jit_stack> stack_;
  std::uint64_t budget_;
};

// Past the character at `pos`.
std::size_t next_char(std::string_view text, std::size_t pos) {
  return pos + decode_utf8(text, pos).bytes;
}

}  // namespace

bool Regex::each_match(std::string_view text, const Visit& visit) const {
  if (text.empty()) return true;
  std::string buffer;
  std::string_view rest = without_invalid(text, buffer);
  Matching matching(compiled_->code.get(), rest.size());
  std::size_t base = 0;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, part_bytes(rest));
    std::size_t last_end = 0;
    for (std::size_t from = 0; from < part.size();) {
      const Matching::Outcome outcome = matching.find(part, from);
      if (outcome == Matching::Outcome::kTooMuch) return false;
      if (outcome == Matching::Outcome::kNone) break;
      const std::size_t begin = matching.begin(), end = matching.end();
      if (begin < from || begin >= part.size()) break;  // \K is refused; the end cuts nothing
      if (end > begin || begin > last_end) visit(base + begin, base + end);
      last_end = end;
      from = end > begin ? end : next_char(part, begin);
    }
    base += part.size();
    rest.remove_prefix(part.size());
  }
  return true;
}

}  // namespace artery::codec
