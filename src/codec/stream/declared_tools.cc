#include "codec/stream/declared_tools.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <map>
#include <set>
#include <utility>

#include "codec/stream/json_scan.h"

namespace artery::codec {
namespace {

namespace json = boost::json;

const json::value* member(const json::value* value, std::string_view key) {
  const json::object* object = value == nullptr ? nullptr : value->if_object();
  return object == nullptr ? nullptr : object->if_contains(key);
}

std::string_view text_of(const json::value* value) {
  const json::string* text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? std::string_view() : std::string_view(text->data(), text->size());
}

class Tools final : public DeclaredTools {
 public:
  explicit Tools(const json::array& tools) {
    for (const json::value& tool : tools) {
      const json::value* function = member(&tool, "function");
      const std::string_view name = text_of(member(function, "name"));
      if (name.empty()) continue;
      std::set<std::string, std::less<>>& typed = typed_[std::string(name)];
      const json::value* properties = member(member(function, "parameters"), "properties");
      if (properties == nullptr || !properties->is_object()) continue;
      for (const auto& [key, schema] : properties->get_object()) {
        if (!is_text_schema(schema)) typed.emplace(key);
      }
    }
  }

  bool has(std::string_view function) const override { return typed_.contains(function); }
  bool is_text(std::string_view function, std::string_view parameter) const override {
    const auto found = typed_.find(function);
    return found == typed_.end() || !found->second.contains(parameter);
  }

 private:
  // A schema without a simple type allows other things beside text: its value is JSON where it
  // reads as JSON.
  static bool is_text_schema(const json::value& schema) {
    const json::value* type = member(&schema, "type");
    if (type != nullptr) return text_of(type) == "string";
    if (const json::value* values = member(&schema, "enum"); values != nullptr) {
      const json::array* list = values->if_array();
      return list != nullptr && !list->empty() && list->front().is_string();
    }
    const json::object* object = schema.if_object();
    return object == nullptr || object->empty() ||
           !(object->contains("anyOf") || object->contains("oneOf") || object->contains("$ref"));
  }

  std::map<std::string, std::set<std::string, std::less<>>, std::less<>> typed_;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_json_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_json_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

std::shared_ptr<const DeclaredTools> read_declared_tools(std::string_view tools_json) {
  json::error_code error;
  json::parse_options deep;
  deep.max_depth = 128;  // the request was read with less
  const json::value tools = json::parse(tools_json, error, {}, deep);
  return std::make_shared<Tools>(error || !tools.is_array() ? json::array() : tools.get_array());
}

std::string json_or_text(std::string_view text) {
  const std::string_view value = trimmed(text);
  if (value == "True") return "true";
  if (value == "False") return "false";
  if (value == "None") return "null";
  json::error_code error;
  json::parse(value, error);
  return error ? "\"" + json_escape(text) + "\"" : std::string(value);
}

}  // namespace artery::codec
