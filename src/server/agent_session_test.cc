// A coding agent's session over the real engine: twenty turns of Messages as Claude Code sends
// them. Each turn's prompt is the last one's and its answer, to the byte, so that all of it is
// found in the cache, whatever of the request changes from turn to turn.

#include <fmt/core.h>

#include "server/named_events.h"
#include "testing/scripted_model.h"

namespace artery::server {
namespace {

constexpr int kTurns = 20;
constexpr std::int64_t kPageTokens = 16;

const std::vector<std::string> kControl = {
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜System｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<think>",
    "</think>",
    "｜DSML｜"
};

// As the vocabulary tokenizes it, but that spellings of control tokens become the tokens.
std::vector<TokenId> ids_of(std::string_view text) {
  std::vector<TokenId> ids;
  while (!text.empty()) {
    const auto at = std::find_if(kControl.begin(), kControl.end(), [&](const std::string& one) {
      return text.starts_with(one);
    });
    if (at == kControl.end()) {
      const bool is_he = text.starts_with("he");  // the one merge of byte_vocab()
      ids.push_back(is_he ? kMoreControlTokens - 1 : static_cast<unsigned char>(text.front()));
      text.remove_prefix(is_he ? 2 : 1);
    } else {
      ids.push_back(kMoreControlTokens + static_cast<TokenId>(at - kControl.begin()));
      text.remove_prefix(at->size());
    }
  }
  return ids;
}

constexpr std::string_view kAnswer =
    "The file has to be read first.</think>Let me look.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke "
    "name=\"Read\">\n<｜DSML｜ parameter name=\"file_path\" string=\"true\">src/main.cc</｜DSML｜ "
    "parameter>\n<｜DSML｜ parameter name=\"limit\" string=\"false\">80</｜DSML｜ "
    "parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";

class AgentSessionTest : public StreamTest {
 protected:
  void start_session() {
    open();
    testing::ScriptedModelConfig model_config;
    model_config.vocab_size = kMoreControlTokens + std::ssize(kControl);
    model_config.context_length = 1 << 15;
    model_config.end_token = kEndToken;
    model_config.script = ids_of(kAnswer);
    engine::Config engine_config;
    engine_config.kv_pool_bytes = 64 << 20;
    auto made = engine::make_engine(
        std::make_unique<testing::ScriptedModel>(model_config),
        engine_config,
        system_clock(),
        server->observer()
    );
    ASSERT_TRUE(made) << made.error().message;
    auto tokenizer = codec::Tokenizer::make(byte_vocab(false, kControl));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    Serving serving;
    serving.engine = made.take();
    serving.tokenizer = tokenizer.take();
    serving.model_name = "tiny";
    serving.deepseek = codec::api::ModelVersion::kV41;
    server->attach(std::move(serving));
  }

  static json::value mark() { return {{"type", "ephemeral"}}; }

  // The last message alone bears the mark for the cache, as Claude Code moves it.
  json::object request(int turn) {
    const std::string header = fmt::format(
        "x-anthropic-billing-header: cc_version=2.1.{}; cch={:05x};", turn, 7919 * turn
    );
    json::array messages = messages_;
    messages.back().at("content").as_array().back().as_object()["cache_control"] = mark();
    const json::value tool = {
        {"name", "Read"},
        {"description", "Reads a file. " + std::string(700, 'r')},
        {"input_schema",
         {{"type", "object"},
          {"properties", {{"file_path", {{"type", "string"}}}, {"limit", {{"type", "number"}}}}}}}
    };
    return {
        {"model", "tiny"},
        {"max_tokens", 2000},
        {"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}},
        {"metadata", {{"user_id", fmt::format("session-{}", turn)}}},
        {"system",
         json::array{
             {{"type", "text"}, {"text", header}},
             {{"type", "text"},
              {"text", "You are an agent. " + std::string(2000, 'i')},
              {"cache_control", mark()}}
         }},
        {"tools", json::array{tool}},
        {"messages", std::move(messages)}
    };
  }

  void take_answer(const json::value& answer, int turn) {
    messages_.push_back({{"role", "assistant"}, {"content", answer.at("content")}});
    json::array results;
    for (const json::value& block : answer.at("content").as_array()) {
      if (text_of(block.at("type")) != "tool_use") continue;
      results.push_back(
          {{"type", "tool_result"},
           {"tool_use_id", block.at("id")},
           {"content", fmt::format("line {}: int main() {{}}", turn)}}
      );
    }
    ASSERT_EQ(results.size(), 1U);
    messages_.push_back({{"role", "user"}, {"content", results}});
    if (turn == kTurns / 2) {
      const json::value reminder = {{"type", "text"}, {"text", "The user opened another file."}};
      messages_.push_back({{"role", "system"}, {"content", json::array{reminder}}});
    }
  }

  json::array messages_ = {
      {{"role", "user"},
       {"content", json::array{{{"type", "text"}, {"text", "What does this program do?"}}}}}
  };
};

TEST_F(AgentSessionTest, EachTurnFindsAllOfTheLast) {
  start_session();
  std::int64_t prompts = 0, hits = 0, known = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const TestResponse response = post("/v1/messages", json::serialize(request(turn)));
    ASSERT_EQ(response.status, 200) << response.body;
    const json::value answer = response.json();
    const json::value& usage = answer.at("usage");
    const std::int64_t cached = usage.at("cache_read_input_tokens").as_int64();
    const std::int64_t prompt = cached + usage.at("input_tokens").as_int64();
    // Pages are whole, and the last token said was never computed.
    EXPECT_GE(cached, known - kPageTokens) << "turn " << turn;
    EXPECT_LE(cached, known) << "turn " << turn;
    prompts += prompt;
    hits += cached;
    known = prompt + usage.at("output_tokens").as_int64() - 1;
    take_answer(answer, turn);
  }
  const double share = static_cast<double>(hits) / static_cast<double>(prompts);
  fmt::print("{} of {} prompt tokens hit: {:.1f} %\n", hits, prompts, 100 * share);
  EXPECT_GT(share, 0.90);

  // A stream says so in its first event already.
  const TestResponse response = stream("/v1/messages", json::serialize(request(kTurns)));
  std::vector<std::int64_t> cached;
  for (const NamedEvent& event : named_events(response.body)) {
    const json::object& data = event.data.as_object();
    if (event.name == "message_start")
      cached.push_back(data.at("message").at("usage").at("cache_read_input_tokens").as_int64());
    if (event.name == "message_delta")
      cached.push_back(data.at("usage").at("cache_read_input_tokens").as_int64());
  }
  ASSERT_EQ(cached.size(), 2U);
  EXPECT_GE(cached[0], known - kPageTokens);
  EXPECT_EQ(cached[0], cached[1]);
}

}  // namespace
}  // namespace artery::server
