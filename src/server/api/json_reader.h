#pragma once
// Request JSON to checked values: every accessor names the field in its error (`error.param`).
// Absent and null are the same (nullopt). Pure functions on one thread.

#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace artery::server::api {

constexpr std::size_t kJsonMemoryDefault = 64u << 20;

// UTF-8 JSON with at most `depth_max` levels. kInvalidArgument with the byte offset; of equal keys
// the last one wins; NaN and Infinity are not JSON. kTooLarge when its values would take more than
// `memory_max` bytes: each takes 24 and more, however few bytes of text it is.
Result<boost::json::value> parse_json(
    std::string_view text, int depth_max, std::size_t memory_max = kJsonMemoryDefault
);

// Text of one value, as JSON.
std::string to_json(const boost::json::value& value);

// "a string", "an array", ... for messages.
std::string_view type_name(const boost::json::value& value);

// One object of the request. `path` leads to it: "", "stream_options", "messages[2]".
class Fields {
 public:
  // kInvalidArgument when `value` is not an object.
  static Result<Fields> of(const boost::json::value& value, std::string path);

  bool has(std::string_view name) const { return find(name) != nullptr; }
  // nullptr when absent or null.
  const boost::json::value* find(std::string_view name) const;
  std::string path(std::string_view name) const;

  Result<std::optional<std::string>> text(std::string_view name) const;
  Result<bool> flag(std::string_view name, bool absent) const;
  // Whole numbers; 3.0 is taken for 3 because some clients know only doubles.
  Result<std::optional<std::int64_t>> integer(
      std::string_view name, std::int64_t min, std::int64_t max
  ) const;
  Result<std::optional<double>> number(std::string_view name, double min, double max) const;
  Result<const boost::json::array*> array(std::string_view name) const;    // nullptr: absent
  Result<const boost::json::object*> object(std::string_view name) const;  // nullptr: absent

 private:
  Fields(const boost::json::object* object, std::string path)
      : object_(object), path_(std::move(path)) {}
  const boost::json::object* object_;
  std::string path_;
};

// A whole number out of a value, integral doubles included; nullopt otherwise.
std::optional<std::int64_t> as_integer(const boost::json::value& value);

}  // namespace artery::server::api
