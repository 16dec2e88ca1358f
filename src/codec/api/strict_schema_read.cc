#include <fmt/format.h>

#include <span>

#include "codec/api/json_tree.h"
#include "codec/api/serde_words.h"
#include "codec/api/strict_schema.h"

namespace artery::codec::api {
namespace {

using Form = StrictSchema::Form;
using Error = tl::unexpected<std::string>;

constexpr std::array<std::string_view, 7> kTypeNames = {
    "object", "string", "number", "integer", "boolean", "array", "null"
};
constexpr std::array<std::string_view, 5> kSimpleTypes = {
    "string", "number", "integer", "boolean", "null"
};
constexpr std::array<std::string_view, 5> kFormats = {"email", "hostname", "ipv4", "ipv6", "uuid"};

// The fields of each of kTypeNames in the order of their declaration.
constexpr std::array<std::string_view, 5> kObjectFields = {
    "properties", "additionalProperties", "required", "description", "$def"
};
constexpr std::array<std::string_view, 4> kStringFields = {
    "description", "pattern", "format", "enum"
};
constexpr std::array<std::string_view, 8> kNumberFields = {
    "description",
    "const",
    "default",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf"
};
constexpr std::array<std::string_view, 1> kPlainFields = {"description"};
constexpr std::array<std::string_view, 2> kArrayFields = {"items", "description"};

struct TypeShape {
  std::string_view variant;
  std::span<const std::string_view> fields;
};
constexpr std::array<TypeShape, 7> kShapes = {
    TypeShape{"Object", kObjectFields},
    TypeShape{"String", kStringFields},
    TypeShape{"Number", kNumberFields},
    TypeShape{"Integer", kNumberFields},
    TypeShape{"Boolean", kPlainFields},
    TypeShape{"Array", kArrayFields},
    TypeShape{"Null", kPlainFields}
};

std::string unknown_variant(std::string_view name, std::span<const std::string_view> known) {
  std::string out = fmt::format("unknown variant `{}`, expected one of ", name);
  for (std::size_t i = 0; i < known.size(); ++i)
    out += fmt::format("{}`{}`", i == 0 ? "" : ", ", known[i]);
  return out;
}

std::optional<std::size_t> index_of(
    std::string_view name, std::span<const std::string_view> known
) {
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (known[i] == name) return i;
  }
  return std::nullopt;
}

Checked<std::string_view> text_of(const Json& value) {
  if (!value.is_string()) return Error(invalid_type(value, "a string"));
  return value.text();
}

// A unit variant: its name, or {"name": nothing}.
Checked<std::string_view> variant_of(const Json& value, std::span<const std::string_view> known) {
  std::string_view name;
  if (value.is_object()) {
    if (value.members().size() != 1)
      return Error("invalid value: map, expected map with a single key");
    name = value.members().front().key;
  } else if (value.is_string()) {
    name = value.text();
  } else {
    return Error(invalid_type(value, "string or map"));
  }
  if (!index_of(name, known)) return Error(unknown_variant(name, known));
  if (value.is_object()) {
    const Json& unit = value.members().front().value;
    const bool empty = unit.is_null() || (unit.is_object() && unit.members().empty());
    if (!empty) return Error(invalid_type(unit, "unit"));
  }
  return name;
}

Checked<std::vector<std::string_view>> texts_of(const Json& value) {
  if (!value.is_array()) return Error(invalid_type(value, "a sequence"));
  std::vector<std::string_view> texts;
  for (const Json& item : value.items()) {
    const auto text = text_of(item);
    if (!text) return Error(text.error());
    texts.push_back(*text);
  }
  return texts;
}

Checked<StrictSchema::Members> members_of(const Json& value) {
  if (!value.is_object()) return Error(invalid_type(value, "a map"));
  StrictSchema::Members members;
  for (const JsonMember& member : value.members()) {
    auto schema = read_strict(member.value);
    if (!schema) return Error(schema.error());
    members.emplace_back(member.key, std::move(*schema));
  }
  return members;
}

// Puts what was read into `place`; the error otherwise.
template <class Place, class Read>
Checked<void> put(Place& place, Checked<Read> read) {
  if (!read) return Error(std::move(read.error()));
  place = std::move(*read);
  return {};
}

Checked<void> read_bound(StrictSchema& schema, std::size_t bound, const Json& value) {
  if (schema.form == Form::kInteger) {
    if (value.kind() != Json::Kind::kWhole && value.kind() != Json::Kind::kNegative)
      return Error(invalid_type(value, "i64"));
    if (value.kind() == Json::Kind::kWhole && value.whole() > INT64_MAX)
      return Error(invalid_value(value, "i64"));
  } else if (!value.is_number()) {
    return Error(invalid_type(value, "a JSON number"));
  }
  schema.bounds[bound] = &value;
  return {};
}

Checked<void> read_object_field(StrictSchema& schema, std::string_view name, const Json& value) {
  if (name == "properties") return put(schema.parts, members_of(value));
  if (name == "required") return put(schema.required, texts_of(value));
  if (name == "$def") return put(schema.defs, members_of(value));
  if (!value.is_bool()) return Error(invalid_type(value, "a boolean"));
  schema.additional = value.boolean();
  return {};
}

// One field of a type; null is the same as none but for an array's items.
Checked<void> read_field(StrictSchema& schema, std::string_view name, const Json& value) {
  if (name == "items") {
    auto item = read_strict(value);
    if (!item) return Error(std::move(item.error()));
    schema.parts.emplace_back(std::string_view(), std::move(*item));
    return {};
  }
  if (value.is_null()) return {};
  if (name == "description") return put(schema.description, text_of(value));
  if (name == "pattern") return put(schema.pattern, text_of(value));
  if (name == "format") return put(schema.format, variant_of(value, kFormats));
  if (name == "enum") return put(schema.values, texts_of(value));
  if (schema.form == Form::kObject) return read_object_field(schema, name, value);
  const auto bound = index_of(name, StrictSchema::kBounds);
  return bound ? read_bound(schema, *bound, value) : Checked<void>();
}

Checked<StrictSchema> of_type(const Json& type) {
  if (!type.is_string()) return Error(invalid_type(type, "variant identifier"));
  const auto form = index_of(type.text(), kTypeNames);
  if (!form) return Error(unknown_variant(type.text(), kTypeNames));
  StrictSchema schema;
  schema.form = static_cast<Form>(*form);
  return schema;
}

// An object whose "type" is one name.
Checked<StrictSchema> read_tagged(const Json& value, const Json& type) {
  auto schema = of_type(type);
  if (!schema) return schema;
  const TypeShape& shape = kShapes[static_cast<std::size_t>(schema->form)];
  for (const JsonMember& member : value.members()) {
    if (!index_of(member.key, shape.fields)) continue;
    if (auto read = read_field(*schema, member.key, member.value); !read)
      return Error(std::move(read.error()));
  }
  if (schema->form == Form::kArray && schema->parts.empty()) return Error("missing field `items`");
  return schema;
}

// The same as an array: the type, then all its fields.
Checked<StrictSchema> read_listed(std::span<const Json> items) {
  if (items.empty()) return Error("missing field `type`");
  auto schema = of_type(items.front());
  if (!schema) return schema;
  const auto& [variant, fields] = kShapes[static_cast<std::size_t>(schema->form)];
  const auto values = items.subspan(1);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i >= values.size()) {
      return Error(fmt::format(
          "invalid length {}, expected struct variant JsonSchemaType::{} with {} element{}",
          i,
          variant,
          fields.size(),
          fields.size() == 1 ? "" : "s"
      ));
    }
    if (auto read = read_field(*schema, fields[i], values[i]); !read)
      return Error(std::move(read.error()));
  }
  if (values.size() > fields.size()) {
    return Error(fmt::format(
        "invalid length {}, expected {} element{} in sequence",
        values.size(),
        fields.size(),
        fields.size() == 1 ? "" : "s"
    ));
  }
  return schema;
}

Checked<void> read_any_of(StrictSchema& schema, const Json& value) {
  if (!value.is_array()) return Error(invalid_type(value, "a sequence"));
  for (const Json& item : value.items()) {
    Checked<StrictSchema> part = Error(std::string());
    if (item.is_array()) {
      part = read_listed(item.items());
    } else if (!item.is_object()) {
      part = Error(invalid_type(item, "internally tagged enum JsonSchemaType"));
    } else {
      const Json* type = item.find("type");
      part = type == nullptr ? Error("missing field `type`") : read_tagged(item, *type);
    }
    if (!part) return Error(std::move(part.error()));
    schema.parts.emplace_back(std::string_view(), std::move(*part));
  }
  return {};
}

Checked<void> read_types(StrictSchema& schema, const Json& value) {
  for (const Json& item : value.items()) {
    const auto name = variant_of(item, kSimpleTypes);
    if (!name) return Error(name.error());
    schema.types.push_back(*name);
  }
  return {};
}

// Of the forms that are no single type.
Checked<StrictSchema> read_described(
    Form form,
    const Json& schema,
    std::string_view key,
    Checked<void> (*read)(StrictSchema&, const Json&)
) {
  StrictSchema out;
  out.form = form;
  if (auto done = read(out, *schema.find(key)); !done)
    return Error(fmt::format("field `{}`: {}", key, done.error()));
  const Json* description = schema.find("description");
  if (form == Form::kRef || description == nullptr || description->is_null()) return out;
  if (auto done = put(out.description, text_of(*description)); !done)
    return Error(fmt::format("field `description`: {}", done.error()));
  return out;
}

}  // namespace

Checked<StrictSchema> read_strict(const Json& schema) {
  if (const Json* type = schema.find("type"); type != nullptr) {
    if (!type->is_array()) return read_tagged(schema, *type);
    return read_described(Form::kTypes, schema, "type", read_types);
  }
  if (schema.find("anyOf") != nullptr)
    return read_described(Form::kAnyOf, schema, "anyOf", read_any_of);
  if (schema.find("$ref") == nullptr)
    return Error("one of `type`, `anyOf`, `$ref` field is required");
  return read_described(Form::kRef, schema, "$ref", [](StrictSchema& out, const Json& value) {
    return put(out.ref, text_of(value));
  });
}

}  // namespace artery::codec::api
