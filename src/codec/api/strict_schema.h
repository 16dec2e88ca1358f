#pragma once
// The subset of JSON Schema that strict tools and response formats may use: read with the official
// package's manners and texts, checked, and written in its normal form. Views of the tree it was
// read from. Pure, any thread; depth is bounded by the JSON reader's.

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/api/tool_schema.h"

namespace artery::codec::api {

struct StrictSchema {
  enum class Form {
    kObject,
    kString,
    kNumber,
    kInteger,
    kBoolean,
    kArray,
    kNull,
    kTypes,  // several simple types
    kAnyOf,
    kRef
  };
  struct Member;
  using Members = std::vector<Member>;

  Form form = Form::kNull;
  std::optional<std::string_view> description;
  // kObject; an array's one item schema and anyOf's stand in `parts` too, without names.
  Members parts;
  std::optional<bool> additional;
  std::optional<std::vector<std::string_view>> required;
  std::optional<Members> defs;  // its key is "$def", which nobody writes
  // kString
  std::optional<std::string_view> pattern, format;
  std::optional<std::vector<std::string_view>> values;
  // kNumber, kInteger, in the order of kBounds
  std::array<const Json*, 7> bounds{};
  std::vector<std::string_view> types;  // kTypes
  std::string_view ref;                 // kRef

  static constexpr std::array<std::string_view, 7> kBounds = {
      "const", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"
  };
};

struct StrictSchema::Member {
  std::string_view name;
  StrictSchema schema;
};

// What is wrong with its shape, in serde's words.
Checked<StrictSchema> read_strict(const Json& schema);
// The rules for objects, inner ones first. `may_be_empty`: of this one only,
// or of the choices when it is anyOf.
Checked<void> check_strict(const StrictSchema& schema, bool may_be_empty);
void append_strict(std::string& out, const StrictSchema& schema);

}  // namespace artery::codec::api
