#include "codec/api/strict_schema.h"

#include <fmt/format.h>

#include <unordered_set>

#include "codec/api/json_out.h"
#include "codec/api/json_style.h"
#include "codec/api/json_tree.h"

namespace artery::codec::api {
namespace {

using Form = StrictSchema::Form;
using Error = tl::unexpected<std::string>;

Checked<void> check_required(const StrictSchema& schema) {
  std::unordered_set<std::string_view> names, seen;
  for (const auto& [name, part] : schema.parts) names.insert(name);
  for (const std::string_view name : *schema.required) {
    if (!names.contains(name))
      return Error(fmt::format("Required property '{}' not found in object", name));
    if (!seen.insert(name).second)
      return Error(fmt::format("Duplicate required property '{}'", name));
  }
  if (seen.size() != names.size())
    return Error("Required properties must match all properties in the object");
  return {};
}

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) { out_ += '{'; }
  ~Writer() { out_ += '}'; }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  std::string& key(std::string_view name) {
    if (!std::exchange(first_, false)) out_ += ',';
    put_json_string(out_, name);
    out_ += ':';
    return out_;
  }
  void text(std::string_view name, const std::optional<std::string_view>& value) {
    if (value) put_json_string(key(name), *value);
  }
  void texts(std::string_view name, const std::vector<std::string_view>& values) {
    key(name) += '[';
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out_ += ',';
      put_json_string(out_, values[i]);
    }
    out_ += ']';
  }
  void members(std::string_view name, const StrictSchema::Members& members) {
    Writer inner(key(name));
    for (const auto& [member, schema] : members) append_strict(inner.key(member), schema);
  }

 private:
  std::string& out_;
  bool first_ = true;
};

void append_object(Writer& writer, const StrictSchema& schema) {
  writer.members("properties", schema.parts);
  writer.key("additionalProperties") += "false";
  std::vector<std::string_view> names;
  for (const auto& [name, part] : schema.parts) names.push_back(name);
  writer.texts("required", names);
  writer.text("description", schema.description);
  if (schema.defs) writer.members("$def", *schema.defs);
}

void append_any_of(Writer& writer, const StrictSchema& schema) {
  std::string& out = writer.key("anyOf");
  out += '[';
  for (std::size_t i = 0; i < schema.parts.size(); ++i) {
    if (i > 0) out += ',';
    append_strict(out, schema.parts[i].schema);
  }
  out += ']';
  writer.text("description", schema.description);
}

void append_simple(Writer& writer, const StrictSchema& schema) {
  writer.text("description", schema.description);
  writer.text("pattern", schema.pattern);
  writer.text("format", schema.format);
  if (schema.values) writer.texts("enum", *schema.values);
  for (std::size_t i = 0; i < schema.bounds.size(); ++i) {
    if (schema.bounds[i] != nullptr)
      append_json(writer.key(StrictSchema::kBounds[i]), *schema.bounds[i]);
  }
}

std::string_view type_name(Form form) {
  switch (form) {
    case Form::kObject:
      return "object";
    case Form::kString:
      return "string";
    case Form::kNumber:
      return "number";
    case Form::kInteger:
      return "integer";
    case Form::kBoolean:
      return "boolean";
    case Form::kArray:
      return "array";
    default:
      return "null";
  }
}

}  // namespace

Checked<void> check_strict(const StrictSchema& schema, bool may_be_empty) {
  const bool is_object = schema.form == Form::kObject;
  if (is_object && schema.parts.empty() && !may_be_empty)
    return Error("An object with no properties is not allowed.");
  const bool choices_may_be_empty = may_be_empty && schema.form == Form::kAnyOf;
  for (const auto& [name, part] : schema.parts) {
    if (auto checked = check_strict(part, choices_may_be_empty); !checked) return checked;
  }
  if (schema.defs) {
    for (const auto& [name, part] : *schema.defs) {
      if (auto checked = check_strict(part, false); !checked) return checked;
    }
  }
  if (schema.required) {
    if (auto checked = check_required(schema); !checked) return checked;
  }
  if (schema.additional.value_or(false)) return Error("additionalProperties should not be true");
  return {};
}

void append_strict(std::string& out, const StrictSchema& schema) {
  Writer writer(out);
  if (schema.form == Form::kRef) return writer.text("$ref", schema.ref);
  if (schema.form == Form::kAnyOf) return append_any_of(writer, schema);
  if (schema.form == Form::kTypes) {
    writer.texts("type", schema.types);
    return writer.text("description", schema.description);
  }
  writer.text("type", type_name(schema.form));
  if (schema.form == Form::kObject) return append_object(writer, schema);
  if (schema.form == Form::kArray) {
    append_strict(writer.key("items"), schema.parts.front().schema);
    return writer.text("description", schema.description);
  }
  append_simple(writer, schema);
}

}  // namespace artery::codec::api
