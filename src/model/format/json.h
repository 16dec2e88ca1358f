#pragma once
// JSON of model files (safetensors headers, config.json, indexes) as plain values, for hostile
// input: depth and number of values are limited, duplicate names kept for the caller to judge.
// Values, any thread. The only place of this room that knows the JSON library.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace artery::model {

struct JsonMember;

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;
  // An integer beyond int64 is a double; a number beyond double is infinite.
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value;

  bool is_null() const { return std::holds_alternative<std::monostate>(value); }
  const bool* boolean() const { return std::get_if<bool>(&value); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&value); }
  const std::string* text() const { return std::get_if<std::string>(&value); }
  const Array* array() const { return std::get_if<Array>(&value); }
  const Object* object() const { return std::get_if<Object>(&value); }
  const double* real() const { return std::get_if<double>(&value); }
  // Of an object: the first member of this name; null when absent or no object.
  const JsonValue* find(std::string_view name) const;
  // "a string", "an array": for messages.
  std::string_view kind() const;
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

// The whole text as one value. kBadFile, in one clause without a file name: "is not valid UTF-8",
// "is not valid JSON: ... at byte N", "is JSON nested too deeply (over N levels)", "has too many
// values".
Result<JsonValue> parse_json(std::string_view text);

// The same for an object of any size, one member at a time: memory is that of the largest member.
// `take`'s error ends it and is passed on.
Result<> parse_json_members(
    std::string_view text, const std::function<Result<>(JsonMember&& member)>& take
);

}  // namespace artery::model
