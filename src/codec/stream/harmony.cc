#include "codec/stream/harmony.h"

#include <algorithm>
#include <utility>

#include "codec/stream/json_scan.h"

namespace artery::codec {
namespace {

constexpr std::string_view kTo = "to=", kFunctions = "functions.";

class Harmony final : public CallParser {
 public:
  Harmony(const CallParserStart& start, bool with_calls)
      : markers_(
            {"<|start|>",
             "<|channel|>",
             "<|message|>",
             "<|constrain|>",
             "<|end|>",
             "<|call|>",
             "<|return|>"},
            start.is_control
        ),
        with_calls_(with_calls) {}

  std::unique_ptr<CallParser> clone() const override { return std::make_unique<Harmony>(*this); }
  bool takes(std::string_view token) const override { return markers_.control(token) >= 0; }

  void push_text(std::string_view text, OutputEvents& out) override {
    for (const char c : text) {
      std::string passed;
      const int marker = finder_.push(markers_, c, passed);
      take_text(passed, out);
      if (marker >= 0) take_marker(marker, out);
    }
  }

  void push_control(std::string_view token, OutputEvents& out) override {
    take_text(finder_.flush(), out);
    take_marker(markers_.control(token), out);
  }

  void finish(OutputEvents& out) override {
    take_text(finder_.flush(), out);
    if (state_ == State::kStart) out.content(std::exchange(header_, {}));
    out.end_call(true);
    // A header without its message is markup that was cut off.
  }

 private:
  enum class State : std::uint8_t {
    kStart,   // of the output, whose role the prompt has written
    kHeader,  // from <|start|> or <|channel|> to <|message|>
    kBody
  };
  enum class Body : std::uint8_t { kContent, kReasoning, kArguments };
  enum Marker { kStartMessage, kChannel, kMessage, kConstrain, kEnd, kCall, kReturn };

  void take_text(std::string_view text, OutputEvents& out) {
    if (text.empty()) return;
    if (state_ == State::kHeader) {
      header_ += text;
      return;
    }
    if (state_ == State::kBody) {
      show(text, out);
      return;
    }
    // " to=functions.NAME" may stand before the channel. Any other text is an answer without one.
    for (std::size_t i = 0; i < text.size(); ++i) {
      header_ += text[i];
      if (may_be_recipient()) continue;
      state_ = State::kBody;
      body_ = Body::kContent;
      show(std::exchange(header_, {}), out);
      show(text.substr(i + 1), out);
      return;
    }
  }

  bool may_be_recipient() const {
    constexpr std::size_t kRecipientMax = 256;
    std::string_view text = header_;
    while (!text.empty() && is_json_space(text.front())) text.remove_prefix(1);
    const std::size_t known = std::min(text.size(), kTo.size());
    const bool is_one_word = std::none_of(text.begin(), text.end(), is_json_space);
    return header_.size() <= kRecipientMax && is_one_word &&
           text.substr(0, known) == kTo.substr(0, known);
  }

  void take_marker(int marker, OutputEvents& out) {
    switch (marker) {
      case kStartMessage:
        out.end_call();
        header_.clear();
        state_ = State::kHeader;
        return;
      case kChannel:
        if (state_ == State::kBody) header_.clear();
        if (state_ == State::kBody) out.end_call();
        header_ += " <|channel|>";
        state_ = State::kHeader;
        return;
      case kConstrain:
        if (state_ == State::kHeader) header_ += ' ';
        return;
      case kMessage:
        begin_body(out);
        return;
      default:
        out.end_call();
        state_ = State::kBody;
        body_ = Body::kContent;
    }
  }

  void begin_body(OutputEvents& out) {
    if (state_ == State::kBody) return;
    const std::string header = std::exchange(header_, {});
    state_ = State::kBody;
    const std::string to = word_behind(header, kTo);
    const std::string channel = word_behind(header, "<|channel|>");
    if (with_calls_ && to.starts_with(kFunctions) && to.size() > kFunctions.size()) {
      body_ = Body::kArguments;
      out.begin_call(to.substr(kFunctions.size()));
    } else {
      body_ = channel == "analysis" ? Body::kReasoning : Body::kContent;
    }
  }

  static std::string word_behind(std::string_view header, std::string_view mark) {
    const std::size_t at = header.find(mark);
    if (at == header.npos) return {};
    std::string_view rest = header.substr(at + mark.size());
    const auto end =
        std::find_if(rest.begin(), rest.end(), [](char c) { return is_json_space(c) || c == '<'; });
    return std::string(rest.begin(), end);
  }

  void show(std::string_view text, OutputEvents& out) {
    if (body_ == Body::kContent) {
      out.content(text);
    } else if (body_ == Body::kReasoning) {
      out.reasoning(text);
    } else {
      out.arguments(text);
    }
  }

  MarkerSet markers_;
  MarkerFinder finder_;
  std::string header_;
  State state_ = State::kStart;
  Body body_ = Body::kContent;
  bool with_calls_;
};

}  // namespace

std::unique_ptr<CallParser> make_harmony(const CallParserStart& start, bool with_calls) {
  return std::make_unique<Harmony>(start, with_calls);
}

}  // namespace artery::codec
