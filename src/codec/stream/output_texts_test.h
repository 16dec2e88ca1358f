#pragma once
// Runs output parsers over texts in which control tokens are written as "\x01TOKEN\x02". Tests and
// the fuzz target only.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codec/stream/declared_tools.h"
#include "codec/stream/output_parser.h"

namespace artery::codec {

struct OutputCase {
  std::string tool_call = "none", reasoning = "none";
  std::string prompt = {};
  bool controls = false;  // markers of this family are control tokens
  bool with_tools = true;
};

inline constexpr std::string_view kTestTools = R"([
  {"type": "function", "function": {"name": "get", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer"}, "deep": {"type": "object"}}}}},
  {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {
    "command": {"type": "string"}}}}}])";

// All that the families have.
inline bool is_test_control(std::string_view text) {
  for (const char* one :
       {"<tool_call>",
        "</tool_call>",
        "<|python_tag|>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "[THINK]",
        "[/THINK]",
        "<think>",
        "</think>",
        "<|start|>",
        "<|channel|>",
        "<|message|>",
        "<|constrain|>",
        "<|end|>",
        "<|call|>",
        "<|return|>",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>"}) {
    if (text == one) return true;
  }
  return false;
}

inline OutputParser start_case(const OutputCase& c) {
  auto format = OutputFormat::make(
      {c.tool_call, c.reasoning},
      "",
      [controls = c.controls](std::string_view text) { return controls && is_test_control(text); }
  );
  return (*format)->start(c.prompt, c.with_tools ? read_declared_tools(kTestTools) : nullptr);
}

// A piece of ordinary text, or one control token.
struct OutputPiece {
  std::string text;
  bool is_control = false;
};

inline std::vector<OutputPiece> pieces_of(std::string_view output) {
  std::vector<OutputPiece> pieces;
  while (!output.empty()) {
    const bool is_control = output.front() == '\x01';
    const std::size_t end = output.find(is_control ? '\x02' : '\x01');
    const std::size_t size = std::min(end, output.size());
    pieces.push_back({std::string(output.substr(is_control, size - is_control)), is_control});
    output.remove_prefix(std::min(size + is_control, output.size()));
  }
  return pieces;
}

inline void push_piece(OutputParser& parser, const OutputPiece& piece) {
  if (!piece.is_control) {
    parser.push_text(piece.text);
  } else if (parser.takes(piece.text)) {
    parser.push_control(piece.text);
  }
}

// The events of all pieces, texts of one kind joined.
class JoinedEvents {
 public:
  void add(OutputParser& parser) {
    for (OutputEvent& event : parser.take()) {
      const bool is_text =
          event.kind != OutputEvent::Kind::kCallBegin && event.kind != OutputEvent::Kind::kCallEnd;
      if (is_text && !events.empty() && events.back().kind == event.kind) {
        events.back().text += event.text;
      } else {
        events.push_back(std::move(event));
      }
    }
  }
  // "reasoning|..." and so on, one event a line.
  std::string text() const {
    std::string out;
    for (const OutputEvent& event : events) {
      constexpr const char* kNames[] = {"R|", "C|", "CALL|", "A|", "END|"};
      out += kNames[static_cast<int>(event.kind)] + event.id + (event.id.empty() ? "" : "|") +
             event.text + "\n";
    }
    return out;
  }
  std::vector<OutputEvent> events;
};

// `cuts`: byte offsets within the text pieces, taken together, where a piece ends.
inline std::string parse_cut(
    const OutputCase& c, std::string_view output, const std::vector<std::size_t>& cuts
) {
  OutputParser parser = start_case(c);
  JoinedEvents joined;
  std::size_t at = 0, next = 0;
  for (const OutputPiece& piece : pieces_of(output)) {
    std::string_view rest = piece.text;
    while (!piece.is_control && next < cuts.size() && cuts[next] < at + rest.size()) {
      const std::size_t size = cuts[next] < at ? 0 : cuts[next] - at;
      push_piece(parser, {std::string(rest.substr(0, size)), false});
      joined.add(parser);
      rest.remove_prefix(size);
      at += size;
      ++next;
    }
    push_piece(parser, {std::string(rest), piece.is_control});
    joined.add(parser);
    at += rest.size();
  }
  parser.finish();
  joined.add(parser);
  return joined.text();
}

inline std::string parse_whole(const OutputCase& c, std::string_view output) {
  return parse_cut(c, output, {});
}

inline std::string parse_bytes(const OutputCase& c, std::string_view output) {
  std::vector<std::size_t> cuts(output.size());
  for (std::size_t i = 0; i < cuts.size(); ++i) cuts[i] = i;
  return parse_cut(c, output, cuts);
}

}  // namespace artery::codec
