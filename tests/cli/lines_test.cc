// The JSON Lines verbs on golden vocabularies and templates, and on bad lines.

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <sstream>

#include "program.h"

namespace artery::testing_cli {
namespace {
namespace json = boost::json;

std::vector<json::object> parse_lines(const std::string& text) {
  std::vector<json::object> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out.push_back(json::parse(line).as_object());
  return out;
}

std::vector<json::object> read_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return parse_lines(text.str());
}

class GoldenTokenizer : public testing::TestWithParam<std::pair<const char*, const char*>> {
 protected:
  void SetUp() override {
    const std::string vocab = GetParam().second;
    model_ = vocab.rfind("SmolLM2", 0) == 0 ? model_path(vocab)
                                            : shared_path("models/" + vocab).string();
    cases_ = shared_path("golden/models/tokenizers/" + std::string(GetParam().first) + ".jsonl");
    if (!std::filesystem::exists(cases_)) GTEST_SKIP() << "no " << cases_;
    if (model_.empty() || !std::filesystem::exists(model_)) GTEST_SKIP() << "no model " << vocab;
  }
  std::string model_;
  std::filesystem::path cases_;
};

TEST_P(GoldenTokenizer, TokenizesAllTexts) {
  const std::vector<json::object> cases = read_lines(cases_);
  std::string input;
  for (const json::object& item : cases) {
    input += json::serialize(json::object{{"id", item.at("n")}, {"text", item.at("text")}}) + "\n";
    if (item.contains("special"))
      input += json::serialize(json::object{
                   {"id", "special"}, {"text", item.at("text")}, {"parse_special", true}
               }) +
               "\n";
  }
  const Outcome outcome = run_artery({"tokenize", model_}, input);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<json::object> answers = parse_lines(outcome.out);
  std::size_t at = 0;
  for (const json::object& item : cases) {
    ASSERT_LT(at, answers.size());
    EXPECT_EQ(answers[at].at("id"), item.at("n"));
    EXPECT_EQ(answers[at++].at("ids"), item.at("plain").at("ids")) << json::serialize(item);
    if (item.contains("special")) {
      EXPECT_EQ(answers[at++].at("ids"), item.at("special").at("ids")) << json::serialize(item);
    }
  }
  EXPECT_EQ(at, answers.size());
}

INSTANTIATE_TEST_SUITE_P(
    Vocabularies,
    GoldenTokenizer,
    testing::Values(
        std::pair{"gpt2", "ggml-vocab-gpt-2.gguf"},
        std::pair{"qwen2", "ggml-vocab-qwen2.gguf"},
        std::pair{"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"}
    ),
    [](const auto& chosen) { return chosen.param.first; }
);

class Gpt2 : public testing::Test {
 protected:
  void SetUp() override {
    model_ = shared_path("models/ggml-vocab-gpt-2.gguf").string();
    if (!std::filesystem::exists(model_)) GTEST_SKIP() << "no " << model_;
  }
  std::string model_;
};

TEST_F(Gpt2, BadLinesAreAnsweredAndTheRunGoesOn) {
  const std::string input =
      "{\"id\":1,\"text\":\"Hello\"}\n"
      "nonsense\n"
      "\n"
      "{\"id\":2}\n"
      "{\"id\":3,\"text\":7}\n"
      "[1]\n"
      "{\"id\":\"four\",\"bytes_b64\":\"SGVsbG8=\"}\n"
      "{\"id\":5,\"bytes_b64\":\"?\"}\n" +
      std::string(100000, '[') +
      "\n"
      "{\"id\":6,\"text\":\"Hello\"} trailing\n"
      "{\"id\":7,\"text\":\"Hello\"}";
  const Outcome outcome = run_artery({"tokenize", model_}, input);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<json::object> lines = parse_lines(outcome.out);
  ASSERT_EQ(lines.size(), 10u);
  const json::array hello = {15496};
  EXPECT_EQ(lines[0].at("ids"), hello);
  EXPECT_TRUE(lines[1].at("id").is_null());
  EXPECT_TRUE(lines[1].contains("error"));
  EXPECT_EQ(lines[2].at("error").at("param"), "text");
  EXPECT_EQ(lines[3].at("id"), 3);
  EXPECT_EQ(lines[3].at("error").at("param"), "text");
  EXPECT_TRUE(lines[4].contains("error"));
  EXPECT_EQ(lines[5].at("ids"), hello);
  EXPECT_EQ(lines[6].at("error").at("param"), "bytes_b64");
  EXPECT_TRUE(lines[7].contains("error"));
  EXPECT_TRUE(lines[8].contains("error"));
  EXPECT_EQ(lines[9].at("id"), 7);
  EXPECT_EQ(lines[9].at("ids"), hello);
}

TEST_F(Gpt2, DetokenizeGivesTextOrBytes) {
  const Outcome outcome = run_artery(
      {"detokenize", model_},
      "{\"id\":1,\"ids\":[15496,995]}\n{\"id\":2,\"ids\":[8582]}\n{\"id\":3,\"ids\":[999999]}\n"
  );
  const std::vector<json::object> lines = parse_lines(outcome.out);
  ASSERT_EQ(lines.size(), 3u) << outcome.err;
  EXPECT_EQ(lines[0].at("text"), "Hello world");
  EXPECT_EQ(lines[0].at("pieces_b64"), (json::array{"SGVsbG8=", "IHdvcmxk"}));
  // 8582 is the first bytes of an emoji: no text.
  EXPECT_FALSE(lines[1].contains("text"));
  EXPECT_TRUE(lines[1].contains("bytes_b64"));
  EXPECT_EQ(lines[2].at("error").at("param"), "ids");
}

TEST_F(Gpt2, ReadsTheInputFile) {
  const TemporaryFolder folder;
  const std::string file = folder.write("in.jsonl", "{\"id\":1,\"text\":\"Hello\"}\n");
  EXPECT_EQ(run_artery({"tokenize", model_, file}).out, "{\"id\":1,\"ids\":[15496]}\n");
  const Outcome folder_given = run_artery({"tokenize", model_, folder.file("")});
  EXPECT_EQ(folder_given.exit_code, 1) << "a folder is no empty file";
  EXPECT_EQ(run_artery({"tokenize", model_, folder.write("empty", "")}).exit_code, 0);
}

TEST(Template, BuiltInFormsAndErrors) {
  const std::string input =
      R"({"id":1,"messages":[{"role":"user","content":"Hi"}]})"
      "\n"
      R"({"id":2,"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":false})"
      "\n"
      R"({"id":3,"messages":"Hi"})"
      "\n"
      R"({"id":4})"
      "\n";
  const Outcome outcome = run_artery({"template", "--template", "chatml"}, input);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<json::object> lines = parse_lines(outcome.out);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].at("text"), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(lines[1].at("text"), "<|im_start|>user\nHi<|im_end|>\n");
  EXPECT_EQ(lines[2].at("error").at("param"), "messages");
  EXPECT_EQ(lines[3].at("error").at("param"), "messages");
}

TEST(Template, MissingFileIsNamed) {
  const Outcome outcome = run_artery(
      {"template", "--template", "/nonexistent/x.jinja"},
      R"({"id":1,"messages":[{"role":"user","content":"Hi"}]})"
  );
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find("/nonexistent/x.jinja"), std::string::npos) << outcome.err;
}

TEST(Template, WrongFieldsAreNamedThemselves) {
  const std::string messages = R"({"messages":[{"role":"user","content":"Hi"}],)";
  const std::string input = messages + R"("kwargs":[]})" + "\n" + messages + R"("tools":{}})" +
                            "\n" + messages + R"("now":"2026-13-01 00:00:00"})" + "\n";
  const Outcome outcome = run_artery({"template", "--template", "chatml"}, input);
  const std::vector<json::object> lines = parse_lines(outcome.out);
  ASSERT_EQ(lines.size(), 3u) << outcome.err;
  EXPECT_EQ(lines[0].at("error").at("param"), "kwargs");
  EXPECT_EQ(lines[1].at("error").at("param"), "tools");
  EXPECT_EQ(lines[2].at("error").at("param"), "now");
}

}  // namespace
}  // namespace artery::testing_cli
