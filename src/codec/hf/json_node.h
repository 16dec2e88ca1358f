#pragma once
// A value of a JSON document and where it stands, for messages. Private to the room, views only.

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace artery::codec {

class JsonNode {
 public:
  // `value` may be null: the field is missing.
  JsonNode(const boost::json::value* value, std::string place)
      : value_(value), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  bool missing() const { return value_ == nullptr || value_->is_null(); }
  bool is_object() const { return value_ != nullptr && value_->is_object(); }
  bool is_array() const { return value_ != nullptr && value_->is_array(); }
  bool is_string() const { return value_ != nullptr && value_->is_string(); }
  const boost::json::value& value() const { return *value_; }

  JsonNode operator[](std::string_view key) const {
    const boost::json::value* found = is_object() ? value_->get_object().if_contains(key) : nullptr;
    return {found, place_.empty() ? std::string(key) : place_ + "." + std::string(key)};
  }
  JsonNode at(std::size_t index) const {
    return {&value_->get_array()[index], place_ + "[" + std::to_string(index) + "]"};
  }

  Result<const boost::json::object*> object() const {
    if (!is_object()) return wrong("an object");
    return &value_->get_object();
  }
  Result<const boost::json::array*> array() const {
    if (!is_array()) return wrong("an array");
    return &value_->get_array();
  }
  Result<std::string_view> text() const {
    if (!is_string()) return wrong("a string");
    return std::string_view(value_->get_string());
  }
  Result<bool> boolean(bool otherwise) const {
    if (missing()) return otherwise;
    if (!value_->is_bool()) return wrong("true or false");
    return value_->get_bool();
  }
  Result<double> number() const {
    if (value_ == nullptr || !value_->is_number()) return wrong("a number");
    return value_->to_number<double>();
  }
  // 0 to `limit` - 1.
  Result<std::int64_t> index(std::size_t limit) const {
    if (value_ == nullptr || !value_->is_int64()) return wrong("a whole number");
    const std::int64_t found = value_->get_int64();
    if (found < 0 || static_cast<std::uint64_t>(found) >= limit)
      return fail(Code::kBadFile, "{}: {} is not from 0 to {}", place_, found, limit - 1);
    return found;
  }

 private:
  tl::unexpected<Error> wrong(std::string_view wanted) const {
    const std::string_view place = place_.empty() ? "the document" : std::string_view(place_);
    if (missing()) return fail(Code::kBadFile, "{}: is missing; expected {}", place, wanted);
    const auto kind = boost::json::to_string(value_->kind());
    return fail(
        Code::kBadFile,
        "{}: expected {}, found {}",
        place,
        wanted,
        std::string_view(kind.data(), kind.size())
    );
  }

  const boost::json::value* value_;
  std::string place_;
};

// The document, or kBadFile with the byte where it goes wrong.
Result<boost::json::value> parse_json(
    std::string_view text, boost::json::storage_ptr memory = boost::json::storage_ptr()
);

// The parts of a tokenizer.json around its model: fill `spec`.
struct TokenizerSpec;
Result<> read_normalizer(const JsonNode& node, TokenizerSpec& spec);
Result<> read_pre_tokenizer(const JsonNode& node, TokenizerSpec& spec);
Result<> read_decoder(const JsonNode& node, TokenizerSpec& spec);
Result<> read_post_processor(const JsonNode& node, TokenizerSpec& spec);

}  // namespace artery::codec
