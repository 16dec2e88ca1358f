// Calls whose envelope is JSON: Hermes and Qwen, Llama 3.

#include <utility>

#include "codec/stream/call_parser.h"
#include "codec/stream/json_scan.h"

namespace artery::codec {

namespace {

// From <tool_call> to </tool_call>. The closing marker is looked for outside of strings only, so
// that arguments may speak about it.
class HermesCalls final : public CallParser {
 public:
  explicit HermesCalls(const CallParserStart& start)
      : tags_({"<tool_call>", "</tool_call>"}, start.is_control),
        end_({"</tool_call>"}, start.is_control) {}

  std::unique_ptr<CallParser> clone() const override {
    return std::make_unique<HermesCalls>(*this);
  }
  bool takes(std::string_view token) const override { return tags_.control(token) >= 0; }

  void push_text(std::string_view text, OutputEvents& out) override {
    for (const char c : text) take(c, out);
  }

  void push_control(std::string_view token, OutputEvents& out) override {
    const bool ends = end_.control(token) >= 0;
    // Within a string too: no text becomes a control token by chance.
    leave(out);
    if (ends) {
      is_open_ = false;
    } else {
      enter(token);
    }
  }

  void finish(OutputEvents& out) override {
    leave(out, true);
    content_.finish(out);
  }

 private:
  enum class State : std::uint8_t { kContent, kEnvelope, kBehind };

  void enter(std::string_view marker) {
    state_ = State::kEnvelope;
    is_open_ = true;
    raw_ = marker;
    reader_ = {};
  }

  // Back to content: ends the call, or shows what was none.
  void leave(OutputEvents& out, bool cut = false) {
    // The beginning of a closing marker is markup, and no part of the arguments.
    const std::string rest = finder_.flush();
    if (state_ == State::kEnvelope && reader_.begun()) {
      out.end_call(cut);
    } else if (state_ == State::kEnvelope) {
      content_.push(raw_ + reader_.held() + rest, out);
    } else if (state_ == State::kContent) {
      content_.push(rest, out);
    }
    state_ = State::kContent;
  }

  void take(char c, OutputEvents& out) {
    if (state_ == State::kContent) {
      take_content(c, out);
      return;
    }
    if (state_ == State::kEnvelope && reader_.in_string()) {
      feed(c, out);
      return;
    }
    std::string passed;
    const bool ends = finder_.push(end_, c, passed) >= 0;
    if (!passed.empty()) {
      // These bytes may lead to another state, which looks for other markers.
      const std::string rest = finder_.flush();
      for (const char byte : passed) take_passed(byte, out);
      for (const char byte : rest) take(byte, out);
    }
    if (!ends) return;
    if (state_ == State::kEnvelope && !reader_.begun()) {
      content_.push(raw_ + reader_.held() + end_.text(0), out);
      state_ = State::kContent;
    } else {
      leave(out);
    }
    is_open_ = false;
  }

  void take_content(char c, OutputEvents& out) {
    std::string passed;
    const int tag = finder_.push(tags_, c, passed);
    content_.push(passed, out);
    if (tag == 0) enter(tags_.text(0));
    if (tag != 1) return;
    // A closing tag that closes nothing is text.
    if (!is_open_) content_.push(tags_.text(1), out);
    is_open_ = false;
  }

  // A byte inside the tags that is not part of the closing one.
  void take_passed(char c, OutputEvents& out) {
    if (state_ == State::kEnvelope) {
      feed(c, out);
    } else if (state_ == State::kContent) {
      take_content(c, out);
    } else if (c == '{') {
      enter({});  // a second call in one pair of tags
      feed(c, out);
    } else if (!is_json_space(c)) {
      state_ = State::kContent;
      take_content(c, out);
    }
  }

  void feed(char c, OutputEvents& out) {
    using Step = EnvelopeReader::Step;
    const bool had_begun = reader_.begun();
    const auto any_name = [](std::string_view) { return true; };
    const Step step = reader_.push(c, any_name, out);
    if (reader_.begun() && !had_begun) content_.drop_space();
    if (step == Step::kMore) return;
    if (step == Step::kBroken) {
      content_.push(raw_ + reader_.held(), out);
      state_ = State::kContent;
      is_open_ = false;
      take_content(c, out);
      return;
    }
    out.end_call();
    state_ = State::kBehind;
    if (step == Step::kBehind) take_passed(c, out);
  }

  MarkerSet tags_, end_;
  MarkerFinder finder_;
  ContentText content_;
  State state_ = State::kContent;
  bool is_open_ = false;  // a pair of tags that made a call is not closed yet
  EnvelopeReader reader_;
  std::string raw_;  // the marker that opened the envelope
};

// An answer that is JSON from its first byte, or behind <|python_tag|>.
class LlamaCalls final : public CallParser {
 public:
  explicit LlamaCalls(const CallParserStart& start)
      : tag_({"<|python_tag|>"}, start.is_control), tools_(start.tools) {}

  std::unique_ptr<CallParser> clone() const override { return std::make_unique<LlamaCalls>(*this); }
  bool takes(std::string_view token) const override { return tag_.control(token) >= 0; }

  void push_text(std::string_view text, OutputEvents& out) override {
    for (const char c : text) take(c, out);
  }
  void push_control(std::string_view, OutputEvents& out) override {
    show_held(out);
    state_ = State::kBetween;
  }
  void finish(OutputEvents& out) override {
    show_held(out, true);
    content_.finish(out);
  }

 private:
  enum class State : std::uint8_t {
    kBetween,   // a call may begin: at the start, behind the tag, behind a call
    kEnvelope,  // in one
    kContent
  };

  void show_held(OutputEvents& out, bool cut = false) {
    if (state_ == State::kEnvelope && reader_.begun()) out.end_call(cut);
    if (state_ == State::kEnvelope && !reader_.begun()) content_.push(gap_ + reader_.held(), out);
    if (state_ == State::kBetween) content_.push(gap_, out);
    content_.push(finder_.flush(), out);
    gap_.clear();
  }

  void take(char c, OutputEvents& out) {
    if (state_ == State::kEnvelope) {
      feed(c, out);
      return;
    }
    if (state_ == State::kBetween && !finder_.holds()) {
      if (c == '{') {
        state_ = State::kEnvelope;
        reader_ = {};
        feed(c, out);
        return;
      }
      if (is_json_space(c) || (c == ';' && out.calls() > 0 && gap_.find(';') == gap_.npos)) {
        gap_ += c;
        return;
      }
    }
    take_content(c, out);
  }

  void take_content(char c, OutputEvents& out) {
    std::string passed;
    const bool is_tag = finder_.push(tag_, c, passed) >= 0;
    if (!passed.empty()) {
      content_.push(std::exchange(gap_, {}) + passed, out);
      state_ = State::kContent;
    }
    if (!is_tag) return;
    content_.push(std::exchange(gap_, {}), out);
    state_ = State::kBetween;
  }

  void feed(char c, OutputEvents& out) {
    using Step = EnvelopeReader::Step;
    const bool had_begun = reader_.begun();
    const auto is_declared = [&](std::string_view name) { return tools_ && tools_->has(name); };
    const Step step = reader_.push(c, is_declared, out);
    if (reader_.begun() && !had_begun) {
      content_.drop_space();
      gap_.clear();
    }
    if (step == Step::kMore) return;
    if (step == Step::kBroken) {
      content_.push(std::exchange(gap_, {}) + reader_.held(), out);
      state_ = State::kContent;
      take_content(c, out);
      return;
    }
    out.end_call();
    state_ = State::kBetween;
    if (step == Step::kBehind) take(c, out);
  }

  MarkerSet tag_;
  std::shared_ptr<const DeclaredTools> tools_;
  MarkerFinder finder_;
  ContentText content_;
  State state_ = State::kBetween;
  EnvelopeReader reader_;
  std::string gap_;  // space and ";" before what may be a call
};

}  // namespace

std::unique_ptr<CallParser> make_hermes_calls(const CallParserStart& start) {
  return std::make_unique<HermesCalls>(start);
}

std::unique_ptr<CallParser> make_llama_calls(const CallParserStart& start) {
  return std::make_unique<LlamaCalls>(start);
}

}  // namespace artery::codec
