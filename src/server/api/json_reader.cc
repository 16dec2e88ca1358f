#include "server/api/json_reader.h"

#include <boost/json/memory_resource.hpp>
#include <boost/json/parser.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <cstddef>
#include <exception>
#include <new>
#include <utility>

namespace artery::server::api {

namespace json = boost::json;

namespace {

// Counts what a value takes and refuses beyond a limit, with the exception that the library expects
// of a resource. Values share it, so it lives as long as they do.
class BoundedMemory final : public json::memory_resource {
 public:
  explicit BoundedMemory(std::size_t most) : left_(most) {}

 private:
  // The library frees with other alignments than it allocates with, all within the usual one.
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (bytes > left_ || alignment > alignof(std::max_align_t)) throw std::bad_alloc();
    void* memory = ::operator new(bytes);
    left_ -= bytes;
    return memory;
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t) override {
    ::operator delete(memory);
    left_ += bytes;
  }
  bool do_is_equal(const json::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::size_t left_;
};

Result<json::value> parse_within(
    std::string_view text, const json::parse_options& options, const json::storage_ptr& memory
) {
  // The parser's own stack holds a whole array before it becomes a value, so it counts too.
  json::parser parser(memory, options);
  parser.reset(memory);
  json::error_code error;
  const std::size_t used = parser.write(text.data(), text.size(), error);
  if (error == json::error::too_deep) {
    return fail(
        Code::kInvalidArgument,
        "the JSON body is nested deeper than the limit of {} levels (near byte {})",
        options.max_depth,
        used
    );
  }
  if (!error) return parser.release();
  return fail(
      Code::kInvalidArgument, "the body is not valid JSON: {} near byte {}", error.message(), used
  );
}

}  // namespace

Result<json::value> parse_json(std::string_view text, int depth_max, std::size_t memory_max) {
  if (text.empty()) {
    return fail(Code::kInvalidArgument, "the request body is empty; send a JSON object");
  }
  json::parse_options options;
  options.max_depth = static_cast<std::size_t>(depth_max);
  try {
    return parse_within(text, options, json::make_shared_resource<BoundedMemory>(memory_max));
  } catch (const std::bad_alloc&) {
    return fail(
        Code::kTooLarge,
        "the JSON body of {} bytes holds so many values that they would take more than {} bytes of "
        "memory; send less at once, or raise --max-body-bytes",
        text.size(),
        memory_max
    );
  } catch (const std::exception& error) {
    return fail(Code::kInvalidArgument, "the JSON body cannot be read: {}", error.what());
  }
}

std::string to_json(const json::value& value) { return json::serialize(value); }

std::string_view type_name(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "unknown";
}

Result<Fields> Fields::of(const json::value& value, std::string path) {
  if (!value.is_object()) {
    const std::string what = path.empty() ? "the request body" : path;
    return fail_field(std::move(path), "{} must be an object, not {}", what, type_name(value));
  }
  return Fields(&value.get_object(), std::move(path));
}

const json::value* Fields::find(std::string_view name) const {
  const auto it = object_->find(json::string_view(name.data(), name.size()));
  return it == object_->end() || it->value().is_null() ? nullptr : &it->value();
}

std::string Fields::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

namespace {
tl::unexpected<Error> wrong_type(
    std::string field, std::string_view wanted, const json::value& found
) {
  const std::string name = field;
  return fail_field(std::move(field), "{} must be {}, not {}", name, wanted, type_name(found));
}
}  // namespace

Result<std::optional<std::string>> Fields::text(std::string_view name) const {
  const json::value* value = find(name);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return wrong_type(path(name), "a string", *value);
  const json::string& string = value->get_string();
  return std::optional<std::string>(std::string(string.data(), string.size()));
}

Result<bool> Fields::flag(std::string_view name, bool absent) const {
  const json::value* value = find(name);
  if (value == nullptr) return absent;
  if (!value->is_bool()) return wrong_type(path(name), "true or false", *value);
  return value->get_bool();
}

std::optional<std::int64_t> as_integer(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_double()) {
    const double number = value.get_double();
    // 2^53: beyond it a double does not tell neighbours apart.
    if (std::abs(number) <= 9007199254740992.0 && std::floor(number) == number) {
      return static_cast<std::int64_t>(number);
    }
  }
  return std::nullopt;
}

Result<std::optional<std::int64_t>> Fields::integer(
    std::string_view name, std::int64_t min, std::int64_t max
) const {
  const json::value* value = find(name);
  if (value == nullptr) return std::optional<std::int64_t>();
  if (!value->is_number()) return wrong_type(path(name), "a whole number", *value);
  const std::optional<std::int64_t> number = as_integer(*value);
  if (!number || *number < min || *number > max) {
    return fail_field(
        path(name),
        "{} must be a whole number from {} to {}, not {}",
        path(name),
        min,
        max,
        to_json(*value)
    );
  }
  return number;
}

Result<std::optional<double>> Fields::number(std::string_view name, double min, double max) const {
  const json::value* value = find(name);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number()) return wrong_type(path(name), "a number", *value);
  const double number = value->to_number<double>();
  // Written so that NaN fails as well.
  if (!(number >= min && number <= max)) {
    return fail_field(path(name), "{} must be from {} to {}, not {}", path(name), min, max, number);
  }
  return std::optional<double>(number);
}

Result<const json::array*> Fields::array(std::string_view name) const {
  const json::value* value = find(name);
  if (value == nullptr) return static_cast<const json::array*>(nullptr);
  if (!value->is_array()) return wrong_type(path(name), "an array", *value);
  return &value->get_array();
}

Result<const json::object*> Fields::object(std::string_view name) const {
  const json::value* value = find(name);
  if (value == nullptr) return static_cast<const json::object*>(nullptr);
  if (!value->is_object()) return wrong_type(path(name), "an object", *value);
  return &value->get_object();
}

}  // namespace artery::server::api
