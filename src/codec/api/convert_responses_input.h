#pragma once
// The input items of a Responses request as messages: reasoning and calls gathered into assistant
// turns, results behind their calls. Private to the Responses conversion.

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codec/api/convert_responses_tools.h"

namespace artery::codec::api {

class ResponsesInput {
 public:
  // All of it outlives the object.
  ResponsesInput(ModelVersion version, const ConvertOptions& options, const FlatTools& tools)
      : options_(options), tools_(tools), names_(tools.names), version_(version) {}

  // Messages that a tool search's result adds have tools of which only the names are set.
  Ruled<std::vector<Message>> convert(const ResponsesRequest& request);

 private:
  // kServing keeps calls and results as they came; recipe sorts them by id.
  bool keeps_order() const { return options_.rules == Rules::kServing; }

  Ruled<> add(const ResponsesItem& item);
  Ruled<> add_message(const ResponsesItem& item);
  void add_reasoning(const ResponsesItem& item);
  Ruled<> add_call(const ResponsesItem& item);
  Ruled<> add_output(const ResponsesItem& item);
  Ruled<> add_found_tools(const ResponsesItem& item);
  Ruled<> check_answered() const;
  // The output `id` of a call that waits for it.
  Ruled<> answer(const ResponsesItem& item);
  void close_group();

  Ruled<Message> content_of(const ResponsesItem& item, Role role, std::string_view field);
  Ruled<> check_image(const ResponsesPart& part, const std::string& place) const;
  Message& assistant();
  std::string path(const ResponsesItem& item) const;

  const ConvertOptions& options_;
  const FlatTools& tools_;
  NamespaceNames names_;  // grows by the undeclared ones that calls name
  ModelVersion version_;
  std::vector<Message> messages_;
  // The calls since the last message, until all have their results.
  std::vector<ToolCall> calls_;
  std::vector<Message> results_;
  std::vector<Message> behind_;  // what follows the results: found tools, messages that came before
  std::unordered_set<std::string_view> waiting_;
  std::unordered_set<std::string_view> called_, answered_;  // of the whole input
};

}  // namespace artery::codec::api
