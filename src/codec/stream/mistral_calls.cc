// Calls of Mistral's models. Formats: mistral-common, "tool calls" of tokenizers v3, v7, v11, v13.

#include <utility>

#include "codec/stream/json_scan.h"
#include "codec/stream/marker_calls.h"

namespace artery::codec {
namespace {

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == ':';
}

class MistralCalls final : public MarkerCalls {
 public:
  explicit MistralCalls(const CallParserStart& start)
      : MarkerCalls(MarkerSet({"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}, start.is_control)) {}

  std::unique_ptr<CallParser> clone() const override {
    return std::make_unique<MistralCalls>(*this);
  }
  void finish(OutputEvents& out) override {
    take_rest(out);
    leave(out, true);
    content_.finish(out);
  }

 private:
  enum class State : std::uint8_t {
    kContent,
    kTag,        // behind [TOOL_CALLS]
    kEnvelope,   // an object with name and arguments
    kBetween,    // in an array, behind an object
    kName,       // v11 and later: a name in the open
    kId,         // behind [CALL_ID]
    kArguments,  // behind [ARGS], before or inside the JSON
    kBehind      // behind a call
  };
  enum Marker { kToolCalls, kArgs, kCallId };

  // The markers of text are not looked for inside JSON.
  bool looks_for_markers() const override {
    return state_ != State::kEnvelope && state_ != State::kBetween &&
           !(state_ == State::kArguments && has_begun_);
  }

  void take_marker(int marker, OutputEvents& out) override {
    const std::string& text = text_of(marker);
    if (marker == kToolCalls) {
      leave(out);
      state_ = State::kTag;
      raw_ = text;
      name_.clear();
      id_.clear();
    } else if (state_ == State::kName && !name_.empty()) {
      raw_ += text;
      state_ = marker == kArgs ? State::kArguments : State::kId;
    } else if (state_ == State::kId && marker == kArgs) {
      raw_ += text;
      state_ = State::kArguments;
    } else {
      leave(out);
      content_.push(text, out);
    }
    arguments_ = {};
    has_begun_ = false;
  }

  // Back to content: ends a call under way, shows what was none.
  void leave(OutputEvents& out, bool cut = false) {
    if (out.in_call()) {
      out.end_call(cut);
    } else if (state_ == State::kEnvelope) {
      content_.push(raw_ + reader_.held(), out);
    } else if (state_ != State::kBetween || is_first_) {
      content_.push(raw_, out);
    }
    raw_.clear();
    state_ = State::kContent;
  }

  void begin_envelope(char c, OutputEvents& out) {
    state_ = State::kEnvelope;
    reader_ = {};
    feed(c, out);
  }

  void take_passed(char c, OutputEvents& out) override {
    switch (state_) {
      case State::kContent:
        content_.push(std::string_view(&c, 1), out);
        return;
      case State::kTag:
        take_behind_tag(c, out);
        return;
      case State::kEnvelope:
        feed(c, out);
        return;
      case State::kBetween:
        take_between(c, out);
        return;
      case State::kName:
      case State::kId:
        take_head(c, out);
        return;
      case State::kArguments:
        take_arguments(c, out);
        return;
      case State::kBehind:
        if (is_json_space(c)) return;
        state_ = State::kContent;
        content_.push(std::string_view(&c, 1), out);
        return;
    }
  }

  void take_behind_tag(char c, OutputEvents& out) {
    if (c == '{') {
      in_array_ = false;
      begin_envelope(c, out);
      return;
    }
    if (is_name_byte(c)) {
      state_ = State::kName;
      take_head(c, out);
      return;
    }
    raw_ += c;
    if (c == '[') {
      state_ = State::kBetween;
      in_array_ = true;
      is_first_ = true;
    } else if (!is_json_space(c)) {
      leave(out);
    }
  }

  void take_between(char c, OutputEvents& out) {
    const bool is_first = std::exchange(is_first_, is_first_ && is_json_space(c));
    if (c == '{') {
      begin_envelope(c, out);
      return;
    }
    raw_ += c;
    if (is_json_space(c) || (c == ',' && !is_first)) return;
    if (c == ']') {
      if (is_first) content_.push(raw_, out);
      state_ = State::kBehind;
    } else {
      content_.push(raw_, out);
      state_ = State::kContent;
    }
    raw_.clear();
  }

  void feed(char c, OutputEvents& out) {
    using Step = EnvelopeReader::Step;
    const bool had_begun = reader_.begun();
    const auto any_name = [](std::string_view) { return true; };
    const Step step = reader_.push(c, any_name, out);
    if (reader_.begun() && !had_begun) {
      content_.drop_space();
      raw_.clear();
    }
    if (step == Step::kMore) return;
    if (step == Step::kBroken) {
      leave(out);
      take(c, out);
      return;
    }
    out.end_call();
    state_ = in_array_ ? State::kBetween : State::kBehind;
    if (step == Step::kBehind) take(c, out);
  }

  void take_head(char c, OutputEvents& out) {
    if (state_ == State::kName && c == '{') {
      state_ = State::kArguments;
      arguments_ = {};
      has_begun_ = false;
      take_arguments(c, out);
      return;
    }
    raw_ += c;
    if (is_name_byte(c)) {
      (state_ == State::kName ? name_ : id_) += c;
    } else if (!is_json_space(c)) {
      leave(out);
    }
  }

  void take_arguments(char c, OutputEvents& out) {
    if (!has_begun_) {
      if (is_json_space(c)) {
        raw_ += c;
        return;
      }
      if (c != '{') {
        leave(out);
        take(c, out);
        return;
      }
      has_begun_ = true;
      content_.drop_space();
      raw_.clear();
      out.begin_call(name_, id_);
    }
    const bool is_last = arguments_.push(c) == JsonValueScanner::Step::kLast;
    out.arguments(std::string_view(&c, 1));
    if (!is_last) return;
    out.end_call();
    state_ = State::kBehind;
  }

  ContentText content_;
  State state_ = State::kContent;
  EnvelopeReader reader_;
  JsonValueScanner arguments_;
  std::string raw_;  // of what may be a call, until it is one
  std::string name_, id_;
  bool has_begun_ = false, in_array_ = false, is_first_ = false;
};

}  // namespace

std::unique_ptr<CallParser> make_mistral_calls(const CallParserStart& start) {
  return std::make_unique<MistralCalls>(start);
}

}  // namespace artery::codec
