#pragma once
// JSON as a model writes it, byte by byte: where a value ends, what a string says, and the envelope
// {"name": ..., "arguments": ...} of a tool call. Lenient: only what is needed to find the ends is
// checked, the arguments' own JSON is the client's to parse. Depth is a number, nothing recurses.
// Values, one thread at a time.

#include <cstdint>
#include <string>
#include <string_view>

#include "codec/stream/output_events.h"

namespace artery::codec {

inline bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// `text` as the inside of a JSON string.
std::string json_escape(std::string_view text);

// Finds the end of one value.
class JsonValueScanner {
 public:
  enum class Step : std::uint8_t {
    kInside,  // the byte belongs to the value
    kLast,    // and ends it
    kBehind   // the value ended before this byte (a number or word has no end of its own)
  };
  Step push(char c);
  bool in_string() const { return in_string_; }

 private:
  std::int64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false, started_ = false;
};

// The inside of a string, decoded. Lone surrogates become U+FFFD.
class JsonStringReader {
 public:
  // Appends what the byte makes certain. True at the closing quote.
  bool push(char c, std::string& out);

 private:
  void take_unit(std::uint32_t unit, std::string& out);

  std::uint32_t unit_ = 0, high_ = 0;  // of \u; a high surrogate that waits for its other half
  int digits_ = 0;                     // still to come
  bool escaped_ = false;
};

// Reads {"name": NAME, "arguments" or "parameters": VALUE, ...} and writes the call as it comes:
// arguments leave as soon as the name is known. Arguments that are a string of JSON (some models
// double-encode) are decoded.
class EnvelopeReader {
 public:
  enum class Step : std::uint8_t {
    kMore,
    kDone,    // the byte was the closing brace
    kBehind,  // the call is over, and the byte does not belong to it
    kBroken   // this is no call; held() has the text, the byte not included
  };
  // `is_name`: which names make a call.
  template <typename IsName>
  Step push(char c, const IsName& is_name, OutputEvents& out) {
    const Step step = take(c);
    if (name_done_ && !begun_ && (has_arguments_ || step == Step::kDone)) {
      if (!is_name(std::string_view(name_))) return Step::kBroken;
      begin(out);
    }
    flush_arguments(out);
    if (step == Step::kBroken && begun_) return Step::kBehind;
    if (step == Step::kDone && !begun_) return Step::kBroken;
    if (step == Step::kMore && !begun_) held_ += c;
    return step;
  }

  bool begun() const { return begun_; }  // the call's name is out
  bool in_string() const;
  // The text so far, while the call has not begun.
  const std::string& held() const { return held_; }

 private:
  enum class State : std::uint8_t {
    kStart,
    kKeyOrEnd,
    kKey,
    kColon,
    kValue,
    kName,
    kText,  // arguments in a string
    kRaw,   // arguments as they are
    kSkip,
    kAfterValue
  };
  Step take(char c);
  Step take_value_begin(char c);
  Step take_value(char c);
  void begin(OutputEvents& out);
  void flush_arguments(OutputEvents& out);

  State state_ = State::kStart;
  JsonValueScanner value_;
  JsonStringReader string_;
  std::string key_, name_, held_;
  std::string arguments_;  // not yet out
  bool name_done_ = false, has_arguments_ = false, begun_ = false, is_word_ = false;
};

}  // namespace artery::codec
