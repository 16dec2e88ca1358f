#pragma once
// The tools of a Responses request: namespaces flattened to function names, built-in ones written
// out, those that a tool search found behind them. Private to the Responses conversion.

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/api/convert_responses_read.h"
#include "codec/api/rules.h"

namespace artery::codec::api {

// Which function name stands for which tool of a namespace: "ns::name" (V4: "ns__name"), _1, _2 and
// so on behind it where the name is taken.
class NamespaceNames {
 public:
  explicit NamespaceNames(ModelVersion version) : version_(version) {}

  void take(std::string_view name) { taken_.emplace(name); }
  // Names one more tool of a namespace.
  std::string add(std::string_view name_space, std::string_view name);
  // What a call of it is called: the first that was added; an unknown one gets a free name, the
  // same one from then on, without becoming a tool.
  std::string of(std::string_view name_space, std::string_view name);
  const NamespaceTools& tools() const { return tools_; }

 private:
  std::string joined(std::string_view name_space, std::string_view name) const;
  std::string free_name(std::string_view name_space, std::string_view name);

  ModelVersion version_;
  std::set<std::string, std::less<>> taken_;
  std::map<std::string, std::size_t> suffixes_;
  NamespaceTools tools_;
  std::map<std::pair<std::string, std::string>, std::string> first_;
};

struct FlatTools {
  explicit FlatTools(ModelVersion version) : names(version) {}

  std::vector<DeclaredTool> declared;  // in order; names checked one by one
  NamespaceNames names;
  bool has_apply_patch = false, has_tool_search = false;
  std::vector<std::string> custom;  // kServing: custom tools beside apply_patch
  // By index of the input's item: the names of the tools that its tool search found.
  std::map<std::size_t, std::vector<std::string>> found;
};

// The request's own tools and, on V4.1, those that tool searches in the input found behind them.
Ruled<FlatTools> flatten_tools(
    const ResponsesRequest& request, ModelVersion version, const ConvertOptions& options
);
// The names of the request's own namespaces alone.
Ruled<NamespaceTools> request_namespaces(
    const ResponsesRequest& request, ModelVersion version, const ConvertOptions& options
);

// Unique names and schemas, in order.
Ruled<> check_flat_tools(std::span<const DeclaredTool> tools);

// The tools as response objects repeat them.
JsonText echoed_tools(std::span<const ResponsesTool> tools, Rules rules);
// The content of a tool search's result. Refuses tools of unknown types; `index`: of the item.
Ruled<JsonText> found_tools_text(std::span<const ResponsesTool> tools, std::size_t index);

}  // namespace artery::codec::api
