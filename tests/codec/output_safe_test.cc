// The safe setting: what comes out does not depend on how the output was cut, and nothing changes
// but for the published mends (docs/codec.md).

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cli/output_case.h"
#include "codec/api/json_tree.h"
#include "golden_lines.h"
#include "record_tokenizer.h"

namespace artery::codec {
namespace {

using api::Faithfulness;
using api::Json;
using api::JsonTree;

const std::string kRecord = std::string(ARTERY_SOURCE_DIR) + "/../shared/golden/codec/";

// Everything that was said, joined.
struct Said : api::OutputSink {
  void start(const api::PromptUsage&, const std::optional<std::string>&) override {}
  void reasoning(std::string_view text, std::span<const api::TokenLogprob> list) override {
    thoughts += text;
    note(list);
  }
  void content(std::string_view text, std::span<const api::TokenLogprob> list) override {
    answer += text;
    note(list);
  }
  void begin_call(std::string_view name, std::string_view) override {
    calls += "\n" + std::string(name) + "(";
    arguments_text.emplace_back();
  }
  void arguments(std::string_view text) override {
    calls += text;
    arguments_text.back() += text;
  }
  void finish(const api::AnswerFinish& finish) override {
    end = std::to_string(static_cast<int>(finish.reason)) + finish.stop_sequence;
    // Of the chunk that a stop sequence ends all tokens count, wherever it ends.
    if (finish.reason != api::FinishReason::kStopSequence) {
      tokens = finish.usage.completion_tokens;
    }
  }
  void note(std::span<const api::TokenLogprob> list) {
    for (const api::TokenLogprob& entry : list) logprobs += entry.bytes + '|';
  }
  std::string all() const {
    return "thoughts " + thoughts + "\nanswer " + answer + "\ncalls " + calls + "\nend " + end +
           "\nlogprobs " + logprobs + "\ntokens " + std::to_string(tokens);
  }

  std::string thoughts, answer, calls, end, logprobs;
  std::vector<std::string> arguments_text;
  std::int64_t tokens = 0;
};

Said say(const cli::OutputCase& output, const Tokenizer* tokenizer, Faithfulness faithfulness) {
  Said said;
  deepseek::OutputProcessor processor(
      {output.parsing, output.specials, faithfulness}, output.wants_tokenizer ? tokenizer : nullptr
  );
  for (const cli::OutputChunk& chunk : output.chunks) {
    if (!cli::push_chunk(processor, chunk, said)) break;
  }
  (void)processor.end(said);
  return said;
}

// The same chunks cut and joined elsewhere: texts at any byte, tokens between ids.
cli::OutputCase recut(const cli::OutputCase& output, std::mt19937& random) {
  cli::OutputCase cut = output;
  cut.chunks.clear();
  const std::size_t most = std::size_t{1} << random() % 7;
  for (const cli::OutputChunk& chunk : output.chunks) {
    using Kind = cli::OutputChunk::Kind;
    const bool joins = !cut.chunks.empty() && cut.chunks.back().kind == chunk.kind &&
                       random() % 2 == 0 &&
                       cut.chunks.back().logprobs.has_value() == chunk.logprobs.has_value();
    if (chunk.kind == Kind::kText) {
      for (std::size_t at = 0; at < chunk.text.size();) {
        const std::size_t size = 1 + random() % most;
        if (at > 0 || !joins) {
          cut.chunks.emplace_back();
          cut.chunks.back().token_count = at == 0 ? chunk.token_count : 0;
        } else {
          cut.chunks.back().token_count += chunk.token_count;
        }
        cut.chunks.back().text += chunk.text.substr(at, size);
        at += size;
      }
    } else if (chunk.kind == Kind::kTokens) {
      for (std::size_t at = 0; at < chunk.ids.size();) {
        const std::size_t end = std::min(chunk.ids.size(), at + 1 + random() % most);
        if (at > 0 || !joins) {
          cut.chunks.emplace_back().kind = Kind::kTokens;
          if (chunk.logprobs) cut.chunks.back().logprobs.emplace();
        }
        cli::OutputChunk& to = cut.chunks.back();
        to.ids.insert(to.ids.end(), &chunk.ids[at], &chunk.ids[at] + (end - at));
        for (std::size_t i = at; chunk.logprobs && i < end; ++i) {
          to.logprobs->push_back((*chunk.logprobs)[i]);
        }
        at = end;
      }
    } else {
      cut.chunks.push_back(chunk);
    }
  }
  return cut;
}

bool is_whole(const cli::OutputCase& output) {
  for (const cli::OutputChunk& chunk : output.chunks) {
    if (chunk.kind == cli::OutputChunk::Kind::kText && chunk.text.empty() &&
        chunk.token_count > 0) {
      return false;  // the recut leaves empty chunks out, and with them their count
    }
    if (chunk.logprobs && chunk.logprobs->size() != chunk.ids.size()) return false;
  }
  return true;
}

TEST(SafeOutput, TheSameForEverySplitOfTheRecord) {
  if (!std::filesystem::exists(kRecord)) GTEST_SKIP() << "no ../shared/golden/codec";
  const auto tokenizer = load_record_tokenizer(kRecord);
  ASSERT_NE(tokenizer, nullptr);
  std::mt19937 random(7);
  int tried = 0, shown = 0;
  for (const std::string& text : read_zst_lines(kRecord + "outputs.jsonl.zst")) {
    const auto tree = JsonTree::parse(text);
    ASSERT_TRUE(tree) << tree.error();
    const Json& line = tree->root();
    if (!line.find("api")->is_text("chat")) continue;  // the generators do not matter here
    const auto output = cli::read_output_case(line);
    ASSERT_TRUE(output) << output.error().message;
    if (!is_whole(*output)) continue;
    const std::string whole = say(*output, tokenizer.get(), Faithfulness::kSafe).all();
    for (int round = 0; round < 6; ++round) {
      ++tried;
      const cli::OutputCase cut = recut(*output, random);
      const std::string again = say(cut, tokenizer.get(), Faithfulness::kSafe).all();
      if (again != whole && ++shown <= 10) {
        ADD_FAILURE() << line.find("id")->text() << "\n--- as recorded\n"
                      << whole << "\n--- cut otherwise\n"
                      << again;
      }
    }
  }
  EXPECT_EQ(shown, 0);
  EXPECT_GT(tried, 5000);
}

// The hand-written outputs of the record of which safe says something else, by mend.
const std::set<std::string> kMended = {
    // names of parameters; attributes
    "calls/v4-name-special",
    "malformed/attr-True",
    "malformed/attr-key-backslash",
    "malformed/attr-key-control",
    "malformed/attr-key-lead-space",
    "malformed/attr-key-newline",
    "malformed/attr-newline",
    "malformed/attr-order",
    "malformed/attr-single-quotes",
    "malformed/attr-string-empty",
    "malformed/attr-unquoted",
    "malformed/attr-value-before-gt",
    "malformed/invoke-newline",
    "malformed/invoke-single-quotes",
    "malformed/invoke-two-spaces",
    "malformed/v4-wrong-attr-string",
    "malformed/wrong-attr-string",
    // a name cut off is given when it is complete
    "truncation/param-name-done-content_filter",
    "truncation/param-name-stop",
    "truncation/param-name=-end",
    "truncation/param-name=-length",
    "truncation/param-name=-stop",
    "truncation/param2-name-stop",
    // values that are no JSON
    "calls/v4-value-raw-broken",
    "calls/v41-value-raw-broken",
    "malformed/empty-param-value-raw",
    // markers in prose
    "malformed/dsml-once",
    "stop/dsml-longer",
    "tokens/mixed-lt-text-dsml-token",
    // one blank around JSON
    "json/fence-crlf",
    "json/fence-json5",
    "json/fence-open-cut",
    "json/fenced-js",
    "json/fenced-upper",
    "json/lone-backticks",
    "json/not-json",
    "json/string-scalar",
    "json/text-around-fence",
    "json/two-fences",
    "logprobs/json",
    "stop/json-fence",
    "stop/json-mode",
    "tokens/json-mode",
    // half a character, tokens without text, at the end
    "logprobs/unknown-id",
    "logprobs/utf8-split-end",
    "tokens/finish-held-length",
    "tokens/half-emoji-end-finish",
    "tokens/half-in-chunk-end",
    "tokens/real-fffd-end-token",
};

TEST(SafeOutput, ChangesNothingButForTheMends) {
  if (!std::filesystem::exists(kRecord)) GTEST_SKIP() << "no ../shared/golden/codec";
  const auto tokenizer = load_record_tokenizer(kRecord);
  ASSERT_NE(tokenizer, nullptr);
  std::set<std::string> changed;
  for (const std::string& text : read_zst_lines(kRecord + "outputs.jsonl.zst")) {
    const auto tree = JsonTree::parse(text);
    ASSERT_TRUE(tree) << tree.error();
    const Json& line = tree->root();
    const std::string id(line.find("id")->text());
    if (!line.find("api")->is_text("chat") || !id.starts_with("h/")) continue;
    const auto output = cli::read_output_case(line);
    ASSERT_TRUE(output) << output.error().message;
    Said recipe = say(*output, tokenizer.get(), Faithfulness::kRecipe);
    Said safe = say(*output, tokenizer.get(), Faithfulness::kSafe);
    recipe.logprobs.clear();  // a mend of their own
    safe.logprobs.clear();
    if (recipe.all() != safe.all()) changed.insert(id.substr(2, id.size() - 2 - 5));
  }
  for (const std::string& id : changed) EXPECT_TRUE(kMended.contains(id)) << id << " changed";
  for (const std::string& id : kMended) EXPECT_TRUE(changed.contains(id)) << id << " did not";
}

}  // namespace
}  // namespace artery::codec
