// What a request asks for, through every form of every API: choices, log probabilities, one call
// only, penalties and seeds, and answers that go on from a last message.

#include <cstring>

#include "server/named_events.h"

namespace artery::server {
namespace {

constexpr std::string_view kCalls =
    "<tool_call>{\"name\":\"get\",\"arguments\":{\"city\":\"P\"}}</tool_call>\n"
    "<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call> and more";

class FormsTest : public StreamTest {
 protected:
  // Choice i of every request says "choice i".
  void say_choices() {
    engine->set_author([](const engine::Request&, int choice) {
      return FakeEngine::Script{byte_ids(fmt::format("choice {}", choice)), kEndToken, {}};
    });
  }
  engine::Request last_request() const { return engine->requests().back(); }
  std::string last_prompt() const {
    std::string out;
    for (const TokenId id : last_request().prompt) {
      if (id < 256) out += static_cast<char>(id);
      if (id == 258) out += "he";
    }
    return out;
  }
  void expect_refused(const std::string& path, const std::string& body, std::string_view field) {
    const TestResponse response = post(path, body);
    EXPECT_EQ(response.status, 400) << path << body;
    EXPECT_NE(response.body.find(field), std::string::npos) << response.body;
  }
};

struct Form {
  const char *path, *body;
};

TEST_F(FormsTest, ChoicesAndTheirLogProbabilities) {
  start();
  say_choices();
  const Form forms[] = {
      {"/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"x"}],"n":3,"logprobs":true,"top_logprobs":2})"},
      {"/v1/completions", R"({"prompt":"x","n":3,"logprobs":2})"},
  };
  for (const Form& form : forms) {
    for (const int batch : {1, 1000}) {
      engine->set_tokens_per_event(batch);
      const json::value whole = post(form.path, form.body).json();
      const json::array& choices = whole.at("choices").as_array();
      ASSERT_EQ(choices.size(), 3U);
      const Joined joined = join(stream(form.path, form.body), 3);
      for (std::size_t i = 0; i < 3; ++i) {
        const json::object& choice = choices[i].as_object();
        const bool is_chat = choice.contains("message");
        EXPECT_EQ(choice.at("index").as_int64(), static_cast<std::int64_t>(i));
        const std::string text =
            text_of(is_chat ? choice.at("message").at("content") : choice.at("text"));
        EXPECT_EQ(text, fmt::format("choice {}", i));
        EXPECT_EQ(joined.texts[i], text);
        const json::value& tokens = choice.at("logprobs").at(is_chat ? "content" : "tokens");
        EXPECT_EQ(tokens.as_array().size(), text.size());
        EXPECT_EQ(joined.logprob_tokens[i], tokens.as_array());
      }
      EXPECT_EQ(last_request().n, 3);
      EXPECT_EQ(last_request().sampling.logprobs, 2);
    }
  }
}

TEST_F(FormsTest, LogProbabilitiesOfResponses) {
  start();
  say("h\xC3\xA9");
  const std::string body =
      R"({"model":"tiny","input":"x","include":["message.output_text.logprobs"],"top_logprobs":2})";
  const json::value whole = post("/v1/responses", body).json();
  const json::value& part = whole.at("output").at(0).at("content").at(0);
  EXPECT_EQ(text_of(part.at("text")), "h\xC3\xA9");
  const json::array& tokens = part.at("logprobs").as_array();
  ASSERT_EQ(tokens.size(), 3U);
  EXPECT_EQ(tokens[0].at("logprob").to_number<double>(), -0.25);
  EXPECT_EQ(tokens[0].at("top_logprobs").as_array().size(), 2U);
  EXPECT_EQ(json::serialize(tokens[1].at("bytes")), "[195]");
  for (const int batch : {1, 1000}) {
    engine->set_tokens_per_event(batch);
    std::size_t said = 0;
    json::value done;
    for (const NamedEvent& event : named_events(stream("/v1/responses", body).body)) {
      if (event.name == "response.output_text.delta") {
        said += event.data.at("logprobs").as_array().size();
      }
      if (event.name == "response.completed") done = event.data.at("response");
    }
    EXPECT_EQ(said, 3U);
    EXPECT_EQ(done.at("output").at(0).at("content").at(0).at("logprobs"), part.at("logprobs"));
  }
  const json::value without = post("/v1/responses", R"({"model":"tiny","input":"x"})").json();
  EXPECT_TRUE(without.at("output").at(0).at("content").at(0).at("logprobs").as_array().empty());
  EXPECT_EQ(last_request().sampling.logprobs, -1);
}

// Of a model that reasons and calls: Chat has the log probabilities of all tokens, Responses those
// of its text, streamed or not.
TEST_F(FormsTest, LogProbabilitiesBesideReasoningAndCalls) {
  parsers.reasoning = "qwen3";
  parsers.tool_call = "hermes";
  start();
  const std::string said =
      "<think>so\u00e9</think>\n\nTe\u00e9xt "
      "<tool_call>{\"name\":\"get\",\"arguments\":{}}</tool_call>";
  say(said);
  const std::string chat =
      R"({"messages":[{"role":"user","content":"x"}],"logprobs":true,"tools":[{"type":"function","function":{"name":"get"}}]})";
  const std::string responses =
      R"({"model":"tiny","input":"x","include":["message.output_text.logprobs"],"tools":[{"type":"function","name":"get","parameters":{"type":"object"}}]})";
  const auto bytes_of = [](const json::array& tokens) {
    std::string out;
    for (const json::value& token : tokens) {
      for (const json::value& byte : token.at("bytes").as_array()) {
        out += static_cast<char>(byte.as_int64());
      }
    }
    return out;
  };
  for (const int batch : {1, 3, 1000}) {
    engine->set_tokens_per_event(batch);
    const json::value whole = post("/v1/chat/completions", chat).json().at("choices").at(0);
    EXPECT_EQ(text_of(whole.at("message").at("content")), "Te\u00e9xt");
    EXPECT_EQ(bytes_of(whole.at("logprobs").at("content").as_array()), said);
    const Joined joined = join(stream("/v1/chat/completions", chat));
    EXPECT_EQ(bytes_of(joined.logprob_tokens[0]), said);

    std::string streamed;
    for (const NamedEvent& event : named_events(stream("/v1/responses", responses).body)) {
      if (event.name != "response.output_text.delta") continue;
      streamed += bytes_of(event.data.at("logprobs").as_array());
    }
    EXPECT_EQ(streamed, "Te\u00e9xt");
    const json::value answer = post("/v1/responses", responses).json();
    for (const json::value& item : answer.at("output").as_array()) {
      if (text_of(item.at("type")) != "message") continue;
      EXPECT_EQ(bytes_of(item.at("content").at(0).at("logprobs").as_array()), streamed);
    }
  }
}

TEST_F(FormsTest, WhatAnApiCannotShowIsRefusedByName) {
  start();
  const std::string messages =
      R"({"model":"tiny","max_tokens":9,"messages":[{"role":"user","content":"x"}],)";
  expect_refused("/v1/messages", messages + R"("n":2})", "n: must be 1");
  expect_refused("/v1/messages", messages + R"("logprobs":true})", "logprobs");
  expect_refused("/v1/messages", messages + R"("presence_penalty":3})", "presence_penalty");
  expect_refused("/v1/responses", R"({"model":"tiny","input":"x","n":2})", "n: must be 1");
  EXPECT_EQ(post("/v1/messages", messages + R"("n":1,"logprobs":false})").status, 200);
  EXPECT_EQ(post("/v1/responses", R"({"model":"tiny","input":"x","n":1})").status, 200);
}

TEST_F(FormsTest, OneCallOnlyInEveryApi) {
  parsers.tool_call = "hermes";
  start();
  say(std::string(kCalls));
  const Form forms[] = {
      {"/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"x"}],"parallel_tool_calls":false,"tools":[{"type":"function","function":{"name":"get"}},{"type":"function","function":{"name":"now"}}]})"
      },
      {"/v1/responses",
       R"({"model":"tiny","input":"x","parallel_tool_calls":false,"tools":[{"type":"function","name":"get","parameters":{"type":"object"}},{"type":"function","name":"now","parameters":{"type":"object"}}]})"
      },
      {"/v1/messages",
       R"({"model":"tiny","max_tokens":400,"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"auto","disable_parallel_tool_use":true},"tools":[{"name":"get","input_schema":{"type":"object"}},{"name":"now","input_schema":{"type":"object"}}]})"
      },
  };
  for (const Form& form : forms) {
    const std::string body = form.body;
    for (const TestResponse& answer : {post(form.path, body), stream(form.path, body)}) {
      ASSERT_EQ(answer.status, 200) << answer.body;
      EXPECT_NE(answer.body.find("\"get\""), std::string::npos) << answer.body;
      EXPECT_EQ(answer.body.find("and more"), std::string::npos) << answer.body;
      // Responses repeats the tools of the request.
      std::string said = answer.body;
      for (std::size_t at = 0; (at = said.find("\"tools\":[", at)) != std::string::npos;) {
        said.erase(at, said.find("\"top_logprobs\"", at) - at);
      }
      EXPECT_EQ(said.find("\"now\""), std::string::npos) << said;
    }
    std::string both = body;
    for (const char* one :
         {"\"parallel_tool_calls\":false,", "\"disable_parallel_tool_use\":true"}) {
      if (const auto at = both.find(one); at != std::string::npos) both.erase(at, std::strlen(one));
    }
    if (const auto at = both.find("\"auto\",}"); at != std::string::npos) both.erase(at + 6, 1);
    const json::value answer = post(form.path, both).json();
    const bool has_output = answer.as_object().contains("output");
    const std::string said = json::serialize(has_output ? answer.at("output") : answer);
    EXPECT_NE(said.find("\"now\""), std::string::npos) << both << said;
  }
}

TEST_F(FormsTest, PenaltiesAndSeedsOfEveryApi) {
  start();
  const Form forms[] = {
      {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],)"},
      {"/v1/completions", R"({"prompt":"x",)"},
      {"/v1/responses", R"({"model":"tiny","input":"x",)"},
      {"/v1/messages",
       R"({"model":"tiny","max_tokens":9,"messages":[{"role":"user","content":"x"}],)"},
  };
  for (const Form& form : forms) {
    const std::string body =
        form.body + std::string(R"("seed":-7,"presence_penalty":0.5,"frequency_penalty":-0.25,)") +
        R"("temperature":0.75,"top_p":0.5})";
    ASSERT_EQ(post(form.path, body).status, 200) << body;
    const engine::SamplingParams seen = last_request().sampling;
    EXPECT_EQ(seen.seed, static_cast<std::uint64_t>(-7)) << form.path;
    EXPECT_EQ(seen.presence_penalty, 0.5) << form.path;
    EXPECT_EQ(seen.frequency_penalty, -0.25) << form.path;
    EXPECT_EQ(seen.temperature, 0.75) << form.path;
    EXPECT_EQ(seen.top_p, 0.5) << form.path;
  }
}

TEST_F(FormsTest, AnswersGoOnFromALastMessage) {
  start();
  say(" there");
  const std::string turns =
      R"("messages":[{"role":"user","content":"x"},{"role":"assistant","content":"Hello")";
  const Form forms[] = {
      {"/v1/chat/completions", R"(,"prefix":true}]})"},
      {"/v1/chat/completions", R"(}],"continue_final_message":true})"},
      {"/v1/chat/completions", R"(}],"continue_final_message":true,"add_generation_prompt":false})"
      },
      {"/v1/messages", R"(}],"model":"tiny","max_tokens":20})"},
  };
  for (const Form& form : forms) {
    const std::string body = "{" + turns + form.body;
    const TestResponse answer = post(form.path, body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(last_prompt(), "user\nx\nassistant\nHello") << body;
    EXPECT_NE(answer.body.find("\" there\""), std::string::npos) << answer.body;
    EXPECT_EQ(answer.body.find("Hello"), std::string::npos) << "only what is new";
  }
  // Without a word the turn is closed and another begins.
  EXPECT_EQ(post("/v1/chat/completions", "{" + turns + "}]}").status, 200);
  EXPECT_EQ(last_prompt(), "user\nx\nassistant\nHello\nassistant\n");
}

TEST_F(FormsTest, WherePrefixesStand) {
  start();
  const std::string path = "/v1/chat/completions";
  expect_refused(
      path,
      R"({"messages":[{"role":"assistant","content":"a","prefix":true},{"role":"user","content":"x"}]})",
      "messages[0].prefix"
  );
  expect_refused(
      path, R"({"messages":[{"role":"user","content":"x","prefix":true}]})", "messages[0].prefix"
  );
  expect_refused(
      path,
      R"({"messages":[{"role":"assistant","content":"a","prefix":true}],"add_generation_prompt":true})",
      "add_generation_prompt"
  );
  EXPECT_EQ(
      post(path, R"({"messages":[{"role":"user","content":"x","prefix":false}]})").status, 200
  );
}

// R1's parser takes an answer for reasoning until it is closed; one that goes on from words is not.
TEST_F(FormsTest, WhatGoesOnFromWordsIsNoReasoning) {
  parsers.reasoning = "deepseek_r1";
  start();
  say(" there");
  const auto message = [&](std::string_view content) {
    return post(
               "/v1/chat/completions",
               R"({"messages":[{"role":"assistant","prefix":true,"content":")" +
                   std::string(content) + "\"}]}"
    )
        .json()
        .at("choices")
        .at(0)
        .at("message");
  };
  EXPECT_EQ(text_of(message("Hello").at("content")), " there");
  EXPECT_EQ(text_of(message("<think>a</think>Hello").at("content")), " there");
  EXPECT_EQ(text_of(message("<think>Let me").at("reasoning_content")), " there");
}

}  // namespace
}  // namespace artery::server
