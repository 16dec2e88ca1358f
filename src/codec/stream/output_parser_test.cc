#include "codec/stream/output_parser.h"

#include <gtest/gtest.h>

#include "codec/stream/output_texts_test.h"

namespace artery::codec {
namespace {

// The events, after checking that no cut in two and no cut into bytes changes them.
std::string events_of(const OutputCase& c, std::string_view output) {
  const std::string whole = parse_whole(c, output);
  EXPECT_EQ(parse_bytes(c, output), whole) << output;
  for (std::size_t cut = 0; cut < output.size(); ++cut) {
    EXPECT_EQ(parse_cut(c, output, {cut}), whole) << "cut at " << cut << " of " << output;
  }
  return whole;
}

// "[TOKEN" in `text` becomes the control token TOKEN for every token of the list.
std::string with_controls(std::string text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t size = 0;
    for (std::size_t end = at + 1; end <= text.size() && end - at < 40 && size == 0; ++end) {
      if (is_test_control(std::string_view(text).substr(at, end - at))) size = end - at;
    }
    out += size == 0 ? text.substr(at, 1) : "\x01" + text.substr(at, size) + "\x02";
    at += std::max<std::size_t>(size, 1);
  }
  return out;
}

// Both kinds of vocabulary: markers as texts, and as control tokens.
void expect_both(OutputCase c, const std::string& output, const std::string& expected) {
  c.controls = false;
  EXPECT_EQ(events_of(c, output), expected) << output;
  c.controls = true;
  EXPECT_EQ(events_of(c, with_controls(output)), expected) << "control tokens: " << output;
}

const OutputCase kHermes{.tool_call = "hermes"};

TEST(HermesCalls, AreSplit) {
  expect_both(
      kHermes,
      "Let me look.\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"Paris\"}}\n"
      "</tool_call>\n<tool_call>\n{\"arguments\": {\"a\": [1, {}]}, \"name\": \"now\"}\n"
      "</tool_call>\nDone.",
      "C|Let me look.\nCALL|get\nA|{\"city\": \"Paris\"}\nEND|\n"
      "CALL|now\nA|{\"a\": [1, {}]}\nEND|\nC|Done.\n"
  );
}

TEST(HermesCalls, MarkupInStringsIsText) {
  EXPECT_EQ(
      events_of(
          kHermes,
          R"(<tool_call>{"name": "f", "arguments": {"x": "</tool_call> \" <tool_call>}"}}</tool_call>)"
      ),
      "CALL|f\nA|{\"x\": \"</tool_call> \\\" <tool_call>}\"}\nEND|\n"
  );
}

TEST(HermesCalls, ArgumentsInAStringAreDecoded) {
  EXPECT_EQ(
      events_of(
          kHermes,
          R"(<tool_call>{"name": "f\u00e9", "arguments": "{\"x\": \"\ud83d\ude00\\n\"}"}</tool_call>)"
      ),
      "CALL|fé\nA|{\"x\": \"😀\\n\"}\nEND|\n"
  );
  for (const char* none : {R"({"name":"f"})", R"({"name":"f","arguments":null})"}) {
    EXPECT_EQ(
        events_of(kHermes, std::string("<tool_call>") + none + "</tool_call>"),
        "CALL|f\nA|{}\nEND|\n"
    );
  }
}

TEST(HermesCalls, WhatIsNoCallIsContent) {
  for (const char* text :
       {"<tool_call>",
        "<tool_call>\nnot JSON\n</tool_call>\nmore",
        "<tool_call>{\"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": 5}</tool_call> x",
        "<tool_call>{\"name\": \"f\"",
        "<tool_call><tool_call>x",
        "a < b <tool b </tool_call> <tool_cal",
        "<<tool_call",
        "  "}) {
    EXPECT_EQ(events_of(kHermes, text), std::string("C|") + text + "\n");
  }
  EXPECT_EQ(events_of(kHermes, "<<tool_call>{\"name\":\"f\"}"), "C|<\nCALL|f\nA|{}\nEND|\n");
}

TEST(HermesCalls, ForgivesALostBraceOrTag) {
  const std::string call = "CALL|f\nA|{\"a\": 1}\nEND|\n";
  EXPECT_EQ(
      events_of(kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_call>"),
      call
  );
  EXPECT_EQ(
      events_of(kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n\nHello"),
      call + "C|Hello\n"
  );
  EXPECT_EQ(
      events_of(
          kHermes,
          "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": 1}}<tool_call>{\"name\":\"g\"}"
          "</tool_call>"
      ),
      call + "CALL|g\nA|{}\nEND|\n"
  );
  EXPECT_EQ(
      events_of(
          kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": {\"b\":1</tool_call>then"
      ),
      "CALL|f\nA|{\"a\": {\"b\":1\nEND|\nC|then\n"
  );
}

TEST(HermesCalls, ACutOffCallKeepsWhatItHas) {
  EXPECT_EQ(
      events_of(kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"xy"),
      "CALL|f\nA|{\"a\": \"xy\nEND|\n"
  );
  EXPECT_EQ(
      events_of(kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_c"),
      "CALL|f\nA|{\"a\": 1}\nEND|\n"
  );
}

TEST(HermesCalls, AControlTokenEndsABrokenString) {
  OutputCase c = kHermes;
  c.controls = true;
  EXPECT_EQ(
      events_of(
          c, with_controls("<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"x}}</tool_call>ok")
      ),
      "CALL|f\nA|{\"a\":\"x}}\nEND|\nC|ok\n"
  );
  // A control token's text is not the token.
  EXPECT_EQ(
      events_of(c, "<tool_call>{\"name\":\"f\"}</tool_call>"),
      "C|<tool_call>{\"name\":\"f\"}</tool_call>\n"
  );
}

TEST(HermesCalls, ArgumentsLeaveAsTheyCome) {  // FR-B8
  OutputParser parser = start_case(kHermes);
  parser.push_text("<tool_call>{\"name\": \"f\", \"arguments\": {\"t\": \"");
  parser.take();
  for (int i = 0; i < 100; ++i) {
    parser.push_text("ab");
    const auto events = parser.take();
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].text, "ab");
  }
}

TEST(HermesCalls, HoldBackOnlyWhatMayBecomeMarkup) {
  OutputParser parser = start_case(kHermes);
  parser.push_text("a <tool");
  EXPECT_EQ(parser.take(), (std::vector<OutputEvent>{{OutputEvent::Kind::kContent, -1, "a", {}}}));
  parser.push_text("box");
  EXPECT_EQ(
      parser.take(), (std::vector<OutputEvent>{{OutputEvent::Kind::kContent, -1, " <toolbox", {}}})
  );
}

TEST(OutputParser, ACopyIsASnapshot) {
  OutputParser parser = start_case(kHermes);
  parser.push_text("hi <tool_call>{\"name\": \"f\", \"argu");
  OutputParser copy = parser;
  for (OutputParser* one : {&copy, &parser}) {
    JoinedEvents joined;
    one->push_text("ments\": {\"a\": 1}}</tool_call>");
    one->finish();
    joined.add(*one);
    EXPECT_EQ(joined.text(), "C|hi\nCALL|f\nA|{\"a\": 1}\nEND|\n");
  }
}

const OutputCase kLlama{.tool_call = "llama3_json"};

TEST(LlamaCalls, AreSplit) {
  expect_both(
      kLlama,
      R"({"name": "get", "parameters": {"city": "Paris"}}; {"name": "bash", "parameters": {}})",
      "CALL|get\nA|{\"city\": \"Paris\"}\nEND|\nCALL|bash\nA|{}\nEND|\n"
  );
  expect_both(
      kLlama,
      R"(I'll look. <|python_tag|>{"type": "function", "name": "get", "parameters": {"a": "{;"}})",
      "C|I'll look.\nCALL|get\nA|{\"a\": \"{;\"}\nEND|\n"
  );
}

TEST(LlamaCalls, OtherJsonIsAnAnswer) {
  for (const char* text :
       {R"({"name": "Bob", "parameters": {"age": 3}})",
        R"({"age": 3})",
        R"({"name": "get)",
        R"( {"a": {"name": "get"}} and more)",
        R"(No: {"name": "get", "parameters": {}})",
        "; x"}) {
    EXPECT_EQ(events_of(kLlama, text), std::string("C|") + text + "\n");
  }
  expect_both(kLlama, "<|python_tag|>print(1)", "C|print(1)\n");
  EXPECT_EQ(events_of(kLlama, R"({"name": "get"}; then)"), "CALL|get\nA|{}\nEND|\nC|; then\n");
}

const OutputCase kMistral{.tool_call = "mistral", .reasoning = "mistral"};

TEST(MistralCalls, AreSplit) {
  const std::string expected =
      "C|Hm.\nCALL|get\nA|{\"city\": \"Paris\"}\nEND|\nCALL|b\nA|{}\nEND|\n";
  expect_both(
      kMistral,
      R"(Hm. [TOOL_CALLS] [{"name": "get", "arguments": {"city": "Paris"}}, {"name": "b", "arguments": {}}])",
      expected
  );
  expect_both(
      kMistral, R"(Hm. [TOOL_CALLS]get[ARGS]{"city": "Paris"}[TOOL_CALLS]b[ARGS]{})", expected
  );
  expect_both(kMistral, R"(Hm.[TOOL_CALLS]get{"city": "Paris"}[TOOL_CALLS]b{})", expected);
  expect_both(
      kMistral,
      R"([TOOL_CALLS]get[CALL_ID]abc123def[ARGS]{"x": "[TOOL_CALLS"} bye)",
      "CALL|abc123def|get\nA|{\"x\": \"[TOOL_CALLS\"}\nEND|\nC|bye\n"
  );
  expect_both(
      kMistral,
      "[THINK]I think.\n[/THINK]\nSo: [TOOL_CALLS]get[ARGS]{}",
      "R|I think.\nC|So:\nCALL|get\nA|{}\nEND|\n"
  );
}

TEST(MistralCalls, WhatIsNoCallIsContent) {
  for (const char* text :
       {"[TOOL_CALLS]",
        "[TOOL_CALLS]get",
        "[TOOL_CALLS]two words",
        "[TOOL_CALLS][",
        "[TOOL_CALLS][]",
        "[TOOL_CALLS][1, 2]",
        "[TOOL_CALLS][{\"arguments\": {}}]",
        "[TOOL_CALLS]get[ARGS]5",
        "[ARGS] and [CALL_ID]",
        "a [TOOL"}) {
    EXPECT_EQ(events_of(kMistral, text), std::string("C|") + text + "\n");
  }
}

const OutputCase kDeepSeek{.tool_call = "deepseek_v3", .reasoning = "deepseek_v3"};

TEST(DeepSeekCalls, OfBothGenerationsAreSplit) {
  const std::string expected =
      "C|Let me see.\nCALL|get\nA|{\"city\": \"Paris\"}\nEND|\nCALL|b\nA|{}\nEND|\n";
  expect_both(
      kDeepSeek,
      "Let me "
      "see.\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n"
      "{\"city\": "
      "\"Paris\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>b\n"
      "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
      expected
  );
  expect_both(
      kDeepSeek,
      "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"city\": \"Paris\"}"
      "<｜tool▁call▁end｜><｜tool▁call▁begin｜>b<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
      "<｜tool▁calls▁end｜>",
      expected
  );
}

TEST(DeepSeekCalls, WhatIsNoCallIsContent) {
  for (const char* text :
       {"<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get",
        "<｜tool▁call▁begin｜>get<｜tool▁sep｜>nothing<｜tool▁call▁end｜>",
        "<｜tool▁call▁end｜>",
        "x <｜tool"}) {
    EXPECT_EQ(events_of(kDeepSeek, text), std::string("C|") + text + "\n");
  }
}

TEST(DeepSeekCalls, MarkupInStringsIsText) {
  EXPECT_EQ(
      events_of(
          kDeepSeek,
          "<｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"x\": "
          "\"<｜tool▁call▁end｜>\"}<｜tool▁call▁end｜>"
      ),
      "CALL|get\nA|{\"x\": \"<｜tool▁call▁end｜>\"}\nEND|\n"
  );
}

const OutputCase kXml{.tool_call = "qwen3_coder"};

TEST(XmlCalls, AreSplit) {
  expect_both(
      kXml,
      "Sure.\n<tool_call>\n<function=get>\n<parameter=city>\nNew \"York\"\n</parameter>\n"
      "<parameter=days>\n3\n</parameter>\n<parameter=deep>\n{\"a\": [1]}\n</parameter>\n"
      "</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
      "C|Sure.\nCALL|get\nA|{\"city\": \"New \\\"York\\\"\", \"days\": 3, \"deep\": {\"a\": [1]}}\n"
      "END|\nCALL|now\nA|{}\nEND|\n"
  );
}

TEST(XmlCalls, AParameterKeepsMarkupInIt) {  // FR-B3
  EXPECT_EQ(
      events_of(
          kXml,
          "<tool_call>\n<function=bash>\n<parameter=command>\nprintf '%s' '<parameter=x>\n1\n"
          "</parameter>'\n</parameter>\n</function>\n</tool_call>"
      ),
      "CALL|bash\nA|{\"command\": \"printf '%s' '<parameter=x>\\n1\\n</parameter>'\"}\nEND|\n"
  );
  EXPECT_EQ(
      events_of(
          kXml,
          "<tool_call>\n<function=bash>\n<parameter=command>\ncat <<E\n<parameter=x>\n1\n"
          "</parameter>\n</function>\nE\n</parameter>\n</function>\n</tool_call>"
      ),
      "CALL|bash\nA|{\"command\": \"cat "
      "<<E\\n<parameter=x>\\n1\\n</parameter>\\n</function>\\nE\"}\n"
      "END|\n"
  );
  EXPECT_EQ(
      events_of(
          kXml,
          "<tool_call><function=bash><parameter=command>grep '<parameter=' f</parameter>"
          "</function></tool_call>"
      ),
      "CALL|bash\nA|{\"command\": \"grep '<parameter=' f\"}\nEND|\n"
  );
}

TEST(XmlCalls, WhatIsNoCallIsContentAndACutIsVisible) {
  for (const char* text :
       {"<tool_call>", "<tool_call>\n<func", "<function=", "<function=a b>", "</tool_call>"}) {
    EXPECT_EQ(events_of(kXml, text), std::string("C|") + text + "\n");
  }
  EXPECT_EQ(
      events_of(kXml, "<tool_call>\n<function=bash>\n<parameter=command>\nls -"),
      "CALL|bash\nA|{\"command\": \"ls -\nEND|\n"
  );
  EXPECT_EQ(
      events_of(kXml, "<tool_call>\n<function=get>\n<parameter=days>\nsoon\n</parameter>\n"),
      "CALL|get\nA|{\"days\": \"soon\"\nEND|\n"
  );
}

const OutputCase kHarmony{.tool_call = "openai", .reasoning = "openai_gptoss"};

TEST(Harmony, IsSplit) {
  expect_both(
      kHarmony,
      "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.get <|constrain|>json<|message|>{\"city\":\"Paris\"}<|call|>",
      "R|Need weather.\nCALL|get\nA|{\"city\":\"Paris\"}\nEND|\n"
  );
  expect_both(
      kHarmony,
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi <b>!"
      "<|return|>",
      "R|Hm.\nC|Hi <b>!\n"
  );
  expect_both(
      kHarmony,
      " to=functions.get<|channel|>commentary<|constrain|>json<|message|>{}<|end|><|start|>"
      "assistant"
      "<|channel|>commentary<|message|>Then more.",
      "CALL|get\nA|{}\nEND|\nC|Then more.\n"
  );
  expect_both(kHarmony, "Just text", "C|Just text\n");
  expect_both(kHarmony, " to", "C| to\n");
  expect_both(kHarmony, "<|channel|>analysis<|message|>cut", "R|cut\n");
  OutputCase no_tools = kHarmony;
  no_tools.with_tools = false;
  expect_both(no_tools, "<|channel|>commentary to=functions.f<|message|>{}<|call|>", "C|{}\n");
}

TEST(Reasoning, IsSplit) {
  const OutputCase qwen{.tool_call = "hermes", .reasoning = "qwen3"};
  expect_both(
      qwen,
      "<think>\nI <b>think.\n</think>\n\nHello<tool_call>{\"name\":\"f\"}</tool_call>",
      "R|I <b>think.\nC|Hello\nCALL|f\nA|{}\nEND|\n"
  );
  expect_both(qwen, "<think>\n\n</think>\n\nHello", "C|Hello\n");
  EXPECT_EQ(events_of(qwen, " Hello <think>x</think>"), "C| Hello <think>x</think>\n");
  EXPECT_EQ(events_of(qwen, "<think>a <tool_call> b"), "R|a <tool_call> b\n");
  EXPECT_EQ(events_of(qwen, "<thi"), "C|<thi\n");
}

TEST(Reasoning, ThePromptOpensOrClosesIt) {  // FR-B4
  const OutputCase open{.reasoning = "qwen3", .prompt = "<|im_start|>assistant\n<think>\n"};
  EXPECT_EQ(events_of(open, "so long \n"), "R|so long \n\n");
  expect_both(open, "a\n</think>\n\n b", "R|a\nC|b\n");
  const OutputCase r1{.reasoning = "deepseek_r1"};
  EXPECT_EQ(events_of(r1, "thought</think>text"), "R|thought\nC|text\n");
  const OutputCase off{.reasoning = "deepseek_r1", .prompt = "<think>\n\n</think>\n\n"};
  EXPECT_EQ(events_of(off, "text"), "C|text\n");
}

TEST(OutputFormat, IsChosenByTheTemplate) {
  const auto chosen = [](std::string_view source) {
    auto format = OutputFormat::make({}, source, [](std::string_view) { return false; });
    return format ? (*format)->tool_call() + " " + (*format)->reasoning() : format.error().message;
  };
  EXPECT_EQ(chosen(""), "none none");
  EXPECT_EQ(chosen("<tool_call> {\"name\": </think>"), "hermes qwen3");
  EXPECT_EQ(chosen("<tool_call><function=x><parameter=y>"), "qwen3_coder none");
  EXPECT_EQ(chosen("<|start_header_id|> {\"name\": f, \"parameters\": d}"), "llama3_json none");
  EXPECT_EQ(chosen("[TOOL_CALLS] [THINK]"), "mistral mistral");
  EXPECT_EQ(chosen("<|channel|>analysis<|message|>"), "openai openai_gptoss");
  EXPECT_EQ(
      chosen("<｜Assistant｜></think><｜tool▁call▁begin｜>```json"), "deepseek_v3 deepseek_v3"
  );
  EXPECT_EQ(chosen("<tool_call>x<arg_key>"), "none none");
}

TEST(OutputFormat, RefusesUnknownNamesWithTheList) {
  const auto tools = check_parser_choice({"hermse", "auto"});
  ASSERT_FALSE(tools);
  EXPECT_EQ(tools.error().code, Code::kInvalidArgument);
  EXPECT_NE(tools.error().message.find("--tool-call-parser"), std::string::npos);
  EXPECT_NE(tools.error().message.find("hermes, llama3_json"), std::string::npos);
  const auto reasoning = check_parser_choice({"auto", "x"});
  ASSERT_FALSE(reasoning);
  EXPECT_NE(reasoning.error().message.find("--reasoning-parser"), std::string::npos);
}

TEST(OutputParser, TakesTimeLinearInTheText) {
  // Beginnings of markers, over and over: a quadratic machine would need minutes.
  for (const char* part : {"<tool_call>", "<tool_call>{\"name\":", "</parameter>\n", "<", "\n"}) {
    for (const char* parser : {"hermes", "qwen3_coder", "mistral", "deepseek_v3", "llama3_json"}) {
      std::string text = "<tool_call><function=f><parameter=p>";
      while (text.size() < 300000) text += part;
      const OutputCase c{.tool_call = parser, .reasoning = "qwen3"};
      EXPECT_FALSE(parse_bytes(c, text).empty());
    }
  }
}

}  // namespace
}  // namespace artery::codec
