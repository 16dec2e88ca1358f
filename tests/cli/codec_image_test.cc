// `artery codec image` as people and scripts run it: lines of the record, bad lines.
// tests/codec/recipe_images_test.cc compares what the code behind the verb writes with the record.

#include <gtest/gtest.h>

#include <sstream>

#include "codec/api/json_style.h"
#include "codec/api/json_tree.h"
#include "program.h"
#include "record_files.h"

namespace artery::testing_cli {
namespace {

using codec::api::Json;
using codec::api::JsonTree;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// All but the three fields that are the WebP library's and the pixels.
void expect_recorded(const Json& line, const Json& answer) {
  const std::string id = codec::api::to_json(*line.find("id"));
  EXPECT_EQ(codec::api::to_json(*answer.find("id")), id);
  for (const char* const part : {"error", "result"}) {
    const Json* const wanted = line.find(part);
    const Json* const got = answer.find(part);
    ASSERT_EQ(wanted == nullptr, got == nullptr) << id;
    if (wanted == nullptr) continue;
    for (const char* const field :
         {"kind",
          "is_retryable",
          "message",
          "width",
          "height",
          "format",
          "stored_size",
          "sizes",
          "images",
          "image_token_adjustment"}) {
      const Json* const value = wanted->find(field);
      if (value == nullptr) continue;
      ASSERT_NE(got->find(field), nullptr) << id << ' ' << field;
      EXPECT_EQ(codec::api::to_json(*got->find(field)), codec::api::to_json(*value)) << id;
    }
  }
  if (const Json* const quota = line.find("quota_after")) {
    EXPECT_EQ(codec::api::to_json(*answer.find("quota_after")), codec::api::to_json(*quota)) << id;
  }
}

// `original` and `auto` are `high` under other names: the library's test has them.
bool is_kept(const std::string& line) {
  const std::string head = line.substr(0, 160);
  return head.find(R"("preprocess")") == head.npos ||
         (head.find("/original\"") == head.npos && head.find("/auto\"") == head.npos);
}

TEST(CodecImage, AnswersTheRecord) {
  std::vector<std::string> record;
  std::string input;
  for (std::string& line : codec::image_lines()) {
    if (!is_kept(line)) continue;
    input += line + '\n';
    record.push_back(std::move(line));
  }
  if (record.empty()) GTEST_SKIP() << "no ../shared/golden/codec";
  const Outcome outcome = run_artery({"codec", "image"}, input);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto answers = lines_of(outcome.out);
  ASSERT_EQ(answers.size(), record.size());
  for (std::size_t i = 0; i < record.size(); ++i) {
    const auto line = JsonTree::parse(record[i]), answer = JsonTree::parse(answers[i]);
    ASSERT_TRUE(line && answer) << answers[i];
    expect_recorded(line->root(), answer->root());
  }
}

TEST(CodecImage, SaysWhatIsWrongWithALine) {
  const Outcome outcome = run_artery(
      {"codec", "image"},
      "nonsense\n"
      R"({"id":1,"op":"paint"})"
      "\n"
      R"({"id":2,"op":"preprocess"})"
      "\n"
      R"({"id":3,"op":"preprocess","input_sha256":"00"})"
      "\n"
      R"({"id":4,"op":"preprocess","input_base64":"@"})"
      "\n"
      R"({"id":5,"op":"preprocess","input_base64":"","detail":"huge"})"
      "\n"
      R"({"id":6,"op":"token_adjustment","sizes":[[1]]})"
      "\n"
      R"({"id":7,"op":"resolve","sources":[{"kind":"file"}]})"
      "\n"
      R"({"id":8,"op":"resolve","sources":[{"kind":"url","repeat":["a",99999999999]}]})"
      "\n"
      R"({"id":9,"op":"token_adjustment","sizes":[[0,3]]})"
      "\n"
      R"({"id":10,"op":"token_adjustment","sizes":[[544,544]]})"
      "\n"
  );
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto answers = lines_of(outcome.out);
  ASSERT_EQ(answers.size(), 11U);
  const std::vector<std::string> wanted = {
      "not a JSON line",
      "'paint' is none of",
      "image is missing",
      "no input before this line",
      "base64",
      "'huge' is none of",
      "[width, height]",
      "'file' is none of",
      "repeat:",
      "no fitting size"
  };
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NE(answers[i].find(wanted[i]), std::string::npos) << answers[i];
    EXPECT_NE(answers[i].find("\"error\""), std::string::npos) << answers[i];
  }
  EXPECT_EQ(answers[10], R"({"id":10,"result":{"image_token_adjustment":183}})");
}

}  // namespace
}  // namespace artery::testing_cli
