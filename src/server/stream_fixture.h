#pragma once
// Reads streams back into answers; the fixture of the generation tests. Tests only.

#include <string>
#include <vector>

#include "server/test_client.h"

namespace artery::server {

namespace json = boost::json;

inline std::string text_of(const json::value& value) {
  return std::string(value.as_string().data(), value.as_string().size());
}

// The answer of a choice put together from a stream's chunks.
struct Joined {
  std::vector<std::string> texts;
  std::vector<std::string> finish;
  std::vector<json::array> logprob_tokens;  // completions: tokens; chat: content entries
  json::value usage;
  std::string error;
  int chunks = 0;
  bool done = false;
};

class StreamTest : public ServerTest {
 protected:
  TestResponse stream(const std::string& path, const std::string& body) {
    TestResponse response = post(path, body.substr(0, body.size() - 1) + R"(,"stream":true})");
    return response;
  }

  Joined join(const TestResponse& response, std::size_t choices = 1) {
    Joined out;
    out.texts.resize(choices);
    out.finish.resize(choices);
    out.logprob_tokens.resize(choices);
    EXPECT_TRUE(response.whole);
    for (const std::string& event : events(response.body)) {
      EXPECT_FALSE(out.done) << "after [DONE]: " << event;
      if (event == "[DONE]") {
        out.done = true;
        continue;
      }
      json::error_code error;
      // Strict: refuses text that is not UTF-8.
      const json::value chunk = json::parse(event, error);
      EXPECT_FALSE(error) << event;
      if (error) continue;
      if (chunk.as_object().contains("error")) {
        out.error = text_of(chunk.at("error").at("message"));
        continue;
      }
      ++out.chunks;
      EXPECT_EQ(text_of(chunk.at("system_fingerprint")), "fp_test");
      if (chunk.as_object().contains("usage") && !chunk.at("usage").is_null()) {
        out.usage = chunk.at("usage");
      }
      take_choices(chunk, out);
    }
    return out;
  }

  static void take_choices(const json::value& chunk, Joined& out) {
    for (const json::value& choice : chunk.at("choices").as_array()) {
      const auto index = static_cast<std::size_t>(choice.at("index").as_int64());
      if (choice.as_object().contains("delta")) {
        const json::object& delta = choice.at("delta").as_object();
        if (delta.contains("content")) out.texts[index] += text_of(delta.at("content"));
      } else {
        out.texts[index] += text_of(choice.at("text"));
      }
      const json::value& logprobs = choice.at("logprobs");
      if (!logprobs.is_null()) {
        const bool chat = logprobs.as_object().contains("content");
        for (const json::value& token : logprobs.at(chat ? "content" : "tokens").as_array()) {
          out.logprob_tokens[index].push_back(token);
        }
      }
      if (!choice.at("finish_reason").is_null()) {
        EXPECT_EQ(out.finish[index], "");
        out.finish[index] = text_of(choice.at("finish_reason"));
      }
    }
  }
};

}  // namespace artery::server
