#include "model/format/hf_config.h"

#include <cmath>

#include "model/format/text.h"

namespace artery::model {
namespace {

const JsonValue* present(const JsonValue* value) {
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string shown(const JsonValue& value) {
  if (const auto* number = value.integer()) return fmt::format("{}", *number);
  if (const auto* real = value.real()) return fmt::format("{}", *real);
  if (const auto* text = value.text()) return fmt::format("'{}'", printable(*text));
  if (const auto* flag = value.boolean()) return *flag ? "true" : "false";
  return std::string(value.kind());
}

}  // namespace

Result<HfConfig> HfConfig::parse(std::string path, std::string_view text) {
  HfConfig out;
  out.path_ = std::move(path);
  Result<JsonValue> root = parse_json(text);
  if (!root) return out.fail(Code::kBadFile, "the file {}", root.error().message);
  if (root->object() == nullptr)
    return out.fail(Code::kBadFile, "is {} as JSON, expected an object", root->kind());
  out.root_ = std::move(*root);
  return out;
}

const JsonValue* HfConfig::text_config() const { return present(root_.find("text_config")); }

const JsonValue* HfConfig::find(std::string_view key) const {
  if (const JsonValue* inner = text_config()) {
    if (const JsonValue* value = present(inner->find(key))) return value;
  }
  return present(root_.find(key));
}

Result<std::int64_t> HfConfig::count(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return fail(Code::kBadFile, "{} is missing", key);
  const std::int64_t* number = value->integer();
  if (number == nullptr || *number < 1 || *number > kCountMax) {
    return fail(
        Code::kBadFile, "{} is {}, expected an integer of 1 to {}", key, shown(*value), kCountMax
    );
  }
  return *number;
}

Result<std::int64_t> HfConfig::count_or(std::string_view key, std::int64_t absent) const {
  if (!has(key)) return absent;
  return count(key);
}

Result<double> HfConfig::number(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return fail(Code::kBadFile, "{} is missing", key);
  if (const std::int64_t* integer = value->integer()) return static_cast<double>(*integer);
  if (const double* real = value->real(); real != nullptr && std::isfinite(*real)) return *real;
  return fail(Code::kBadFile, "{} is {}, expected a number", key, shown(*value));
}

Result<double> HfConfig::number_or(std::string_view key, double absent) const {
  if (!has(key)) return absent;
  return number(key);
}

Result<bool> HfConfig::flag_or(std::string_view key, bool absent) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return absent;
  if (value->boolean() != nullptr) return *value->boolean();
  return fail(Code::kBadFile, "{} is {}, expected true or false", key, shown(*value));
}

Result<std::string> HfConfig::text_or(std::string_view key, std::string_view absent) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::string(absent);
  if (value->text() != nullptr) return *value->text();
  return fail(Code::kBadFile, "{} is {}, expected a string", key, shown(*value));
}

Result<double> HfConfig::number_in(
    const JsonValue& object, std::string_view where, std::string_view key
) const {
  const JsonValue* value = present(object.find(key));
  if (value == nullptr) return fail(Code::kBadFile, "{}.{} is missing", where, key);
  if (const std::int64_t* integer = value->integer()) return static_cast<double>(*integer);
  if (const double* real = value->real(); real != nullptr && std::isfinite(*real)) return *real;
  return fail(Code::kBadFile, "{}.{} is {}, expected a number", where, key, shown(*value));
}

Result<double> HfConfig::number_in_or(
    const JsonValue& object, std::string_view where, std::string_view key, double absent
) const {
  if (present(object.find(key)) == nullptr) return absent;
  return number_in(object, where, key);
}

}  // namespace artery::model
