#include "codec/deepseek/output_processor.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codec/api/generators.h"

namespace artery::codec::deepseek {
namespace {

using api::Faithfulness;

// Deltas as text: r(...) reasoning, c(...) content, call(...), a(...) arguments, end.
class Deltas : public api::OutputSink {
 public:
  void start(const api::PromptUsage&, const std::optional<std::string>&) override {}
  void reasoning(std::string_view text, std::span<const api::TokenLogprob> list) override {
    put("r", text, list);
  }
  void content(std::string_view text, std::span<const api::TokenLogprob> list) override {
    put("c", text, list);
  }
  void begin_call(std::string_view name, std::string_view) override { put("call", name, {}); }
  void arguments(std::string_view text) override {
    joined += text;
    put("a", text, {});
  }
  void finish(const api::AnswerFinish& finish) override {
    usage = finish.usage;
    reason = finish.reason;
    said += "end";
  }

  std::string said, joined;
  api::AnswerUsage usage;
  api::FinishReason reason = api::FinishReason::kStop;

 private:
  void put(std::string_view what, std::string_view given, std::span<const api::TokenLogprob> list) {
    said += what;
    said += '(';
    said += given;
    for (const api::TokenLogprob& entry : list) said += '|' + entry.bytes;
    said += ") ";
  }
};

ProcessorOptions options_of(Faithfulness faithfulness) {
  ProcessorOptions options;
  options.faithfulness = faithfulness;
  return options;
}

std::string run(
    const std::vector<std::string>& pieces,
    ProcessorOptions options,
    std::string* arguments = nullptr
) {
  OutputProcessor processor(std::move(options), nullptr);
  Deltas deltas;
  for (const std::string& piece : pieces) {
    EXPECT_TRUE(processor.text(piece, 1, deltas));
    if (processor.finished()) break;
    deltas.said += "/ ";
  }
  EXPECT_TRUE(processor.end(deltas));
  if (arguments != nullptr) *arguments = deltas.joined;
  return deltas.said;
}

std::string call_of(const std::string& parameters) {
  return "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n" + parameters +
         "\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
}

std::string arguments_of(const std::string& output, Faithfulness faithfulness) {
  std::string arguments;
  run({output}, options_of(faithfulness), &arguments);
  return arguments;
}

TEST(OutputProcessor, WithholdsWholePieces) {
  EXPECT_EQ(
      run({"ab<", "｜DS", "X y", "z"}, options_of(Faithfulness::kRecipe)),
      "/ / c(ab<) c(｜DS) c(X y) / c(z) / end"
  );
  EXPECT_EQ(
      run({"", "", "hi", ""}, options_of(Faithfulness::kRecipe)), "/ / c() c() c(hi) / c() / end"
  );
  // `"` waits, as all that follows it in its piece may become a tag.
  EXPECT_EQ(
      run({"<｜DSML｜ calls>invoke name=\"f\"><｜DSML｜ parameter name=\"a\" string=\"true\"></",
           "b"},
          options_of(Faithfulness::kRecipe)),
      "call(f) a({) a(\"a\") a(: ) / a(\") a(</) a(b) / end"
  );
}

TEST(OutputProcessor, ACopyIsASnapshot) {
  OutputProcessor processor(options_of(Faithfulness::kRecipe), nullptr);
  Deltas before;
  ASSERT_TRUE(processor.text("text\n\n<｜DSML｜ calls>invoke name=\"f\"><｜DSM", 1, before));
  OutputProcessor copy = processor;
  Deltas first, second;
  for (auto [one, sink] : {std::pair{&processor, &first}, {&copy, &second}}) {
    ASSERT_TRUE(one->text("L｜ parameter name=\"a\" string=\"false\">1</｜DSML｜>", 1, *sink));
    ASSERT_TRUE(one->finish(BackendFinish::kStop, *sink));
  }
  EXPECT_EQ(first.said, "a({) a(\"a\") a(: ) a(1) end");
  EXPECT_EQ(first.said, second.said);
  EXPECT_EQ(first.reason, api::FinishReason::kToolCalls);
  EXPECT_FALSE(processor.text("x", 1, first));
}

TEST(OutputProcessor, CharactersMayBeCutBetweenTexts) {
  for (const Faithfulness faithfulness : {Faithfulness::kRecipe, Faithfulness::kSafe}) {
    EXPECT_EQ(
        run({"a\xF0", "\x9F\x98", "\x80z"}, options_of(faithfulness)), "c(a) / / c(😀z) / end"
    );
  }
}

// Each would take minutes if time grew with the square of the length.
TEST(OutputProcessor, NastyTextsTakeLinearTime) {
  ProcessorOptions options = options_of(Faithfulness::kSafe);
  options.parsing.stops = {std::string(100'000, 'a') + "b"};
  const std::vector<std::string> nasty = {
      std::string(400'000, '\n'),
      std::string(400'000, 'a'),
      std::string(400'000, '<'),
      call_of("<｜DSML｜ parameter name=\"" + std::string(400'000, '>') + "<｜DSML｜")
  };
  for (const std::string& text : nasty) {
    OutputProcessor processor(options, nullptr);
    Deltas deltas;
    for (const char c : text) ASSERT_TRUE(processor.text({&c, 1}, 0, deltas));
    ASSERT_TRUE(processor.end(deltas));
    deltas.said.clear();
    OutputProcessor at_once(options, nullptr);
    ASSERT_TRUE(at_once.text(text, 0, deltas));
    ASSERT_TRUE(at_once.end(deltas));
  }
}

// ---- the mends of the safe setting, each beside what recipe does

TEST(SafeOutput, NamesOfParametersAreJson) {
  const std::string named =
      call_of("<｜DSML｜ parameter name=\"my\\key\" string=\"true\">x</｜DSML｜ parameter>");
  EXPECT_EQ(arguments_of(named, Faithfulness::kRecipe), "{\"my\\key\": \"x\"}");
  EXPECT_EQ(arguments_of(named, Faithfulness::kSafe), "{\"my\\\\key\": \"x\"}");
  for (const std::string name : {"'a'", "a", "\"a\""}) {
    const std::string output =
        call_of("<｜DSML｜ parameter name=" + name + " string=\"true\">x</｜DSML｜ parameter>");
    EXPECT_EQ(arguments_of(output, Faithfulness::kRecipe), "{" + name + ": \"x\"}");
    EXPECT_EQ(arguments_of(output, Faithfulness::kSafe), "{\"a\": \"x\"}");
  }
  const std::string spaced =
      call_of("<｜DSML｜ parameter name=\"my key\" string=\"true\">x</｜DSML｜ parameter>");
  EXPECT_EQ(arguments_of(spaced, Faithfulness::kRecipe), "{\"my: \"x\"}");
  EXPECT_EQ(arguments_of(spaced, Faithfulness::kSafe), "{\"my key\": \"x\"}");
}

TEST(SafeOutput, OneBadAttributeLosesNoCall) {
  for (const std::string head :
       {"name=\"a\" string=\"maybe\"",
        "name=\"a\" string=\"True\"",
        "string=\"true\" name=\"a\"",
        "name=\"a\" string=\"true\" ",
        "name=\"a\"\nstring=\"true\"",
        "name=\"a\"",
        "name='a'"}) {
    const std::string output = call_of("<｜DSML｜ parameter " + head + ">x</｜DSML｜ parameter>");
    EXPECT_NE(arguments_of(output, Faithfulness::kRecipe), "{\"a\": \"x\"}") << head;
    EXPECT_EQ(arguments_of(output, Faithfulness::kSafe), "{\"a\": \"x\"}") << head;
  }
  for (const std::string head : {" invoke  name=\"f\"", " invoke name='f'", "invoke id=1 name=f"}) {
    const std::string output = "<｜DSML｜ calls><｜DSML｜" + head + "></｜DSML｜ invoke>";
    EXPECT_EQ(run({output}, options_of(Faithfulness::kRecipe)), "/ end") << head;
    EXPECT_EQ(run({output}, options_of(Faithfulness::kSafe)), "call(f) a({}) / end") << head;
  }
}

TEST(SafeOutput, WhatIsNoJsonIsText) {
  const std::string output = call_of(
      "<｜DSML｜ parameter name=\"a\" string=\"false\">Paris \"x\"</｜DSML｜ parameter>\n"
      "<｜DSML｜ parameter name=\"b\" string=\"false\">[1, {\"c\": 2.50}]</｜DSML｜ parameter>"
  );
  EXPECT_EQ(
      arguments_of(output, Faithfulness::kRecipe), "{\"a\": Paris \"x\", \"b\": [1, {\"c\": 2.50}]}"
  );
  EXPECT_EQ(
      arguments_of(output, Faithfulness::kSafe),
      "{\"a\": \"Paris \\\"x\\\"\", \"b\": [1, {\"c\": 2.50}]}"
  );
}

TEST(SafeOutput, TagsInProseAreProse) {
  const std::string prose = "The tag <｜DSML｜ opens <｜DSML｜, not </think>.";
  EXPECT_EQ(run({prose}, options_of(Faithfulness::kRecipe)), "c(The tag ) / end");
  EXPECT_EQ(
      run({prose}, options_of(Faithfulness::kSafe)),
      "c(The tag <｜DSML｜ opens <｜DSML｜, not ) c(.) / end"
  );
  // What is a tag stays one: of either spelling, without its end before a tag, and a lone call.
  for (const std::string block :
       {"<｜DSML｜ calls>",
        "<｜DSML｜tool_calls>",
        "<｜DSML｜ function_calls>",
        "<｜DSML｜ calls\n<｜DSML｜",
        ""}) {
    const std::string output = "x\n" + block + "<｜DSML｜ invoke name=\"f\"></｜DSML｜ invoke>";
    EXPECT_EQ(run({output}, options_of(Faithfulness::kSafe)), "c(x) call(f) a({}) / end") << block;
  }
  // Cut off in the tag: none of it shows.
  EXPECT_EQ(run({"x\n<｜DSML｜ to"}, options_of(Faithfulness::kSafe)), "/ c(x) end");
}

TEST(SafeOutput, OneBlankForTextAroundJson) {
  ProcessorOptions recipe = options_of(Faithfulness::kRecipe);
  recipe.parsing.json_output = true;
  ProcessorOptions safe = options_of(Faithfulness::kSafe);
  safe.parsing.json_output = true;
  const std::vector<std::string> pieces = {
      "Sure: ", "here ", "```json\n", "{}", "\n```", "ok", "!"
  };
  EXPECT_EQ(run(pieces, recipe), "c( ) / c( ) / / c({}) / / c( ) / c( ) / end");
  EXPECT_EQ(run(pieces, safe), "c( ) / / / c({}) / / c( ) / / end");
}

// Ids are places in this list.
class FewTokens : public Tokenizer {
 public:
  FewTokens() {
    vocab_.tokens = {"</think>", "Hm", "a", "b", "\xF0\x9F", "\x98\x80", "\n", "{"};
    vocab_.kinds.assign(vocab_.tokens.size(), TokenKind::kNormal);
    vocab_.kinds[0] = TokenKind::kControl;
  }
  const VocabData& vocab() const override { return vocab_; }
  // One a byte, and the texts asked for are kept.
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    EXPECT_TRUE(options.parse_special);
    encoded += text;
    return std::vector<TokenId>(text.size(), 2);
  }
  std::string_view piece(TokenId id) const override {
    return id < 0 || id > 7 ? std::string_view() : vocab_.tokens[static_cast<std::size_t>(id)];
  }
  std::string decode(std::span<const TokenId>, bool) const override { return {}; }
  mutable std::string encoded;

 private:
  VocabData vocab_;
};

std::string run_tokens(const std::vector<TokenId>& ids, ProcessorOptions options, Deltas& deltas) {
  const FewTokens tokenizer;
  OutputProcessor processor(std::move(options), &tokenizer);
  std::vector<IdLogprob> logprobs(ids.size());
  EXPECT_TRUE(processor.tokens(ids, logprobs, deltas));
  EXPECT_TRUE(processor.finish(BackendFinish::kStop, deltas));
  return deltas.said;
}

TEST(OutputProcessor, ReasoningIsCountedByTheTokenizer) {
  const FewTokens tokenizer;
  ProcessorOptions options = options_of(Faithfulness::kRecipe);
  options.parsing.stage = api::InitialStage::kReasoningStart;
  OutputProcessor processor(options, &tokenizer);
  Deltas deltas;
  const std::vector<TokenId> ids = {6, 1, 2, 0, 3};
  ASSERT_TRUE(processor.tokens(ids, {}, deltas));
  ASSERT_TRUE(processor.finish(BackendFinish::kStop, deltas));
  EXPECT_EQ(deltas.said, "r(Hma) c(b) end");
  EXPECT_EQ(tokenizer.encoded, "Hma");
  EXPECT_EQ(deltas.usage.reasoning_tokens, 3);
  EXPECT_EQ(deltas.usage.completion_tokens, 5);
  const std::vector<IdLogprob> two(2);
  OutputProcessor other(options, &tokenizer);
  EXPECT_FALSE(other.tokens(ids, two, deltas));
  EXPECT_EQ(other.text("x", 1, deltas).error().message, "stream processor is closed");
}

TEST(SafeOutput, AHalfCharacterLosesNoText) {
  Deltas recipe, safe;
  EXPECT_EQ(run_tokens({2, 3, 4}, options_of(Faithfulness::kRecipe), recipe), "end");
  EXPECT_EQ(recipe.usage.completion_tokens, 0);
  EXPECT_EQ(
      run_tokens({2, 3, 4}, options_of(Faithfulness::kSafe), safe),
      "c(ab|a|b) c(\uFFFD|\xF0\x9F) end"
  );
  EXPECT_EQ(safe.usage.completion_tokens, 3);
}

TEST(SafeOutput, LogProbabilitiesComeOnce) {
  ProcessorOptions recipe = options_of(Faithfulness::kRecipe);
  recipe.parsing.json_output = true;
  ProcessorOptions safe = options_of(Faithfulness::kSafe);
  safe.parsing.json_output = true;
  Deltas first, second;
  EXPECT_EQ(run_tokens({7, 2, 3}, recipe, first), "c({|{|a|b) c(ab|{|a|b) end");
  EXPECT_EQ(run_tokens({7, 2, 3}, safe, second), "c({|{) c(ab|a|b) end");
}

std::vector<api::ApiEvent> chat(bool include_usage, Faithfulness faithfulness) {
  api::ChatAnswer answer;
  answer.include_usage = include_usage;
  answer.faithfulness = faithfulness;
  const auto events = api::chat_events(answer);
  OutputProcessor processor(options_of(faithfulness), nullptr);
  EXPECT_TRUE(processor.text("hi", 1, *events));
  EXPECT_TRUE(processor.finish(BackendFinish::kStop, *events));
  return events->take();
}

TEST(SafeOutput, UsageComesAsOpenAiHasIt) {
  EXPECT_NE(chat(false, Faithfulness::kRecipe).back().data.find("\"usage\":{"), std::string::npos);
  const auto without = chat(false, Faithfulness::kSafe);
  for (const api::ApiEvent& event : without) {
    EXPECT_EQ(event.data.find("usage"), std::string::npos) << event.data;
  }
  const auto with = chat(true, Faithfulness::kSafe);
  ASSERT_EQ(with.size(), without.size() + 1);
  EXPECT_NE(with.back().data.find("\"choices\":[],\"usage\":{"), std::string::npos);
  EXPECT_NE(
      with[with.size() - 2].data.find("\"finish_reason\":\"stop\"}],\"usage\":null"),
      std::string::npos
  );
}

}  // namespace
}  // namespace artery::codec::deepseek
