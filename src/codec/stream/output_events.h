#pragma once
// What a model's output means, in order: reasoning, content, tool calls. Parsers write into
// OutputEvents, the server formats what it takes out. Values, one thread at a time.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace artery::codec {

struct OutputEvent {
  enum class Kind : std::uint8_t {
    kReasoning,
    kContent,
    kCallBegin,  // text: the function's name
    kArguments,  // text: the next part of the arguments, JSON when the model wrote JSON
    kCallEnd
  };
  Kind kind = Kind::kContent;
  int call = -1;     // index of the call, 0 for the first
  std::string text;  // UTF-8
  std::string id;    // kCallBegin: the id that the model gave, mostly none
  bool operator==(const OutputEvent&) const = default;
};

// Collects events; texts of one kind that follow each other become one event.
class OutputEvents {
 public:
  using Kind = OutputEvent::Kind;

  void reasoning(std::string_view text) { add(Kind::kReasoning, -1, text); }
  void content(std::string_view text) { add(Kind::kContent, -1, text); }
  // Ends a call that is still open.
  void begin_call(std::string_view name, std::string_view id = {}) {
    end_call();
    events_.push_back({Kind::kCallBegin, ++call_, std::string(name), std::string(id)});
    open_ = true;
    has_arguments_ = false;
  }
  void arguments(std::string_view text) {
    has_arguments_ = has_arguments_ || !text.empty();
    add(Kind::kArguments, call_, text);
  }
  // A call without arguments has the empty object, so that every client can parse them; not one
  // that the end of the output cut off, which must not look whole.
  void end_call(bool cut = false) {
    if (!open_) return;
    if (!has_arguments_ && !cut) arguments("{}");
    events_.push_back({Kind::kCallEnd, call_, {}, {}});
    open_ = false;
  }

  bool in_call() const { return open_; }
  int calls() const { return call_ + 1; }
  std::vector<OutputEvent> take() { return std::exchange(events_, {}); }

 private:
  void add(Kind kind, int call, std::string_view text) {
    if (text.empty()) return;
    if (events_.empty() || events_.back().kind != kind) events_.push_back({kind, call, {}, {}});
    events_.back().text += text;
  }

  std::vector<OutputEvent> events_;
  int call_ = -1;
  bool open_ = false, has_arguments_ = false;
};

}  // namespace artery::codec
