#include "codec/api/tool_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "codec/api/json_out.h"
#include "codec/api/json_style.h"
#include "codec/api/json_tree.h"
#include "codec/api/schema_check.h"
#include "codec/api/strict_schema.h"

namespace artery::codec::api {
namespace {

using Error = tl::unexpected<std::string>;

constexpr std::size_t kLongestName = 128;

Checked<void> check_name(const DeclaredTool& tool) {
  if (tool.name.empty()) {
    return Error(fmt::format(
        "Invalid '{}': empty string. Expected a string with minimum length 1, but got an empty "
        "string instead.",
        tool.name_place
    ));
  }
  if (tool.name.size() > kLongestName) {
    return Error(fmt::format(
        "Invalid '{}': string too long. Expected a string with maximum length {}, but got a string "
        "with length {} instead.",
        tool.name_place,
        kLongestName,
        tool.name.size()
    ));
  }
  const bool fits = std::ranges::all_of(tool.name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
  if (fits) return {};
  return Error(fmt::format(
      "Invalid '{}': string does not match pattern. Expected a string that matches the pattern "
      "'^[a-zA-Z0-9_-]+$'.",
      tool.name_place
  ));
}

bool is_strict(const DeclaredTool& tool) { return tool.strict.value_or(false); }

bool has_parameters(const DeclaredTool& tool) {
  return tool.parameters != nullptr && !tool.parameters->is_null();
}

Checked<void> check_plain(const DeclaredTool& tool) {
  const auto refuse = [&](std::string_view what) {
    return Error(fmt::format("Invalid schema for function '{}': {}", tool.name, what));
  };
  if (!has_parameters(tool))
    return tool.needs_parameters ? refuse(check_schema(Json()).error()) : Checked<void>();
  if (auto checked = check_schema(*tool.parameters); !checked) return refuse(checked.error());
  const Json* type = tool.parameters->find("type");
  if (type != nullptr && type->is_text("object")) return {};
  return refuse(fmt::format(
      "schema must be a JSON Schema of 'type: \"object\"', got 'type: {}'.",
      type == nullptr ? "null" : to_json(*type)
  ));
}

Checked<JsonText> strict_parameters(const DeclaredTool& tool) {
  StrictSchema schema;
  schema.form = StrictSchema::Form::kObject;
  if (has_parameters(tool)) {
    auto read = read_strict(*tool.parameters);
    if (!read) return Error("Invalid tool parameters schema : " + read.error());
    schema = std::move(*read);
  }
  if (auto checked = check_strict(schema, true); !checked) return Error(checked.error());
  if (schema.form != StrictSchema::Form::kObject)
    return Error("The top level of the function parameters schema must be an object.");
  JsonText out;
  append_strict(out, schema);
  return out;
}

}  // namespace

Checked<void> check_schema(const Json& schema) {
  const Json* name = schema.find("$schema");
  const SchemaDraft& draft =
      schema_draft_named(name != nullptr && name->is_string() ? name->text() : std::string_view());
  if (auto checked = check_keywords(schema, draft); !checked) return checked;
  return check_references(schema, draft);
}

Checked<void> check_tool_names(std::span<const DeclaredTool> tools) {
  for (const DeclaredTool& tool : tools) {
    if (auto checked = check_name(tool); !checked) return checked;
  }
  return {};
}

Checked<void> check_tool_schemas(std::span<const DeclaredTool> tools) {
  std::unordered_set<std::string_view> names;
  for (const DeclaredTool& tool : tools) {
    if (!names.insert(tool.name).second) return Error("Tool names must be unique.");
    if (!is_strict(tool)) {
      if (auto checked = check_plain(tool); !checked) return checked;
    } else if (auto parameters = strict_parameters(tool); !parameters) {
      return Error(std::move(parameters.error()));
    }
  }
  return {};
}

Checked<std::vector<Tool>> settle_tools(std::span<const DeclaredTool> tools) {
  std::vector<Tool> out;
  out.reserve(tools.size());
  for (const DeclaredTool& tool : tools) {
    JsonText parameters = has_parameters(tool) ? to_json(*tool.parameters) : "{}";
    if (is_strict(tool)) {
      auto normal = strict_parameters(tool);
      if (!normal) return Error(std::move(normal.error()));
      parameters = std::move(*normal);
    }
    out.push_back(
        {tool.name, tool.description, std::move(parameters), tool.strict, tool.defer_loading}
    );
  }
  return out;
}

Checked<void> check_mixed(std::span<const Tool> tools) {
  const auto strict =
      std::ranges::count_if(tools, [](const Tool& tool) { return tool.strict.value_or(false); });
  if (strict == 0 || static_cast<std::size_t>(strict) == tools.size()) return {};
  return Error("Cannot use strict tool with non-strict tool in the same request");
}

Checked<JsonText> check_response_schema(const Json& schema, bool strict) {
  const auto refuse = [](const std::string& what) {
    return Error(fmt::format("Invalid json schema: {}", what));
  };
  if (!strict) {
    if (auto checked = check_schema(schema); !checked) return refuse(checked.error());
    return to_json(schema);
  }
  auto read = read_strict(schema);
  if (!read) return refuse(read.error());
  if (auto checked = check_strict(*read, false); !checked) return Error(checked.error());
  if (read->form != StrictSchema::Form::kObject)
    return Error("The top level of the json schema must be an object.");
  JsonText out;
  append_strict(out, *read);
  return out;
}

JsonText tool_constraint(std::span<const Tool> tools) {
  JsonText out = "[";
  for (const Tool& tool : tools) {
    if (out.size() > 1) out += ',';
    out += R"({"type":"function","function":{"name":)";
    put_json_string(out, tool.name);
    out += R"(,"description":)";
    if (tool.description)
      put_json_string(out, *tool.description);
    else
      out += "null";
    out += R"(,"parameters":)";
    out += tool.parameters;
    out += R"(,"strict":)";
    out += !tool.strict ? "null" : *tool.strict ? "true" : "false";
    out += '}';
    if (tool.defer_loading) out += R"(,"defer_loading":true)";
    out += '}';
  }
  out += ']';
  return out;
}

}  // namespace artery::codec::api
