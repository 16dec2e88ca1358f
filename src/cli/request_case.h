#pragma once
// One request in the form of ../shared/golden/codec/requests.jsonl: read, converted, rendered, and
// shown in the same form. One thread at a time; values.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "codec/api/convert.h"
#include "codec/api/json_tree.h"
#include "codec/deepseek/encoding.h"
#include "codec/tokenizer.h"

namespace artery::cli {

struct RequestCase {
  codec::api::Api api = codec::api::Api::kChat;
  codec::api::ConvertOptions options;
  codec::deepseek::SpecialTexts specials;
  std::string body;  // the bytes of the request
  // {prompt tokens, context limit}: what max_tokens would be after such a prompt.
  std::vector<std::pair<std::int64_t, std::int64_t>> resolve;
};

// What counts where a line does not say it, from the command line.
struct RequestDefaults {
  std::optional<codec::api::Api> api;
  // Renders with this one whatever the request's model is called.
  std::optional<codec::api::ModelVersion> encoding;
  // codec::api::Rules::kServing in place of recipe's.
  bool serving = false;
};

// A request as a client sends it.
RequestCase request_of_body(codec::api::Api api, std::string body, const RequestDefaults& defaults);

// `line`: {"api","options","body" or "body_text","resolve"}. kInvalidArgument: what is missing, of
// a wrong kind or unknown.
Result<RequestCase> read_request_case(
    const codec::api::Json& line, const RequestDefaults& defaults
);

// "deepseek-v4", "deepseek-v4.1"; "v4" and "v4.1" too.
std::optional<codec::api::ModelVersion> model_version_of(std::string_view name);

// The options of conversion in a line: `options`, and the spellings in its "special_tokens".
Result<> read_convert_options(
    const codec::api::Json& fields,
    codec::api::ConvertOptions& options,
    codec::deepseek::SpecialTexts& specials
);

// `"result":{...}` or `"error":{...}`. `tokenizer`: null leaves the ids out.
std::string run_request_case(const RequestCase& request, const codec::Tokenizer* tokenizer);

}  // namespace artery::cli
