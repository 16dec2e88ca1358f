// Calls of Qwen3-Coder. Format: its published chat template.
//
//   <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n...</function>\n</tool_call>
//
// A value may itself contain such markup: it ends at the closing tag that is followed by the next
// parameter or by the end of the function, with as many tags closed as were opened (FR-B3).

#include <utility>

#include "codec/stream/call_parser.h"
#include "codec/stream/declared_tools.h"
#include "codec/stream/json_scan.h"

namespace artery::codec {
namespace {

// One value, from behind its opening tag to the tag that follows its closing one.
class XmlValue {
 public:
  XmlValue() = default;
  explicit XmlValue(bool is_text) : is_text_(is_text) {}

  struct Marks {
    MarkerSet inside, behind;  // what matters in a value, and what may follow its closing tag
  };
  enum Inside { kCloseLine, kClose, kOpen };

  // The marker of `behind` that ended the value, or -1. Texts leave as they come, JSON when whole.
  int push(char c, const Marks& marks, OutputEvents& out) {
    if (std::exchange(at_start_, false) && c == '\n') return -1;
    return is_closed_ ? push_behind(c, marks, out) : push_inside(c, marks, out);
  }

  // Without a tag that follows. A value that was not closed stays as incomplete as it is.
  void finish(OutputEvents& out) {
    if (!is_closed_) show(finder_.flush(), out);
    end(is_closed_, out);
  }

 private:
  int push_inside(char c, const Marks& marks, OutputEvents& out) {
    note_opening(c);
    std::string passed;
    const int mark = finder_.push(marks.inside, c, passed);
    show(passed, out);
    if (mark < 0) return -1;
    closing_ = marks.inside.text(static_cast<std::size_t>(mark));
    if (mark == kOpen) {
      opening_ = Opening::kKey;
      show(closing_, out);
    } else if (nested_ > 0) {
      --nested_;
      show(closing_, out);
    } else {
      is_closed_ = true;
      spaces_.clear();
    }
    return -1;
  }

  int push_behind(char c, const Marks& marks, OutputEvents& out) {
    if (!finder_.holds() && is_json_space(c)) {
      spaces_ += c;
      return -1;
    }
    std::string passed;
    const int mark = finder_.push(marks.behind, c, passed);
    if (mark >= 0) {
      end(true, out);
      return mark;
    }
    if (passed.empty()) return -1;
    // It closed nothing: the tag is text, and what follows may close again.
    const std::string again = spaces_ + passed + finder_.flush();
    show(closing_, out);
    is_closed_ = false;
    int found = -1;
    for (const char byte : again) found = push(byte, marks, out);
    return found;
  }

  // An opening tag alone on its line begins nested markup.
  void note_opening(char c) {
    if (opening_ == Opening::kKey) {
      if (c == '>') opening_ = Opening::kBehindKey;
      if (c == '<' || is_json_space(c)) opening_ = Opening::kNone;
    } else if (opening_ == Opening::kBehindKey) {
      if (c == '\n') ++nested_;
      opening_ = Opening::kNone;
    }
  }

  void show(std::string_view text, OutputEvents& out) {
    if (text.empty()) return;
    if (!is_text_) {
      value_ += text;
      return;
    }
    if (!std::exchange(is_quoted_, true)) out.arguments("\"");
    out.arguments(json_escape(text));
  }

  void end(bool whole, OutputEvents& out) {
    if (is_text_) {
      if (!is_quoted_) out.arguments("\"");
      if (whole) out.arguments("\"");
    } else {
      out.arguments(whole ? json_or_text(value_) : value_);
    }
  }

  enum class Opening : std::uint8_t { kNone, kKey, kBehindKey };
  MarkerFinder finder_;
  std::string value_, closing_, spaces_;
  int nested_ = 0;
  Opening opening_ = Opening::kNone;
  bool is_text_ = true, is_quoted_ = false, is_closed_ = false, at_start_ = true;
};

class XmlCalls final : public CallParser {
 public:
  explicit XmlCalls(const CallParserStart& start)
      : markers_({"<tool_call>", "<function=", "</tool_call>"}, start.is_control),
        inner_({"<parameter=", "</function>", "<tool_call>", "</tool_call>"}, start.is_control),
        marks_{{{"\n</parameter>", "</parameter>", "<parameter="}, start.is_control}, inner_},
        tools_(start.tools) {}

  std::unique_ptr<CallParser> clone() const override { return std::make_unique<XmlCalls>(*this); }
  bool takes(std::string_view token) const override { return markers_.control(token) >= 0; }

  void push_text(std::string_view text, OutputEvents& out) override {
    for (const char c : text) take(c, out);
  }

  void push_control(std::string_view token, OutputEvents& out) override {
    leave(false, out);
    is_open_ = markers_.control(token) == 0;
    if (is_open_) enter(token);
  }

  void finish(OutputEvents& out) override {
    leave(true, out);
    content_.finish(out);
  }

 private:
  enum class State : std::uint8_t {
    kContent,
    kTag,       // behind <tool_call>
    kName,      // behind <function=
    kFunction,  // between parameters
    kKey,       // behind <parameter=
    kValue,
    kBehind  // behind </function>
  };
  enum Marker { kToolCall, kFunctionTag, kCloseToolCall };
  enum Inner { kParameter, kCloseFunction, kNextToolCall, kCloseTool };

  void enter(std::string_view raw) {
    state_ = State::kTag;
    is_open_ = true;
    raw_ = raw;
  }

  // Back to content. `cut`: the output ends, and what is open stays open.
  void leave(bool cut, OutputEvents& out) {
    const std::string rest = finder_.flush();
    if (state_ == State::kContent) content_.push(rest, out);
    if (state_ == State::kTag || state_ == State::kName) content_.push(raw_ + rest, out);
    if (state_ == State::kValue) value_.finish(out);
    if (out.in_call()) end_call(cut, out);
    state_ = State::kContent;
  }

  void end_call(bool cut, OutputEvents& out) {
    if (has_parameters_ && !cut) out.arguments("}");
    out.end_call(cut);
  }

  void take(char c, OutputEvents& out) {
    switch (state_) {
      case State::kContent:
      case State::kTag:
      case State::kBehind:
        take_outside(c, out);
        return;
      case State::kName:
        take_name(c, out);
        return;
      case State::kFunction:
        take_function(c, out);
        return;
      case State::kKey:
        take_key(c, out);
        return;
      case State::kValue:
        if (const int mark = value_.push(c, marks_, out); mark >= 0) take_inner(mark, out);
        return;
    }
  }

  void take_outside(char c, OutputEvents& out) {
    std::string passed;
    const int marker = finder_.push(markers_, c, passed);
    for (const char byte : passed) {
      const bool is_space = is_json_space(byte);
      if (is_space && state_ == State::kBehind) continue;
      if (is_space && state_ == State::kTag) {
        raw_ += byte;
        continue;
      }
      if (state_ == State::kTag) give_up(out);
      state_ = State::kContent;
      content_.push(std::string_view(&byte, 1), out);
    }
    if (marker < 0) return;
    const std::string& text = markers_.text(static_cast<std::size_t>(marker));
    if (marker == kFunctionTag) {
      raw_ = (state_ == State::kTag ? raw_ : std::string()) + text;
      state_ = State::kName;
      name_.clear();
      return;
    }
    if (state_ == State::kTag) give_up(out);
    state_ = State::kContent;
    if (marker == kToolCall) {
      enter(text);
      return;
    }
    // A closing tag that closes nothing is text.
    if (!is_open_) content_.push(text, out);
    is_open_ = false;
  }

  // What looked like a call is text.
  void give_up(OutputEvents& out) {
    content_.push(raw_, out);
    raw_.clear();
    is_open_ = false;
    state_ = State::kContent;
  }

  void take_name(char c, OutputEvents& out) {
    if (c == '>' && !name_.empty()) {
      content_.drop_space();
      out.begin_call(name_);
      has_parameters_ = false;
      state_ = State::kFunction;
      return;
    }
    if (c == '<' || c == '>' || is_json_space(c)) {
      give_up(out);
      take(c, out);
      return;
    }
    raw_ += c;
    name_ += c;
  }

  // Between parameters there is nothing but space; other text has no place in the arguments, ends
  // the call and is content.
  void take_function(char c, OutputEvents& out) {
    std::string passed;
    const int mark = finder_.push(inner_, c, passed);
    if (!passed.empty()) {
      const std::string rest = finder_.flush();
      for (const char byte : passed) {
        if (state_ == State::kFunction && is_json_space(byte)) continue;
        if (state_ == State::kFunction) {
          end_call(false, out);
          state_ = State::kContent;
        }
        take(byte, out);
      }
      for (const char byte : rest) take(byte, out);
    }
    if (mark >= 0) take_inner(mark, out);
  }

  void take_inner(int mark, OutputEvents& out) {
    if (mark == kParameter) {
      state_ = State::kKey;
      key_.clear();
      return;
    }
    end_call(false, out);
    state_ = mark == kCloseTool ? State::kContent : State::kBehind;
    if (mark == kCloseTool) is_open_ = false;
    if (mark == kNextToolCall) enter(inner_.text(kNextToolCall));
  }

  void take_key(char c, OutputEvents& out) {
    if (c != '>') {
      key_ += c;
      return;
    }
    out.arguments(std::exchange(has_parameters_, true) ? ", \"" : "{\"");
    out.arguments(json_escape(key_) + "\": ");
    value_ = XmlValue(!tools_ || tools_->is_text(name_, key_));
    state_ = State::kValue;
  }

  MarkerSet markers_, inner_;
  XmlValue::Marks marks_;
  std::shared_ptr<const DeclaredTools> tools_;
  MarkerFinder finder_;
  ContentText content_;
  State state_ = State::kContent;
  XmlValue value_;
  std::string raw_, name_, key_;
  bool is_open_ = false;  // a pair of tags is not closed yet
  bool has_parameters_ = false;
};

}  // namespace

std::unique_ptr<CallParser> make_xml_calls(const CallParserStart& start) {
  return std::make_unique<XmlCalls>(start);
}

}  // namespace artery::codec
