#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/api/generators.h"
#include "codec/api/json_tree.h"
#include "codec/api/responses_events_check.h"

namespace artery::codec::api {
namespace {

class FixedIds : public IdSource {
 public:
  std::string call_tail() override { return "AAAAAAAAAAAAAAAAAAAA0000"; }
  std::int64_t unix_time_s() override { return 1700000000; }
};

ResponsesAnswer answer(Faithfulness faithfulness = Faithfulness::kRecipe) {
  ResponsesAnswer made;
  made.head = {"resp_1", "m", std::make_shared<FixedIds>()};
  made.namespaces = {{"fs::read", {"fs", "read"}}};
  made.has_apply_patch = made.has_tool_search = true;
  made.faithfulness = faithfulness;
  return made;
}

using Script = std::function<void(OutputSink&)>;

std::vector<ApiEvent> events_of(ResponsesAnswer from, const Script& script) {
  const auto generator = responses_events(std::move(from));
  script(*generator);
  std::vector<ApiEvent> events = generator->take();
  ResponsesEventsCheck check;
  for (const ApiEvent& event : events) EXPECT_EQ(check.next(event), "");
  return events;
}

std::string response_of(ResponsesAnswer from, const Script& script) {
  const auto builder = responses_response(std::move(from));
  script(*builder);
  return builder->json();
}

std::string names(const std::vector<ApiEvent>& events) {
  std::string out;
  for (const ApiEvent& event : events) out += event.name.substr(9) + ' ';
  return out;
}

void finish(OutputSink& sink, FinishReason reason = FinishReason::kStop) {
  sink.finish({reason, "", {}});
}

TEST(ResponsesEvents, TextAnswerInFrames) {
  const auto events = events_of(answer(), [](OutputSink& sink) {
    sink.start({}, {});
    sink.reasoning("hm", {});
    sink.content("a", {});
    sink.content("b\n", {});
    finish(sink, FinishReason::kLength);
  });
  EXPECT_EQ(
      names(events),
      "created in_progress "
      "output_item.added content_part.added reasoning_text.delta reasoning_text.done "
      "content_part.done output_item.done "
      "output_item.added content_part.added output_text.delta output_text.delta output_text.done "
      "content_part.done output_item.done incomplete "
  );
  EXPECT_NE(
      events.back().data.find(R"("incomplete_details":{"reason":"max_output_tokens"})"),
      std::string::npos
  );
  EXPECT_NE(events.back().data.find(R"("text":"ab\n"}]}])"), std::string::npos);
}

TEST(ResponsesEvents, MessageBeforeACallIsCommentary) {
  const std::string response = response_of(answer(), [](OutputSink& sink) {
    sink.content("x", {});
    sink.begin_call("fs::read", "");
    sink.arguments("{}");
    sink.begin_call("fs::write", "call_mine");
    finish(sink, FinishReason::kToolCalls);
  });
  EXPECT_NE(response.find(R"("phase":"commentary")"), std::string::npos);
  EXPECT_NE(
      response.find(
          R"("call_id":"call_00_AAAAAAAAAAAAAAAAAAAA0000","name":"read","namespace":"fs","arguments":"{}")"
      ),
      std::string::npos
  );
  EXPECT_NE(
      response.find(R"("call_id":"call_mine","name":"fs::write","arguments":"")"), std::string::npos
  );
}

// Seen of the official package; the record has no such case.
TEST(ResponsesEvents, ToolSearchCallsHaveObjectsAsArguments) {
  const auto call = [](std::string_view arguments) {
    return response_of(answer(), [&](OutputSink& sink) {
      sink.begin_call("tool_search", "c");
      sink.arguments(arguments);
      finish(sink, FinishReason::kToolCalls);
    });
  };
  const std::string head = R"({"type":"tool_search_call","id":"tsc_resp_1_0","status":)";
  const std::string middle = R"("call_id":"c","execution":"client","arguments":)";
  EXPECT_NE(
      call(R"({"q": 1.50, "q": "x"})").find(head + R"("completed",)" + middle + R"({"q":"x"}})"),
      std::string::npos
  );
  EXPECT_NE(call(R"({"q": )").find(head + R"("incomplete",)" + middle + "{}}"), std::string::npos);
  EXPECT_NE(call("[]").find(head + R"("incomplete",)" + middle + "{}}"), std::string::npos);
  const std::string cut = response_of(answer(), [](OutputSink& sink) {
    sink.begin_call("tool_search", "c");
    sink.arguments(R"({"q": "x"})");
    finish(sink, FinishReason::kLength);
  });
  EXPECT_NE(cut.find(head + R"("incomplete",)" + middle + "{}}"), std::string::npos)
      << "a call that was cut off has none";
}

TEST(ResponsesEvents, SafeMends) {
  const float infinite = std::numeric_limits<float>::infinity();
  const Script script = [&](OutputSink& sink) {
    sink.start({}, {});
    sink.reasoning("", {});
    sink.content("", {});
    const TokenLogprob odd{"a", -infinite, {{"b", std::nanf(""), {}}}};
    sink.content("a", {&odd, 1});
    sink.begin_call("f", "c");
    sink.arguments("");
    sink.arguments("{}");
    finish(sink, FinishReason::kToolCalls);
  };
  const auto recipe = events_of(answer(), script);
  const auto safe = events_of(answer(Faithfulness::kSafe), script);
  EXPECT_EQ(
      names(safe),
      "created in_progress output_item.added content_part.added output_text.delta "
      "output_text.done content_part.done output_item.done output_item.added "
      "function_call_arguments.delta function_call_arguments.done output_item.done completed "
  );
  EXPECT_GT(recipe.size(), safe.size());
  EXPECT_NE(recipe[11].data.find(R"("logprob":null)"), std::string::npos) << recipe[11].data;
  EXPECT_NE(safe[4].data.find(R"("logprob":-9999.0)"), std::string::npos) << safe[4].data;
  EXPECT_NE(safe[10].data.find(R"("name":"f")"), std::string::npos) << safe[10].data;
}

TEST(ResponsesEvents, OtherCustomToolsStreamTheirInput) {
  ResponsesAnswer from = answer();
  from.custom_tools = {"sql"};
  const auto events = events_of(from, [](OutputSink& sink) {
    sink.begin_call("sql", "c");
    sink.arguments(R"({"input": "select)");
    sink.arguments(R"( \"a\""})");
    finish(sink, FinishReason::kToolCalls);
  });
  EXPECT_EQ(
      names(events),
      "created in_progress output_item.added custom_tool_call_input.delta "
      "custom_tool_call_input.delta custom_tool_call_input.done output_item.done completed "
  );
  EXPECT_NE(events.back().data.find(R"("name":"sql","input":"select \"a\"")"), std::string::npos);
}

TEST(ResponsesEvents, CloneGoesOnFromWhereItWasTaken) {
  const auto generator = responses_events(answer());
  generator->start({}, {});
  generator->content("a", {});
  generator->take();
  const auto copy = generator->clone();
  generator->content("b", {});
  copy->content("b", {});
  EXPECT_EQ(generator->take().front().data, copy->take().front().data);
  copy->content("c", {});
  EXPECT_TRUE(generator->take().empty());
}

// Whatever a parser does, clients get a list of events they understand, and the same response from
// both sinks.
TEST(ResponsesEvents, AnyOrderOfDeltasGivesWellFormedEvents) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const bool is_safe = (random() & 1U) != 0;
    const auto from = answer(is_safe ? Faithfulness::kSafe : Faithfulness::kRecipe);
    const auto generator = responses_events(from);
    const auto builder = responses_response(from);
    const auto both = [&](const Script& script) {
      script(*generator);
      script(*builder);
    };
    for (auto steps = random() % 12; steps > 0; --steps) {
      const std::string text(random() % 3, "a\"\\\n"[random() % 4]);
      switch (random() % 5) {
        case 0:
          both([&](OutputSink& sink) { sink.reasoning(text, {}); });
          break;
        case 1:
          both([&](OutputSink& sink) { sink.content(text, {}); });
          break;
        case 2: {
          constexpr const char* kNames[] = {"f", "apply_patch", "tool_search", "fs::read", ""};
          const char* const name = kNames[random() % 5];
          both([&](OutputSink& sink) { sink.begin_call(name, ""); });
          break;
        }
        default:
          both([&](OutputSink& sink) { sink.arguments(R"({"input": ")" + text); });
      }
    }
    both([&](OutputSink& sink) { finish(sink); });
    both([&](OutputSink& sink) { sink.content("late", {}); });
    ResponsesEventsCheck check;
    const std::vector<ApiEvent> events = generator->take();
    for (const ApiEvent& event : events) ASSERT_EQ(check.next(event), "");
    ASSERT_TRUE(check.ended());
    EXPECT_NE(events.back().data.find(R"("response":)" + builder->json()), std::string::npos);
  }
}

}  // namespace
}  // namespace artery::codec::api
