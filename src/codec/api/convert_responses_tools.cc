#include "codec/api/convert_responses_tools.h"

#include <fmt/format.h>

#include <unordered_set>

#include "codec/api/apply_patch.h"
#include "codec/api/json_out.h"
#include "codec/api/json_style.h"

namespace artery::codec::api {

namespace {

using Kind = ResponsesTool::Kind;

constexpr std::string_view kToolSearchName = "tool_search";

#define RULE(expr)                                                                    \
  do {                                                                                \
    if (auto ruled = (expr); !ruled) return tl::unexpected(std::move(ruled.error())); \
  } while (false)

Ruled<> check_name(std::string_view name, std::string place) {
  DeclaredTool tool;
  tool.name = name;
  tool.name_place = std::move(place);
  auto checked = check_tool_names({&tool, 1});
  if (!checked) return refused(std::move(checked.error()));
  return {};
}

// What a custom tool's declaration says beside its name, for a model that is offered a function.
std::optional<std::string> custom_description(const Json& source) {
  std::string text;
  if (const Json* const said = source.find("description"); said != nullptr && said->is_string())
    text = said->text();
  const Json* const format = source.find("format");
  const Json* const grammar = format == nullptr ? nullptr : format->find("definition");
  if (grammar != nullptr && grammar->is_string()) {
    const Json* const syntax = format->find("syntax");
    text += fmt::format(
        "{}The input must match this {} grammar:\n{}",
        text.empty() ? "" : "\n\n",
        syntax != nullptr && syntax->is_string() ? syntax->text() : "context-free",
        grammar->text()
    );
  }
  if (text.empty()) return std::nullopt;
  return text;
}

class Flattener {
 public:
  // `only_names`: what cannot be a tool of a namespace is not judged.
  Flattener(ModelVersion version, const ConvertOptions& options, bool only_names)
      : flat_(version), version_(version), options_(options), only_names_(only_names) {}

  void take_names(std::span<const ResponsesTool> tools) {
    for (const ResponsesTool& tool : tools)
      if (tool.kind == Kind::kFunction || tool.kind == Kind::kCustom) flat_.names.take(tool.name);
  }

  // `place`: of the list. `item`: of the input, for tools that a search found.
  Ruled<> add(
      std::span<const ResponsesTool> tools,
      const std::string& place,
      std::optional<std::size_t> item = std::nullopt
  ) {
    const std::size_t begin = flat_.declared.size();
    for (std::size_t i = 0; i < tools.size(); ++i)
      RULE(add_tool(tools[i], fmt::format("{}[{}]", place, i)));
    if (!item) return {};
    std::vector<std::string>& names = flat_.found[*item];
    for (std::size_t i = begin; i < flat_.declared.size(); ++i) {
      flat_.declared[i].defer_loading = true;
      names.push_back(flat_.declared[i].name);
    }
    return {};
  }

  FlatTools take() { return std::move(flat_); }

 private:
  Ruled<> add_tool(const ResponsesTool& tool, const std::string& place) {
    switch (tool.kind) {
      case Kind::kFunction:
        RULE(check_name(tool.name, place + ".name"));
        declare(std::string(tool.name), tool, place);
        return {};
      case Kind::kCustom:
        return add_custom(tool, place);
      case Kind::kNamespace:
        return add_namespace(tool, place);
      case Kind::kWebSearch:
        if (options_.responses_web_search == WebSearch::kReject && !only_names_)
          return refused("Server tools are not supported");
        return {};
      case Kind::kToolSearch:
        if (!tool.is_client_search()) return {};
        flat_.has_tool_search = true;
        if (version_ == ModelVersion::kV41) declare(std::string(kToolSearchName), tool, place);
        return {};
      case Kind::kOther:
        break;
    }
    return {};
  }

  Ruled<> add_custom(const ResponsesTool& tool, const std::string& place) {
    if (only_names_) return {};
    const bool is_patch = tool.name == kApplyPatch;
    if (!is_patch && options_.rules == Rules::kRecipe)
      return refused(fmt::format(
          "Unsupported custom tool: '{}'. Only '{}' is supported.", tool.name, kApplyPatch
      ));
    RULE(check_name(tool.name, place + ".name"));
    DeclaredTool& added = declare(std::string(tool.name), tool, place);
    if (is_patch) {
      flat_.has_apply_patch = true;
      added.description = apply_patch_description(version_);
      added.parameters = &apply_patch_parameters();
    } else {
      flat_.custom.emplace_back(tool.name);
      added.description = custom_description(*tool.source);
      added.parameters = &custom_tool_parameters();
    }
    return {};
  }

  Ruled<> add_namespace(const ResponsesTool& tool, const std::string& place) {
    RULE(check_name(tool.name, place + ".name"));
    std::unordered_set<std::string_view> inside;
    for (std::size_t i = 0; i < tool.inner.size(); ++i) {
      const ResponsesTool& inner = tool.inner[i];
      const std::string at = fmt::format("{}.tools[{}]", place, i);
      if (inner.kind == Kind::kCustom)
        return refused(fmt::format(
            "Currently custom tools are not allowed inside a namespace. Found custom tool '{}' in "
            "{}.",
            inner.name,
            at
        ));
      RULE(check_name(inner.name, at + ".name"));
      if (!inside.insert(inner.name).second)
        return refused("Tool names within a namespace must be unique.");
      DeclaredTool& added = declare(flat_.names.add(tool.name, inner.name), inner, at);
      const std::string_view about = tool.description.value_or("");
      if (version_ == ModelVersion::kV41 && !about.empty())
        added.description = fmt::format("{}\n{}", about, inner.description.value_or(""));
    }
    return {};
  }

  DeclaredTool& declare(std::string name, const ResponsesTool& tool, const std::string& place) {
    DeclaredTool& added = flat_.declared.emplace_back();
    added.name = std::move(name);
    if (tool.description) added.description = std::string(*tool.description);
    added.parameters = tool.parameters;
    added.strict = tool.strict;
    added.name_place = place + ".name";
    return added;
  }

  FlatTools flat_;
  ModelVersion version_;
  const ConvertOptions& options_;
  bool only_names_;
};

void put_key(std::string& out, std::string_view key) {
  out += R"(,")";
  out += key;
  out += R"(":)";
}

void put_text(
    std::string& out, std::string_view key, const std::optional<std::string_view>& value
) {
  put_key(out, key);
  if (value) {
    put_json_string(out, *value);
  } else {
    out += "null";
  }
}

void put_value(std::string& out, std::string_view key, const Json* value) {
  put_key(out, key);
  if (value == nullptr) {
    out += "null";
  } else {
    append_json(out, *value);
  }
}

// Without the closing brace.
void put_function(std::string& out, const ResponsesTool& tool) {
  put_text(out, "name", tool.name);
  put_text(out, "description", tool.description);
  put_value(out, "parameters", tool.parameters);
  put_key(out, "strict");
  out += !tool.strict ? "null" : *tool.strict ? "true" : "false";
}

void put_location(std::string& out, const ResponsesTool& tool) {
  put_key(out, "user_location");
  if (!tool.has_location) {
    out += "null";
    return;
  }
  std::string inside;
  put_text(inside, "city", tool.city);
  put_text(inside, "country", tool.country);
  put_text(inside, "region", tool.region);
  put_text(inside, "timezone", tool.timezone);
  out += '{';
  out += std::string_view(inside).substr(1);
  out += '}';
}

void put_tool(std::string& out, const ResponsesTool& tool) {
  out += R"({"type":)";
  put_json_string(out, tool.type);
  switch (tool.kind) {
    case Kind::kFunction:
      put_function(out, tool);
      break;
    case Kind::kCustom:
      put_text(out, "name", tool.name);
      break;
    case Kind::kNamespace:
      put_text(out, "name", tool.name);
      put_text(out, "description", tool.description);
      put_key(out, "tools");
      out += '[';
      for (std::size_t i = 0; i < tool.inner.size(); ++i) {
        if (i > 0) out += ',';
        put_tool(out, tool.inner[i]);
      }
      out += ']';
      break;
    case Kind::kWebSearch:
      put_text(out, "search_context_size", tool.context_size);
      put_location(out, tool);
      break;
    case Kind::kToolSearch:
      put_text(out, "execution", tool.execution);
      put_text(out, "description", tool.description);
      put_value(out, "parameters", tool.parameters);
      break;
    case Kind::kOther:
      break;
  }
  out += '}';
}

}  // namespace

// V4 puts no underscores where one stands at the joint already.
std::string NamespaceNames::joined(std::string_view name_space, std::string_view name) const {
  const bool is_joint = name_space.ends_with('_') || name.starts_with('_');
  const std::string_view v4_joint = is_joint ? "" : "__";
  return fmt::format("{}{}{}", name_space, version_ == ModelVersion::kV4 ? v4_joint : "::", name);
}

std::string NamespaceNames::free_name(std::string_view name_space, std::string_view name) {
  const std::string base = joined(name_space, name);
  std::string free = base;
  std::size_t& suffix = suffixes_[base];  // those below it are taken
  while (!taken_.insert(free).second) free = fmt::format("{}_{}", base, ++suffix);
  first_.try_emplace(std::pair{std::string(name_space), std::string(name)}, free);
  return free;
}

std::string NamespaceNames::add(std::string_view name_space, std::string_view name) {
  std::string free = free_name(name_space, name);
  tools_[free] = {std::string(name_space), std::string(name)};
  return free;
}

std::string NamespaceNames::of(std::string_view name_space, std::string_view name) {
  const auto found = first_.find(std::pair(std::string(name_space), std::string(name)));
  return found == first_.end() ? free_name(name_space, name) : found->second;
}

Ruled<NamespaceTools> request_namespaces(
    const ResponsesRequest& request, ModelVersion version, const ConvertOptions& options
) {
  Flattener flattener(version, options, true);
  flattener.take_names(request.tools);
  RULE(flattener.add(request.tools, "tools"));
  return flattener.take().names.tools();
}

Ruled<FlatTools> flatten_tools(
    const ResponsesRequest& request, ModelVersion version, const ConvertOptions& options
) {
  Flattener flattener(version, options, false);
  const bool with_found = version == ModelVersion::kV41;
  flattener.take_names(request.tools);
  for (const ResponsesItem& item : request.items)
    if (with_found) flattener.take_names(item.tools);
  RULE(flattener.add(request.tools, "tools"));
  for (const ResponsesItem& item : request.items)
    if (with_found && item.kind == ResponsesItem::Kind::kSearchOutput)
      RULE(flattener.add(item.tools, fmt::format("input[{}].tools", item.index), item.index));
  return flattener.take();
}

Ruled<> check_flat_tools(std::span<const DeclaredTool> tools) {
  std::unordered_set<std::string_view> names;
  for (const DeclaredTool& tool : tools) {
    if (!names.insert(tool.name).second) return refused("Tool names must be unique.");
    auto checked = check_tool_schemas({&tool, 1});
    if (!checked) return refused(std::move(checked.error()));
  }
  return {};
}

JsonText echoed_tools(std::span<const ResponsesTool> tools, Rules rules) {
  std::string out = "[";
  for (const ResponsesTool& tool : tools) {
    if (rules == Rules::kRecipe && tool.kind == Kind::kOther) continue;
    if (out.size() > 1) out += ',';
    if (rules == Rules::kServing) {
      append_json(out, *tool.source);
    } else {
      put_tool(out, tool);
    }
  }
  return out + ']';
}

Ruled<JsonText> found_tools_text(std::span<const ResponsesTool> tools, std::size_t index) {
  std::string out = "[";
  for (const ResponsesTool& tool : tools) {
    if (tool.kind == Kind::kOther)
      return refused(fmt::format(
          "input[{}]: the enum variant ResponsesTool::Unsupported cannot be serialized", index
      ));
    if (tool.kind != Kind::kNamespace) {
      if (out.size() > 1) out += ',';
      put_tool(out, tool);
      continue;
    }
    for (const ResponsesTool& inner : tool.inner) {
      if (out.size() > 1) out += ',';
      put_tool(out, inner);
      out.pop_back();
      out += R"(,"namespace":{"name":)";
      put_json_string(out, tool.name);
      put_text(out, "description", tool.description.value_or(""));
      out += "}}";
    }
  }
  return out + ']';
}

#undef RULE

}  // namespace artery::codec::api
