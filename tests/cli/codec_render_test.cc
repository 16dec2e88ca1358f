// `artery codec render` as people and scripts run it: the record's lines, one request as text, bad
// lines.

#include <gtest/gtest.h>

#include <sstream>

#include "cli/request_case.h"
#include "codec/api/json_style.h"
#include "program.h"
#include "record_files.h"

namespace artery::testing_cli {
namespace {

using codec::api::JsonTree;

constexpr int kLineDepth = 256;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// tests/codec/recipe_requests_test.cc compares what the code behind the verb writes with the
// record; here every line of the record goes through the verb.
TEST(CodecRender, WritesALineForEachOfTheRecord) {
  const auto record = codec::read_zst_lines(shared_path("golden/codec/requests.jsonl.zst"));
  if (record.empty()) GTEST_SKIP() << "no ../shared/golden/codec";
  const codec::Tokenizer* const tokenizer = codec::deepseek_tokenizer();
  if (tokenizer == nullptr) GTEST_SKIP() << codec::kNoDeepseekTokenizer;
  const TemporaryFolder folder;
  const std::string file = folder.write("tokenizer.json", codec::deepseek_tokenizer_json());
  std::string input;
  for (const std::string& line : record) input += line + '\n';
  const std::string requests = folder.write("requests.jsonl", input);
  const Outcome outcome = run_artery({"codec", "render", "--tokenizer", file, requests});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto answers = lines_of(outcome.out);
  ASSERT_EQ(answers.size(), record.size());
  std::size_t refused = 0;
  for (std::size_t i = 0; i < record.size(); ++i) {
    const auto line = JsonTree::parse(record[i], kLineDepth);
    if (!line) {  // its body holds what no line may: lone surrogates and the like
      ++refused;
      EXPECT_TRUE(answers[i].starts_with(R"({"id":null,"error":)")) << answers[i];
      continue;
    }
    const auto request = cli::read_request_case(line->root(), {});
    ASSERT_TRUE(request) << request.error().message;
    const std::string wanted = "{\"id\":" + codec::api::to_json(*line->root().find("id")) + ',' +
                               cli::run_request_case(*request, tokenizer) + '}';
    ASSERT_EQ(answers[i], wanted);
  }
  EXPECT_EQ(refused, 4U);
}

const char* const kRequest =
    R"({"model":"any","messages":[{"role":"user","content":"Say <think>."}]})";

TEST(CodecRender, ShowsAPromptToPeople) {
  const Outcome marked = run_artery(
      {"codec", "render", "--text", "--show", "marked", "--encoding", "deepseek-v4.1"}, kRequest
  );
  EXPECT_EQ(marked.exit_code, 0) << marked.err;
  EXPECT_NE(
      marked.out.find("⟦<｜User｜>⟧Say <think>.⟦<｜Assistant｜>⟧⟦<think>⟧\n"), std::string::npos
  ) << marked.out;
  const Outcome plain =
      run_artery({"codec", "render", "--text", "--encoding", "deepseek-v4"}, kRequest);
  EXPECT_EQ(plain.out.find("⟦"), std::string::npos);
  EXPECT_NE(plain.out.find("Absolute maximum"), std::string::npos) << plain.out;
}

TEST(CodecRender, AModelsNameDecidesUnlessToldOtherwise) {
  const Outcome unknown = run_artery({"codec", "render", "--text"}, kRequest);
  EXPECT_NE(unknown.exit_code, 0);
  EXPECT_NE(unknown.err.find("but you passed any"), std::string::npos) << unknown.err;
  const Outcome serving = run_artery({"codec", "render", "--text", "--rules", "serving"}, kRequest);
  EXPECT_EQ(serving.exit_code, 0) << serving.err;
}

TEST(CodecRender, BadLinesAreAnsweredAndTheRestGoesOn) {
  const std::string good = std::string(R"({"id":7,"api":"chat","body":)") + kRequest + "}\n";
  const Outcome outcome = run_artery(
      {"codec", "render", "--encoding", "deepseek-v4"},
      "x\n[]\n{\"id\":1}\n\n{\"id\":2,\"api\":\"chat\",\"body\":{},\"options\":{\"x\":1}}\n" + good
  );
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto answers = lines_of(outcome.out);
  ASSERT_EQ(answers.size(), 5U);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NE(answers[i].find(R"("error":{"message":)"), std::string::npos) << answers[i];
  EXPECT_NE(answers[3].find("options.x"), std::string::npos) << answers[3];
  EXPECT_TRUE(answers[4].starts_with(R"({"id":7,"result":{"model_version":"v4")")) << answers[4];
}

}  // namespace
}  // namespace artery::testing_cli
