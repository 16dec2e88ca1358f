// Whatever a model writes and however it is cut, the events are the same and no text is lost.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "codec/stream/output_texts_test.h"

namespace artery::codec {
namespace {

const std::vector<std::string> kParts = {
    "<tool_call>",
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
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<function=get>",
    "<function=",
    "</function>",
    "<parameter=city>",
    "<parameter=days>",
    "</parameter>",
    "\n</parameter>\n",
    "{\"name\": \"get\", \"arguments\": ",
    "{\"name\": \"get\", \"parameters\": ",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ",",
    ":",
    ";",
    "\"name\"",
    "\"get\"",
    "\"arguments\"",
    "null",
    "1",
    "{}",
    "{\"city\": \"x\"}",
    "}}",
    "get",
    "to=functions.get",
    "analysis",
    "final",
    "function",
    "```json\n",
    "```",
    "\n",
    " ",
    "<",
    "</",
    "a",
    "é",
    "\\u00e9",
    "\\ud83d"
};

const std::vector<OutputCase> kCases = {
    {.tool_call = "hermes", .reasoning = "qwen3"},
    {.tool_call = "hermes", .reasoning = "none"},
    {.tool_call = "llama3_json"},
    {.tool_call = "mistral", .reasoning = "mistral"},
    {.tool_call = "deepseek_v3", .reasoning = "deepseek_r1"},
    {.tool_call = "qwen3_coder", .reasoning = "none"},
    {.tool_call = "openai", .reasoning = "openai_gptoss"},
    {.reasoning = "qwen3", .prompt = "<think>"},
};

struct Sample {
  OutputCase c;
  std::string output;
};

Sample sample() {
  Sample s;
  s.c = *rc::gen::elementOf(kCases);
  s.c.controls = *rc::gen::arbitrary<bool>();
  const auto parts = *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(kParts));
  for (const std::string& part : parts) {
    const bool is_control = s.c.controls && is_test_control(part);
    s.output += is_control ? "\x01" + part + "\x02" : part;
  }
  return s;
}

RC_GTEST_PROP(OutputParserProperty, CutsChangeNothing, ()) {
  const Sample s = sample();
  const std::string whole = parse_whole(s.c, s.output);
  RC_ASSERT(parse_bytes(s.c, s.output) == whole);
  auto cuts = *rc::gen::container<std::vector<std::size_t>>(
      rc::gen::inRange<std::size_t>(0, s.output.size() + 1)
  );
  std::sort(cuts.begin(), cuts.end());
  RC_ASSERT(parse_cut(s.c, s.output, cuts) == whole);
}

RC_GTEST_PROP(OutputParserProperty, ASnapshotGoesOnAlike, ()) {
  const Sample s = sample();
  const auto pieces = pieces_of(s.output);
  const auto at = *rc::gen::inRange<std::size_t>(0, pieces.size() + 1);
  OutputParser parser = start_case(s.c);
  JoinedEvents head;
  for (std::size_t i = 0; i < at; ++i) push_piece(parser, pieces[i]);
  head.add(parser);
  OutputParser copy = parser;
  std::string tails[2];
  for (OutputParser* one : {&parser, &copy}) {
    JoinedEvents joined = head;
    for (std::size_t i = at; i < pieces.size(); ++i) push_piece(*one, pieces[i]);
    one->finish();
    joined.add(*one);
    tails[one == &copy] = joined.text();
  }
  RC_ASSERT(tails[0] == tails[1]);
  RC_ASSERT(tails[0] == parse_whole(s.c, s.output));
}

// Every call begins once, its events name it, and it ends before the next thing.
RC_GTEST_PROP(OutputParserProperty, CallsAreWellFormed, ()) {
  using Kind = OutputEvent::Kind;
  const Sample s = sample();
  OutputParser parser = start_case(s.c);
  for (const OutputPiece& piece : pieces_of(s.output)) push_piece(parser, piece);
  parser.finish();
  int calls = 0;
  bool open = false;
  for (const OutputEvent& event : parser.take()) {
    if (event.kind == Kind::kCallBegin) {
      RC_ASSERT(!open);
      RC_ASSERT(!event.text.empty());
      RC_ASSERT(event.call == calls++);
      open = true;
    } else if (event.kind == Kind::kArguments || event.kind == Kind::kCallEnd) {
      RC_ASSERT(open);
      RC_ASSERT(event.call == calls - 1);
      open = event.kind == Kind::kArguments;
    } else {
      RC_ASSERT(!open);
      RC_ASSERT(!event.text.empty());
    }
  }
  RC_ASSERT(!open);
  RC_ASSERT(parser.calls() == calls);
}

// Without a whole marker there is no markup: beginnings of markers are text, to the last byte.
RC_GTEST_PROP(OutputParserProperty, TextIsKept, ()) {
  const std::vector<std::string> parts = {
      "<tool_cal",
      "</tool_cal",
      "<|python_ta",
      "[TOOL_CALLS",
      "[ARG",
      "<thin",
      "</thin",
      "<|chann",
      "<|mess",
      "<｜tool▁",
      "<func",
      "</function",
      "<parameter",
      "{",
      "}",
      "{\"name\": ",
      "\"",
      "\\",
      "\n</paramete",
      "<",
      "[",
      " ",
      "\n",
      "word",
      "é",
      "to=",
      "{\"name\": \"x\"}",
      "```json\n",
      "analysis",
      "final"
  };
  OutputCase c = *rc::gen::elementOf(kCases);
  c.controls = *rc::gen::arbitrary<bool>();
  const auto texts = *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(parts));
  std::string output;
  for (const std::string& text : texts) output += text;
  const bool is_reasoning = !c.prompt.empty() || c.reasoning == "deepseek_r1";
  const std::string kind = is_reasoning ? "R|" : "C|";
  RC_ASSERT(parse_whole(c, output) == (output.empty() ? "" : kind + output + "\n"));
}

}  // namespace
}  // namespace artery::codec
