#pragma once
// The built-in apply_patch tool of the Responses API as a model is shown it: data of the record.
// Constants, any thread.

#include <string>

#include "codec/api/convert.h"
#include "codec/api/json_tree.h"

namespace artery::codec::api {

inline constexpr std::string_view kApplyPatch = "apply_patch";

// The two versions differ in one blank line.
std::string apply_patch_description(ModelVersion version);
// {"type":"object",...} with one string, input.
const Json& apply_patch_parameters();
// The same for any other custom tool.
const Json& custom_tool_parameters();

}  // namespace artery::codec::api
