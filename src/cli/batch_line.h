#pragma once
// One line of a batch in the shape of OpenAI's batch files (vLLM's run-batch reads and writes the
// same): {"custom_id","method":"POST","url":"/v1/...","body":{...}} in, and out
// {"id","custom_id","response":{"status_code","request_id","body"},"error"}. Pure functions.

#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "server/offline.h"

namespace artery::cli {

struct BatchRequest {
  std::string custom_id;
  std::string path;
  std::string body;  // the JSON as it stands in the line, so that it means what it means over HTTP
};

// Why a line is no request: what `error` says of it.
struct BatchRefusal {
  std::optional<std::string> custom_id;
  std::string code;  // "invalid_json_line", "invalid_url", ...
  std::string message;
};

tl::expected<BatchRequest, BatchRefusal> read_batch_line(std::string_view line);

// Without the line's end.
std::string batch_answer_line(std::string_view custom_id, const server::OfflineAnswer& answer);
// `number`: of the line, from 1.
std::string batch_refusal_line(const BatchRefusal& refusal, std::int64_t number);

// What a line of an output file says; nullopt: it is none.
struct BatchRecord {
  std::string custom_id;     // empty: none
  bool is_answered = false;  // the request was served: status 200
};
std::optional<BatchRecord> read_batch_record(std::string_view line);

}  // namespace artery::cli
