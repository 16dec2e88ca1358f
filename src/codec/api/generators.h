#pragma once
// The event generators and response builders there are. See output_sink.h.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codec/api/convert.h"
#include "codec/api/output_sink.h"

namespace artery::codec::api {

struct ChatAnswer {
  AnswerHead head;
  bool thinking = false;
  bool include_usage = false;
  int choice = 0;                  // which of n answers
  bool continues_content = false;  // thinking, but the answer goes on in a prefix's content
  Faithfulness faithfulness = Faithfulness::kRecipe;
};
std::unique_ptr<EventGenerator> chat_events(ChatAnswer answer);
std::unique_ptr<ResponseBuilder> chat_response(ChatAnswer answer);

struct MessagesAnswer {
  AnswerHead head;
  bool thinking = false;
  std::optional<std::string> signature;  // of thinking blocks; absent: the message's id
  Faithfulness faithfulness = Faithfulness::kRecipe;
};
std::unique_ptr<EventGenerator> messages_events(MessagesAnswer answer);
std::unique_ptr<ResponseBuilder> messages_response(MessagesAnswer answer);

struct ResponsesAnswer {
  AnswerHead head;
  bool thinking = false;
  NamespaceTools namespaces;
  bool has_apply_patch = false;
  bool has_tool_search = false;
  std::vector<std::string> custom_tools;
  ResponsesEcho echo;
  Faithfulness faithfulness = Faithfulness::kRecipe;
};
std::unique_ptr<EventGenerator> responses_events(ResponsesAnswer answer);
std::unique_ptr<ResponseBuilder> responses_response(ResponsesAnswer answer);
// The `response` object of response.created.
std::string created_response(const ResponsesAnswer& answer);

}  // namespace artery::codec::api
