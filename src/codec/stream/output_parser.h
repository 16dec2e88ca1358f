#pragma once
// Model output to reasoning, content and tool calls, by the conventions of a model family. An
// OutputFormat is chosen when the model loads; each choice of an answer gets an OutputParser from
// it. The events of an output, joined, are the same for every way to cut it into pieces; text is
// held back only while it can still become markup; nothing is lost at the end. A copy of a parser
// is a snapshot. Formats: immutable, any thread. Parsers: one thread at a time.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/stream/call_parser.h"
#include "codec/stream/output_events.h"
#include "codec/stream/output_reader.h"
#include "codec/stream/think_splitter.h"
#include "codec/tokenizer.h"

namespace artery::codec {

// vLLM's names, "auto" (by the chat template's text) or "none".
struct ParserChoice {
  std::string tool_call = "auto", reasoning = "auto";
};

// kInvalidArgument naming the flag and the names there are.
Result<> check_parser_choice(const ParserChoice& choice);

enum class CallIdStyle : std::uint8_t {
  kLong,  // as OpenAI's: call_ and 24 letters or digits
  kNine   // 9 letters or digits: Mistral's templates refuse others
};

class OutputParser;

class OutputFormat {
 public:
  // `template_source`: what "auto" looks at. `is_control`: of the model's vocabulary.
  // check_parser_choice's errors.
  static Result<std::shared_ptr<const OutputFormat>> make(
      const ParserChoice& choice, std::string_view template_source, IsControlText is_control
  );

  // The names in use; "none" where there is none.
  const std::string& tool_call() const { return tool_call_; }
  const std::string& reasoning() const { return reasoning_; }
  CallIdStyle call_id_style() const {
    return tool_call_ == "mistral" ? CallIdStyle::kNine : CallIdStyle::kLong;
  }

  // `prompt`: the rendered text, whose end tells whether it has opened the reasoning. `tools`:
  // null when the answer must not have calls; markup of calls is then content. `continued`: the
  // text that the answer goes on from, which the prompt ends with.
  OutputParser start(
      std::string_view prompt,
      std::shared_ptr<const DeclaredTools> tools,
      std::optional<std::string_view> continued = std::nullopt
  ) const;

 private:
  OutputFormat(std::string tool_call, std::string reasoning, IsControlText is_control)
      : tool_call_(std::move(tool_call)),
        reasoning_(std::move(reasoning)),
        is_control_(std::move(is_control)) {}
  std::optional<ThinkSplitter> make_splitter(
      std::string_view prompt, std::optional<std::string_view> continued
  ) const;
  std::unique_ptr<CallParser> make_calls(CallParserStart start, bool with_calls) const;

  std::string tool_call_, reasoning_;
  IsControlText is_control_;
};

class OutputParser {
 public:
  // Everything is content.
  OutputParser() = default;
  OutputParser(std::optional<ThinkSplitter> think, std::unique_ptr<CallParser> calls)
      : think_(std::move(think)), calls_(std::move(calls)) {}
  explicit OutputParser(std::unique_ptr<OutputReader> reader) : reader_(std::move(reader)) {}
  OutputParser(const OutputParser& other);
  OutputParser& operator=(const OutputParser& other);
  OutputParser(OutputParser&&) = default;
  OutputParser& operator=(OutputParser&&) = default;
  ~OutputParser() = default;

  // Whole characters of ordinary tokens.
  void push_text(std::string_view text);
  // True for control tokens that are markup here; only these go to push_control.
  bool takes(std::string_view control_token) const;
  void push_control(std::string_view token);
  // True: all tokens of the vocabulary's added part go to push_control, ordinary tokens that spell
  // one never.
  bool takes_added() const { return reader_ != nullptr; }
  void finish();

  int calls() const { return events_.calls(); }  // begun so far
  std::vector<OutputEvent> take() { return events_.take(); }

 private:
  void pass(std::string_view text);

  std::optional<ThinkSplitter> think_;
  std::unique_ptr<CallParser> calls_;     // null: content
  std::unique_ptr<OutputReader> reader_;  // not null: it alone reads
  OutputEvents events_;
  bool drop_space_ = false;  // space between reasoning and answer is markup
};

}  // namespace artery::codec
