#pragma once
// A model family's way to write tool calls, as a machine over its output. What is not a call, or
// not a whole one, is content: nothing is lost. Time is linear in the text. Owned by one
// OutputParser, one thread at a time.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "codec/stream/markers.h"
#include "codec/stream/output_events.h"

namespace artery::codec {

// The functions that a request declares. Immutable, shared by its choices.
class DeclaredTools {
 public:
  virtual ~DeclaredTools() = default;
  virtual bool has(std::string_view function) const = 0;
  // True when the parameter is text (or unknown): its value is not read as JSON.
  virtual bool is_text(std::string_view function, std::string_view parameter) const = 0;
};

class CallParser {
 public:
  virtual ~CallParser() = default;
  virtual std::unique_ptr<CallParser> clone() const = 0;

  virtual void push_text(std::string_view text, OutputEvents& out) = 0;
  // A control token for which takes() is true.
  virtual void push_control(std::string_view token, OutputEvents& out) = 0;
  virtual bool takes(std::string_view control_token) const = 0;
  // The output ends here. A call under way ends as it is, its arguments as incomplete as they are.
  virtual void finish(OutputEvents& out) = 0;
};

// Visible text between calls. Space before a call belongs to its markup, as does space behind one:
// it is held until it is clear what follows. Thus the text that a client sends back renders to the
// same prompt.
class ContentText {
 public:
  void push(std::string_view text, OutputEvents& out);
  // A call begins.
  void drop_space() {
    space_.clear();
    drop_ = true;
  }
  void finish(OutputEvents& out);

 private:
  std::string space_;
  bool drop_ = false;
};

// What every machine begins with.
struct CallParserStart {
  IsControlText is_control;
  std::shared_ptr<const DeclaredTools> tools;
};

// <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes 2 Pro, Qwen 2.5, Qwen 3.
std::unique_ptr<CallParser> make_hermes_calls(const CallParserStart& start);
// An answer that begins with {"name": ..., "parameters": ...} or <|python_tag|>; several calls are
// separated by ";". Only names that the request declares: any other JSON is an answer in JSON.
std::unique_ptr<CallParser> make_llama_calls(const CallParserStart& start);
// [TOOL_CALLS][{...}, {...}] up to tokenizer v7; [TOOL_CALLS]name[ARGS]{...} from v11, with
// [CALL_ID]id before [ARGS] in between.
std::unique_ptr<CallParser> make_mistral_calls(const CallParserStart& start);
// DeepSeek V3, R1 (a type, a name and a fenced block) and V3.1 (a name and JSON).
std::unique_ptr<CallParser> make_deepseek_calls(const CallParserStart& start);
// <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>: Qwen3-Coder.
std::unique_ptr<CallParser> make_xml_calls(const CallParserStart& start);

}  // namespace artery::codec
