// Responses events of any sequence of sink calls: well-formed JSON, numbered, framed, and the same
// response from the builder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "codec/api/generators.h"
#include "codec/api/responses_events_check.h"
#include "codec/unicode.h"

namespace {

using namespace artery::codec::api;

class FixedIds : public IdSource {
 public:
  std::string call_tail() override { return "A0"; }
  std::int64_t unix_time_s() override { return 1; }
};

// Sinks are given UTF-8.
std::string utf8(std::string_view bytes) {
  std::string out;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto next = artery::codec::decode_utf8(bytes, at);
    if (next.state == artery::codec::Utf8State::kValid) out += bytes.substr(at, next.bytes);
    at += next.bytes;
  }
  return out;
}

void call(OutputSink& sink, std::uint8_t kind, const std::string& text) {
  switch (kind % 6) {
    case 0:
      return sink.reasoning(text, {});
    case 1: {
      const TokenLogprob token{text, -0.5F, {}};
      return sink.content(text, {&token, 1});
    }
    case 2:
      return sink.begin_call(kind & 8U ? "apply_patch" : kind & 16U ? "tool_search" : text, "");
    case 3:
      return sink.arguments(text);
    case 4:
      return sink.arguments(R"({"input": ")" + text);
    default:
      return sink.content(text, {});
  }
}

void require(bool fine) {
  if (!fine) std::abort();
}

}  // namespace

// Each call: a byte for its kind, one for the length of its text, the text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  ResponsesAnswer answer;
  answer.head = {"resp_\"1", "m", std::make_shared<FixedIds>()};
  answer.thinking = (data[0] & 1U) != 0;
  answer.has_apply_patch = answer.has_tool_search = true;
  answer.faithfulness = (data[0] & 2U) != 0 ? Faithfulness::kSafe : Faithfulness::kRecipe;
  const auto generator = responses_events(answer);
  const auto builder = responses_response(answer);
  ResponsesEventsCheck check;
  const auto judge = [&] {
    for (const ApiEvent& event : generator->take()) require(check.next(event).empty());
  };
  for (std::size_t at = 1; at + 1 < size;) {
    const std::uint8_t kind = data[at];
    const std::size_t length = std::min<std::size_t>(data[at + 1], size - at - 2);
    const std::string text = utf8({reinterpret_cast<const char*>(data) + at + 2, length});
    call(*generator, kind, text);
    call(*builder, kind, text);
    judge();
    at += 2 + length;
  }
  AnswerFinish finish;
  if ((data[0] & 4U) != 0) finish.reason = FinishReason::kLength;
  generator->finish(finish);
  builder->finish(finish);
  judge();
  require(check.ended());
  require(JsonTree::parse(builder->json()).has_value());
  return 0;
}
