#pragma once
// A Responses request as its JSON says it, typed but not judged; fields in the order of the
// official package's declaration (which counts where an array stands for an object). Views of the
// body. Private to the Responses conversion.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "codec/api/body.h"
#include "codec/api/conversation.h"
#include "codec/api/rules.h"

namespace artery::codec::api {

struct ResponsesPart {
  enum class Kind : std::uint8_t { kText, kImage, kFile };
  Kind kind = Kind::kText;
  std::string_view text;                               // kText
  std::optional<std::string_view> image_url, file_id;  // kImage
  ImageDetail detail = ImageDetail::kHigh;
};

struct ResponsesTool {
  enum class Kind : std::uint8_t {
    kFunction,
    kCustom,
    kNamespace,
    kWebSearch,
    kToolSearch,
    kOther  // of no type that is known: dropped
  };
  Kind kind = Kind::kOther;
  std::string_view type, name;
  std::optional<std::string_view> description;
  const Json* parameters = nullptr;
  std::optional<bool> strict;
  std::vector<ResponsesTool> inner;              // kNamespace
  std::optional<std::string_view> execution;     // kToolSearch: client, server
  std::optional<std::string_view> context_size;  // kWebSearch
  bool has_location = false;                     // kWebSearch
  std::optional<std::string_view> city, country, region, timezone;
  const Json* source = nullptr;  // as sent

  bool is_client_search() const { return kind == Kind::kToolSearch && execution == "client"; }
};

struct ResponsesItem {
  enum class Kind : std::uint8_t {
    kMessage,
    kCall,        // of a function
    kCustomCall,  // with a text as input
    kSearchCall,
    kOutput,        // of a function; its call may stay unnamed
    kCustomOutput,  //
    kSearchOutput,
    kReasoning,
    kWebSearch,  // a search the server made: dropped
    kReference,  // to an item that another response holds
    kOther       // dropped
  };
  Kind kind = Kind::kOther;
  std::size_t index = 0;             // in the input
  Role role = Role::kUser;           // kMessage
  bool is_developer = false;         // kMessage; `role` is kSystem then
  std::vector<ResponsesPart> parts;  // kMessage, outputs
  std::optional<std::string_view> call_id;
  std::string_view name, arguments;  // calls; of kCustomCall the input; kReference: the id
  std::optional<std::string_view> name_space;
  const Json* search = nullptr;  // kSearchCall: the arguments
  std::vector<std::string_view> reasoning;
  std::vector<ResponsesTool> tools;  // kSearchOutput
};

struct ResponsesFormat {
  ResponseFormat kind = ResponseFormat::kText;
  std::string_view name;
  const Json* schema = nullptr;
  std::optional<std::string_view> description;
  std::optional<bool> strict;
};

struct ResponsesChoice {
  bool given = false;
  bool is_web_search = false;
  ToolChoiceWish wish;
  std::string_view type;  // of an object
  // kServing, allowed_tools: the names that stay; `wish` is auto or required.
  std::optional<std::vector<std::string_view>> allowed;
  const Json* source = nullptr;
};

// What a server honours and recipe does not read.
struct ResponsesServing {
  std::optional<std::string_view> previous_response_id, prompt_cache_key, safety_identifier;
  std::optional<bool> store, parallel_calls, ignore_eos;
  std::optional<std::uint64_t> min_tokens;
  std::optional<std::int64_t> max_tool_calls, seed;
  std::optional<float> frequency_penalty, presence_penalty;
  const Json* metadata = nullptr;
  bool includes_encrypted_reasoning = false, includes_logprobs = false;
};

struct ResponsesRequest {
  std::string_view model;
  bool has_input = false;
  std::optional<std::string_view> input_text;
  std::vector<ResponsesItem> items;
  std::optional<std::string_view> instructions;
  std::optional<std::uint64_t> max_output_tokens, top_logprobs;
  std::optional<EffortWish> effort;
  std::optional<std::string_view> summary;
  std::optional<bool> stream;
  std::optional<float> temperature, top_p;
  ResponsesFormat format;
  std::optional<std::string_view> verbosity;
  ResponsesChoice tool_choice;
  std::vector<ResponsesTool> tools;
  std::optional<std::string_view> user;
  ResponsesServing serving;
};

// What is wrong is kept in `body`. kServing: more fields, parts and choices are understood.
ResponsesRequest read_responses_request(Body& body, Rules rules);

}  // namespace artery::codec::api
