#pragma once
// What the three APIs demand of tools and of the JSON Schemas in them and in response formats, with
// the official package's texts: names, the schemas themselves against their draft's meta-schema
// (4, 6, 7, 2019-09, 2020-12; references must resolve inside the schema), and the strict subset,
// which is normalised. Pure functions, any thread; depth is bounded by the JSON reader's (127).
// Nothing is ever fetched.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "codec/api/conversation.h"

namespace artery::codec::api {

class Json;

// A function tool as a request declares it.
struct DeclaredTool {
  std::string name;
  std::optional<std::string> description;
  const Json* parameters = nullptr;  // nullptr or null: none given
  bool needs_parameters = false;     // none given is refused as the schema null
  std::optional<bool> strict;
  bool defer_loading = false;
  std::string name_place;  // "tools[0].function.name", for errors
};

// The error's message; it is an invalid_request_error without a param.
template <class T>
using Checked = tl::expected<T, std::string>;

// What is checked of tools, in the order in which errors win; between the steps rules.h applies the
// tool choice, see apply_tools(). Seen of the official package:
// 1. each name (length, letters), whatever the tool choice is;
Checked<void> check_tool_names(std::span<const DeclaredTool> tools);
// 2. not with tool choice none: tool by tool that its name is new, and its schema: against its
//    draft and then its type, which must be "object"; a strict one by the rules of the subset;
Checked<void> check_tool_schemas(std::span<const DeclaredTool> tools);
// 3. of the tools that the choice leaves their definitions: a strict tool's parameters normalised,
//    all others as given; none: {};
Checked<std::vector<Tool>> settle_tools(std::span<const DeclaredTool> tools);
// 4. when the constraint is made, resolve_output(): strict and non-strict ones mixed.
Checked<void> check_mixed(std::span<const Tool> tools);

// A response format's schema: the text of its constraint, normalised when `strict`.
Checked<JsonText> check_response_schema(const Json& schema, bool strict);

// OutputConstraint::schema of kToolCall and kToolCallRequired: a compact array of Chat Completions
// function tools.
JsonText tool_constraint(std::span<const Tool> tools);

// The parts of the above. `schema` against its draft: an error without a prefix.
Checked<void> check_schema(const Json& schema);

}  // namespace artery::codec::api
