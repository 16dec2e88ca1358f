// `run-batch` as a process: every endpoint, bad lines, going on after a stop, exit codes.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <boost/json.hpp>
#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "program.h"

namespace artery::testing_cli {
namespace {
namespace json = boost::json;

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string text_of(const json::value& value) { return std::string(value.as_string()); }

std::string line(const std::string& id, const std::string& url, const std::string& body) {
  return R"({"custom_id":")" + id + R"(","method":"POST","url":")" + url + R"(","body":)" + body +
         "}\n";
}

std::string story(const std::string& id, int tokens = 4) {
  return line(
      id,
      "/v1/completions",
      R"({"prompt":"Once upon a time","temperature":0,"max_tokens":)" + std::to_string(tokens) + "}"
  );
}

// By custom_id; each must be there once.
std::map<std::string, json::object> answers_in(const std::string& text) {
  std::map<std::string, json::object> out;
  std::istringstream lines(text);
  for (std::string one; std::getline(lines, one);) {
    json::object answer = json::parse(one).as_object();
    const json::value id = answer.at("custom_id");
    const std::string key = id.is_null() ? "null" : text_of(id);
    EXPECT_TRUE(out.emplace(key, std::move(answer)).second) << "twice: " << one;
  }
  return out;
}

class RunBatch : public testing::Test {
 protected:
  void SetUp() override {
    model_ = model_path("stories260K.gguf");
    if (model_.empty()) GTEST_SKIP() << "no stories260K.gguf: scripts/fetch-model stories260k";
  }
  Outcome run(std::vector<std::string> more, const std::string& input = "") const {
    more.insert(more.begin(), {"run-batch", model_, "--chat-template", "chatml"});
    return run_artery(more, input);
  }

  std::string model_;
  TemporaryFolder folder_;
};

constexpr const char* kChat = R"({"messages":[{"role":"user","content":"Hi"}],"max_tokens":5})";

TEST_F(RunBatch, AnswersEveryEndpointAsTheServerDoes) {
  const std::string score =
      R"({"prompt":"Lily and Tom","max_tokens":3,"seed":7,"n":2,"logprobs":2})";
  const std::string model = R"({"model":"stories260K",)";
  const Outcome outcome =
      run({},
          story("text") + line("score", "/v1/completions", score) +
              line("chat", "/v1/chat/completions", kChat) +
              line("messages", "/v1/messages", model + std::string(kChat).substr(1)) +
              line("count", "/v1/messages/count_tokens", model + std::string(kChat).substr(1)) +
              line("responses", "/v1/responses", model + R"("input":"Hi","max_output_tokens":5})"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("6 answered, 0 failed, 0 answered before"), std::string::npos)
      << outcome.err;
  auto answers = answers_in(outcome.out);
  ASSERT_EQ(answers.size(), 6U) << outcome.out;
  for (const auto& [id, answer] : answers) {
    const json::value& response = answer.at("response");
    EXPECT_EQ(response.at("status_code"), 200) << id;
    EXPECT_TRUE(answer.at("error").is_null());
    EXPECT_EQ(text_of(answer.at("id")), "batch_req_" + text_of(response.at("request_id")));
  }
  const auto body = [&](const char* id) { return answers[id].at("response").at("body"); };
  EXPECT_EQ(text_of(body("text").at("choices").at(0).at("text")), ", there was a");
  EXPECT_EQ(text_of(body("chat").at("object")), "chat.completion");
  EXPECT_EQ(text_of(body("messages").at("type")), "message");
  EXPECT_EQ(body("messages").at("usage").at("input_tokens"), body("count").at("input_tokens"));
  EXPECT_EQ(text_of(body("responses").at("object")), "response");

  Server server({model_});
  ASSERT_TRUE(server.wait_for("ready ")) << server.log();
  const std::string whole = server.request("POST", "/v1/completions", score);
  const json::value served = json::parse(whole.substr(whole.find("\r\n\r\n") + 4));
  EXPECT_EQ(served.at("choices"), body("score").at("choices"));
}

TEST_F(RunBatch, TheBodyIsWhatStandsInTheLine) {
  const std::string odd =
      "{ \"body\" : {\"prompt\":\"no\"} , \"method\":\"POST\", \"n\": [1, {\"body\":2}, "
      "\"\\\\\\\"}\"],"
      " \"body\":{\"echo\":true, \"prompt\":\"x\", \"max_tokens\":1,"
      " \"prompt\":\"a \\\"}, \\\\\\\"body\\\": {\\u00e9 "
      "\"},\"url\":\"/v1/completions\",\"custom_id\":\"\\u0061\" }\r\n";
  const Outcome outcome = run({}, odd);
  auto answers = answers_in(outcome.out);
  ASSERT_TRUE(answers.contains("a")) << outcome.out;
  const json::value& response = answers["a"].at("response");
  ASSERT_FALSE(response.is_null()) << outcome.out;
  const std::string text = text_of(response.at("body").at("choices").at(0).at("text"));
  EXPECT_EQ(text.substr(0, text.rfind('{') + 4), "a \"}, \\\"body\": {\u00e9 ") << text;
}

TEST_F(RunBatch, BadLinesAreEntriesAndTheRestGoesOn) {
  const std::string cases =
      "not json\n"
      "\n"
      "[1]\n" +
      story("twice") + story("twice") + line("url", "/v1/embeddings", "{}") +
      line("body", "/v1/completions", "7") +
      line("stream", "/v1/completions", R"({"prompt":"x","stream":true})") +
      R"({"custom_id":"get","method":"GET","url":"/v1/completions","body":{}})"
      "\n" +
      R"({"method":"POST","url":"/v1/completions","body":{}})"
      "\n" +
      line("long", "/v1/completions", R"({"prompt":")" + std::string(200'000, 'x') + "\"}") +
      line("field", "/v1/completions", R"({"prompt":7})") +
      line("model", "/v1/completions", R"({"prompt":"x","model":"gpt-4o"})") +
      line("last", "/v1/completions", R"({"prompt":"x","max_tokens":1})").substr(0, 97);
  const Outcome outcome = run({"--max-body-bytes", "64K"}, cases);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::map<std::string, int> codes;
  std::istringstream lines(outcome.out);
  for (std::string one; std::getline(lines, one);) {
    const json::object answer = json::parse(one).as_object();
    const json::value& response = answer.at("response");
    if (!response.is_null()) {
      ++codes[std::to_string(response.at("status_code").as_int64())];
      continue;
    }
    ++codes[text_of(answer.at("error").at("code"))];
    EXPECT_EQ(text_of(answer.at("error").at("message")).rfind("line ", 0), 0U) << one;
  }
  const std::map<std::string, int> expected = {
      {"200", 2},
      {"400", 1},
      {"404", 1},
      {"duplicate_custom_id", 1},
      {"invalid_body", 2},
      {"invalid_json_line", 2},
      {"invalid_method", 1},
      {"invalid_url", 1},
      {"line_too_long", 1},
      {"missing_custom_id", 1}
  };
  EXPECT_EQ(codes, expected) << outcome.out;
}

TEST_F(RunBatch, GoesOnAfterASignal) {
  const std::string fifo = folder_.file("in"), out = folder_.file("out.jsonl");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  Server batch({model_, "-i", fifo, "-o", out}, "run-batch");
  std::ofstream input(fifo);
  input << story("a") << story("b") << std::flush;
  const auto written = [&] { return answers_in(read_file(out)).size(); };
  for (int i = 0; i < 400 && written() < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ASSERT_EQ(written(), 2U) << "answers are written as they come, with the input still open";
  input << story("long", 400) << std::flush;
  batch.signal(SIGINT);
  const Outcome stopped = batch.wait(20);
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  const auto before = static_cast<int>(written());
  std::ofstream(out, std::ios::app) << R"({"id":"half of a li)";  // as a kill leaves it

  const std::string rest = story("a") + story("b") + story("long", 400) + story("c");
  const Outcome outcome = run({"-i", folder_.write("all.jsonl", rest), "-o", out});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string counts = std::to_string(4 - before) + " answered, 0 failed, " +
                             std::to_string(before) + " answered before";
  EXPECT_NE(outcome.err.find(counts), std::string::npos) << counts << outcome.err;
  auto answers = answers_in(read_file(out));
  EXPECT_EQ(answers.size(), 4U);
  for (const auto& [id, answer] : answers) {
    EXPECT_EQ(answer.at("response").at("status_code"), 200) << id;
  }
}

TEST_F(RunBatch, WhatFailedIsTriedAgainAndOthersFilesAreLeftAlone) {
  const std::string out = folder_.file("out.jsonl");
  const std::string bad = line("x", "/v1/completions", R"({"prompt":7})") + "junk\n";
  ASSERT_EQ(run({"-o", out}, story("a") + bad).exit_code, 0);
  EXPECT_EQ(answers_in(read_file(out)).size(), 3U);
  const Outcome again = run({"-o", out}, story("a") + story("x"));
  EXPECT_NE(again.err.find("1 answered, 0 failed, 1 answered before"), std::string::npos)
      << again.err;
  auto answers = answers_in(read_file(out));
  ASSERT_EQ(answers.size(), 2U) << read_file(out);
  EXPECT_EQ(answers["x"].at("response").at("status_code"), 200);
  const Outcome anew = run({"-o", out, "--overwrite"}, story("z"));
  EXPECT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_EQ(answers_in(read_file(out)).size(), 1U);

  const std::string input = story("a") + "notes of mine\n";
  const std::string file = folder_.write("in.jsonl", input);
  const Outcome other = run({"-i", folder_.write("b.jsonl", story("b")), "-o", file});
  EXPECT_EQ(other.exit_code, 3) << other.err;
  const Outcome same = run({"-i", file, "-o", file, "--overwrite"});
  EXPECT_EQ(same.exit_code, 2) << same.err;
  EXPECT_EQ(read_file(file), input);
}

TEST_F(RunBatch, ExitCodes) {
  EXPECT_EQ(run({"-i", "/nonexistent.jsonl"}).exit_code, 1);
  EXPECT_EQ(run({"-o", "/nonexistent/out.jsonl"}, story("a")).exit_code, 1);
  EXPECT_EQ(run({"-o", "/dev/full"}, story("a")).exit_code, 4);
  EXPECT_EQ(run({}, "").exit_code, 0);
  const std::string damaged = folder_.write("bad.gguf", "GGUF");
  EXPECT_EQ(run_artery({"run-batch", damaged}, story("a")).exit_code, 3);
  EXPECT_EQ(run_artery({"run-batch"}, story("a")).exit_code, 2);
}

}  // namespace
}  // namespace artery::testing_cli
