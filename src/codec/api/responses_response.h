#pragma once
// The `response` object of the Responses API, as JSON with the keys in the official package's
// order. Pure functions, any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "codec/api/generators.h"

namespace artery::codec::api {

// What of the object changes while the answer comes.
struct ResponseFacts {
  std::string_view status = "in_progress";
  std::int64_t created_at = 0;  // Unix time, s
  std::optional<std::int64_t> completed_at;
  std::string output;  // items as JSON, joined by commas
  const AnswerFinish* finish = nullptr;
  std::string error = "null";  // JSON
};

std::string responses_object(const ResponsesAnswer& answer, const ResponseFacts& facts);

}  // namespace artery::codec::api
