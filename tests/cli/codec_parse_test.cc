// `artery codec parse` as people and scripts run it: the record's lines, plain text, bad lines.

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "codec/api/json_style.h"
#include "codec/api/json_tree.h"
#include "program.h"
#include "record_files.h"

namespace artery::testing_cli {
namespace {

using codec::api::Json;
using codec::api::JsonTree;

std::string spelled(const Json& value) {
  return value.is_string() ? std::string(value.text()) : codec::api::to_json(value);
}

// A line of the record as the verb writes it.
std::string wanted_line(const Json& line) {
  std::string out = "{\"id\":" + codec::api::to_json(*line.find("id"));
  for (const char* const key : {"events", "finished_after", "done", "response", "error"}) {
    const Json& value = *line.find(key);
    out += std::string(",\"") + key + "\":";
    out += value.is_string() && std::string(key) == "response" ? spelled(value)
                                                               : codec::api::to_json(value);
  }
  return out + "}";
}

TEST(CodecParse, EveryLineOfTheRecord) {
  const auto record = codec::read_zst_lines(shared_path("golden/codec/outputs.jsonl.zst"));
  if (record.empty()) GTEST_SKIP() << "no ../shared/golden/codec";
  if (codec::deepseek_tokenizer() == nullptr) GTEST_SKIP() << codec::kNoDeepseekTokenizer;
  const TemporaryFolder folder;
  const std::string file = folder.write("tokenizer.json", codec::deepseek_tokenizer_json());
  std::string input;
  for (const std::string& line : record) input += line + '\n';
  const Outcome outcome =
      run_artery({"codec", "parse", "--tokenizer", file, folder.write("outputs.jsonl", input)});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream answers(outcome.out);
  std::string answer;
  for (const std::string& line : record) {
    ASSERT_TRUE(std::getline(answers, answer));
    const auto tree = JsonTree::parse(line);
    ASSERT_TRUE(tree) << tree.error();
    ASSERT_EQ(answer, wanted_line(tree->root()));
  }
}

const char* const kOutput =
    "Hm.</think>\n\nOk\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
    "<｜DSML｜ parameter name='a' string=\"True\">x</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"
    "</｜DSML｜ calls>";

TEST(CodecParse, ShowsDeltasToPeople) {
  const Outcome recipe = run_artery({"codec", "parse", "--text", "--thinking"}, kOutput);
  EXPECT_EQ(recipe.exit_code, 0) << recipe.err;
  EXPECT_EQ(
      recipe.out,
      "reasoning  \"Hm.\"\ncontent    \"Ok\"\ncall       \"f\"\narguments  \"{\"\n"
      "arguments  \"'a'\"\narguments  \": \"\nfinish     tool_calls\n"
  );
  const Outcome safe =
      run_artery({"codec", "parse", "--text", "--thinking", "--mode", "safe"}, kOutput);
  EXPECT_NE(safe.out.find("arguments  \"\\\"a\\\"\"\n"), std::string::npos) << safe.out;
  EXPECT_NE(safe.out.find("arguments  \"x\"\n"), std::string::npos) << safe.out;
  const Outcome cut = run_artery({"codec", "parse", "--text", "--chunk", "3"}, "abcdefg");
  EXPECT_EQ(cut.out, "content    \"abc\"\ncontent    \"def\"\ncontent    \"g\"\nfinish     stop\n");
}

TEST(CodecParse, ShowsTheStreamOfAnApi) {
  const Outcome outcome = run_artery({"codec", "parse", "--text", "--api", "messages"}, "hi");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("event: message_start\ndata: {")) << outcome.out;
  EXPECT_TRUE(outcome.out.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
}

TEST(CodecParse, ABadLineIsAnAnswer) {
  const Outcome outcome = run_artery(
      {"codec", "parse"},
      "x\n{\"id\":2,\"chunks\":[[\"finish\",\"maybe\"]]}\n{\"id\":3,\"chunks\":[\"ok\"]}\n"
  );
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_TRUE(line.starts_with("{\"id\":null,\"error\":{\"message\":\"not a JSON line")) << line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_NE(line.find("finish must be stop, length or content_filter"), std::string::npos) << line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_TRUE(line.starts_with("{\"id\":3,\"events\":[[0,null,")) << line;
}

}  // namespace
}  // namespace artery::testing_cli
