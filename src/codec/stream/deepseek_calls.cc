// Calls of DeepSeek V3, R1 and V3.1. Formats: the chat templates published with the models.
//
//   V3, R1: <calls begin><call begin>function<sep>NAME\n```json\n{...}\n```<call end>...<calls end>
//   V3.1:   <calls begin><call begin>NAME<sep>{...}<call end>...<calls end>
//
// Both are read by one machine: what stands behind the separator tells them apart.

#include <utility>

#include "codec/stream/json_scan.h"
#include "codec/stream/marker_calls.h"

namespace artery::codec {
namespace {

class DeepSeekCalls final : public MarkerCalls {
 public:
  explicit DeepSeekCalls(const CallParserStart& start)
      : MarkerCalls(MarkerSet(
            {"<｜tool▁calls▁begin｜>",
             "<｜tool▁call▁begin｜>",
             "<｜tool▁sep｜>",
             "<｜tool▁call▁end｜>",
             "<｜tool▁calls▁end｜>"},
            start.is_control
        )) {}

  std::unique_ptr<CallParser> clone() const override {
    return std::make_unique<DeepSeekCalls>(*this);
  }
  void finish(OutputEvents& out) override {
    // The beginning of a marker behind a call is markup that was cut off.
    if (state_ == State::kContent || state_ == State::kHead) take_rest(out);
    leave(out, true);
    content_.finish(out);
  }

 private:
  enum class State : std::uint8_t {
    kContent,
    kCalls,      // between the calls of a block
    kHead,       // before the separator
    kArguments,  // behind it
    kTail        // behind the JSON, before the end of the call
  };
  enum Marker { kCallsBegin, kCallBegin, kSep, kCallEnd, kCallsEnd };

  bool looks_for_markers() const override {
    return state_ != State::kArguments || !arguments_.in_string();
  }

  void take_marker(int marker, OutputEvents& out) override {
    const std::string& text = text_of(marker);
    if (marker == kSep && state_ == State::kHead) {
      raw_ += text;
      state_ = State::kArguments;
      return;
    }
    if (marker == kSep) {
      leave(out);
      content_.push(text, out);
      return;
    }
    const bool was_content = state_ == State::kContent;
    if (marker == kCallEnd || marker == kCallsEnd) {
      const bool ends_nothing = was_content && !in_block_;
      if (raw_.empty() || was_content || state_ == State::kCalls) {
        if (ends_nothing) content_.push(text, out);
        leave(out);
      } else {
        raw_ += text;  // of a call that never began
        leave(out);
      }
      state_ = marker == kCallEnd && in_block_ ? State::kCalls : State::kContent;
      in_block_ = in_block_ && marker == kCallEnd;
      return;
    }
    const std::string block = state_ == State::kCalls ? std::exchange(raw_, {}) : std::string();
    leave(out);
    raw_ = block + text;
    in_block_ = true;
    state_ = marker == kCallsBegin ? State::kCalls : State::kHead;
    head_.clear();
    line_.clear();
    arguments_ = {};
  }

  // Back to content: ends a call under way, shows what was none.
  void leave(OutputEvents& out, bool cut = false) {
    if (out.in_call()) {
      out.end_call(cut);
    } else {
      content_.push(raw_, out);
    }
    raw_.clear();
    state_ = State::kContent;
  }

  void take_passed(char c, OutputEvents& out) override {
    switch (state_) {
      case State::kContent:
        content_.push(std::string_view(&c, 1), out);
        return;
      case State::kCalls:
        if (!raw_.empty()) {
          raw_ += c;
          if (!is_json_space(c)) leave(out);
        } else if (!is_json_space(c)) {
          state_ = State::kContent;
          content_.push(std::string_view(&c, 1), out);
        }
        return;
      case State::kHead:
        raw_ += c;
        head_ += c;
        return;
      case State::kArguments:
        take_arguments(c, out);
        return;
      case State::kTail:
        // The fence that closes the block.
        if (is_json_space(c) || c == '`') return;
        state_ = State::kContent;
        content_.push(std::string_view(&c, 1), out);
        return;
    }
  }

  void take_arguments(char c, OutputEvents& out) {
    if (!out.in_call()) {
      if (c != '{') {
        raw_ += c;
        line_ += c;
        return;
      }
      const std::string function = name();
      if (function.empty()) {
        leave(out);
        take(c, out);
        return;
      }
      content_.drop_space();
      raw_.clear();
      out.begin_call(function);
    }
    const bool is_last = arguments_.push(c) == JsonValueScanner::Step::kLast;
    out.arguments(std::string_view(&c, 1));
    if (!is_last) return;
    out.end_call();
    state_ = State::kTail;
  }

  // V3 has the name on a line of its own behind the separator, V3.1 before it.
  std::string name() const {
    const auto trimmed = [](std::string_view text) {
      while (!text.empty() && is_json_space(text.front())) text.remove_prefix(1);
      while (!text.empty() && is_json_space(text.back())) text.remove_suffix(1);
      return std::string(text);
    };
    const std::string own_line = trimmed(line_.substr(0, line_.find('\n')));
    const bool is_fence = own_line.starts_with("```");
    return own_line.empty() || is_fence ? trimmed(head_) : own_line;
  }

  ContentText content_;
  State state_ = State::kContent;
  JsonValueScanner arguments_;
  std::string raw_;          // of what may be a call, until it is one
  std::string head_, line_;  // before the separator, and between it and the arguments
  bool in_block_ = false;
};

}  // namespace

std::unique_ptr<CallParser> make_deepseek_calls(const CallParserStart& start) {
  return std::make_unique<DeepSeekCalls>(start);
}

}  // namespace artery::codec
