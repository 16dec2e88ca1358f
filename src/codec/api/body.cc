#include "codec/api/body.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace artery::codec::api {
namespace {

ConvertError parse_error(std::string message) {
  ConvertError error;
  error.stage = ConvertError::Stage::kParse;
  error.message = std::move(message);
  return error;
}

std::string listed(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names)
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", name);
  return text;
}

// What a message shows of a value: names and numbers in full, the rest by its kind.
std::string shown(const Json& value) {
  constexpr std::size_t kMostShown = 60;
  if (!value.is_string()) return std::string(kind_name(value));
  std::string_view text = value.text();
  if (text.size() <= kMostShown) return fmt::format("`{}`", text);
  std::size_t end = kMostShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return fmt::format("`{}...`", text.substr(0, end));
}

const Json kNullValue{};

}  // namespace

std::string Place::text() const {
  std::vector<const Place*> steps;
  for (const Place* step = this; step != nullptr; step = step->parent) steps.push_back(step);
  std::string text;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if ((*step)->index != kNoIndex)
      text += fmt::format("[{}]", (*step)->index);
    else if (!(*step)->key.empty())
      text += fmt::format("{}{}", text.empty() ? "" : ".", (*step)->key);
  }
  return text;
}

Body::Body(std::string_view text) {
  auto tree = JsonTree::parse(text);
  if (tree)
    tree_.emplace(std::move(*tree));
  else
    error_ = parse_error("invalid JSON request: " + tree.error());
}

const Json& Body::root() const { return tree_ ? tree_->root() : kNullValue; }

void Body::refuse(const Place& place, std::string_view what) {
  if (error_) return;
  const std::string where = place.text();
  error_ = parse_error(
      where.empty() ? fmt::format("invalid request body: {}", what)
                    : fmt::format("invalid request body: {}: {}", where, what)
  );
}

void Body::wrong_type(const Place& place, std::string_view wanted, const Json& found) {
  if (error_) return;
  refuse(place, fmt::format("expected {}, found {}", wanted, shown(found)));
}

Fields::Fields(
    Body& body, const Json& value, const Place& place, const Shape& shape, std::string_view tag
)
    : body_(&body), value_(&value), place_(&place), shape_(&shape), offset_(tag.empty() ? 0 : 1) {
  if (value.is_object()) return;
  if (!value.is_array()) {
    body.wrong_type(place, "an object", value);
    value_ = &kNullValue;
    return;
  }
  const std::size_t size = value.items().size();
  if (size >= shape.least + offset_ && size <= shape.fields.size() + offset_) return;
  body.refuse(
      place,
      fmt::format(
          "an array of {} values in place of an object of {} fields",
          size,
          shape.fields.size() + offset_
      )
  );
  value_ = &kNullValue;
}

const Json* Fields::raw(std::string_view name) const {
  if (value_->is_object()) return value_->find(name);
  if (!value_->is_array()) return nullptr;
  const auto found = std::find(shape_->fields.begin(), shape_->fields.end(), name);
  if (found == shape_->fields.end()) return nullptr;
  const std::size_t index = static_cast<std::size_t>(found - shape_->fields.begin()) + offset_;
  return index < value_->items().size() ? &value_->items()[index] : nullptr;
}

const Json* Fields::find(std::string_view name) const {
  const Json* const found = raw(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

const Json* Fields::need(std::string_view name) const {
  const Json* const found = raw(name);
  if (found == nullptr) body_->refuse(place(name), "the field is missing");
  return found;
}

std::string_view Fields::need_text(std::string_view name) const {
  const Json* const found = need(name);
  return found == nullptr ? std::string_view() : read_text(*body_, *found, place(name));
}

std::optional<std::string_view> Fields::maybe_text(std::string_view name) const {
  const Json* const found = find(name);
  if (found == nullptr) return std::nullopt;
  return read_text(*body_, *found, place(name));
}

std::optional<bool> Fields::maybe_bool(std::string_view name) const {
  const Json* const found = find(name);
  if (found == nullptr) return std::nullopt;
  if (found->is_bool()) return found->boolean();
  body_->wrong_type(place(name), "true or false", *found);
  return std::nullopt;
}

std::optional<float> Fields::maybe_float(std::string_view name) const {
  const Json* const found = find(name);
  if (found == nullptr) return std::nullopt;
  if (found->is_number()) return static_cast<float>(found->number());
  body_->wrong_type(place(name), "a number", *found);
  return std::nullopt;
}

std::optional<std::uint64_t> Fields::maybe_whole(std::string_view name, std::uint64_t most) const {
  const Json* const found = find(name);
  if (found == nullptr) return std::nullopt;
  if (found->kind() == Json::Kind::kWhole && found->whole() <= most) return found->whole();
  body_->wrong_type(place(name), fmt::format("a whole number from 0 to {}", most), *found);
  return std::nullopt;
}

std::optional<std::int64_t> Fields::maybe_integer(std::string_view name) const {
  const Json* const found = find(name);
  if (found == nullptr) return std::nullopt;
  if (found->kind() == Json::Kind::kNegative) return found->negative();
  constexpr std::uint64_t kMost = INT64_MAX;
  if (found->kind() == Json::Kind::kWhole && found->whole() <= kMost)
    return static_cast<std::int64_t>(found->whole());
  body_->wrong_type(place(name), "a whole number", *found);
  return std::nullopt;
}

std::optional<std::size_t> Fields::maybe_name(
    std::string_view name, std::span<const std::string_view> names
) const {
  const Json* const found = find(name);
  if (found == nullptr) return std::nullopt;
  return read_name(*body_, *found, place(name), names);
}

std::optional<std::size_t> Fields::need_name(
    std::string_view name, std::span<const std::string_view> names
) const {
  const Json* const found = need(name);
  if (found == nullptr) return std::nullopt;
  return read_name(*body_, *found, place(name), names);
}

std::span<const Json> Fields::maybe_items(std::string_view name) const {
  const Json* const found = find(name);
  if (found == nullptr) return {};
  return read_items(*body_, *found, place(name));
}

std::span<const Json> Fields::need_items(std::string_view name) const {
  const Json* const found = need(name);
  if (found == nullptr) return {};
  return read_items(*body_, *found, place(name));
}

std::optional<std::size_t> read_tag(
    Body& body,
    const Json& value,
    const Place& place,
    std::string_view tag,
    std::span<const std::string_view> names
) {
  const Json* found = nullptr;
  if (value.is_array()) {
    if (!value.items().empty()) found = &value.items().front();
  } else if (value.is_object()) {
    found = value.find(tag);
  } else {
    body.wrong_type(place, "an object", value);
    return std::nullopt;
  }
  if (found == nullptr) {
    body.refuse(place.field(tag), "the field is missing");
    return std::nullopt;
  }
  if (found->is_string()) {
    const auto name = std::find(names.begin(), names.end(), found->text());
    if (name != names.end()) return static_cast<std::size_t>(name - names.begin());
  }
  body.wrong_type(place.field(tag), "one of " + listed(names), *found);
  return std::nullopt;
}

std::optional<std::size_t> read_name(
    Body& body, const Json& value, const Place& place, std::span<const std::string_view> names
) {
  std::string_view text;
  if (value.is_string()) {
    text = value.text();
  } else if (value.is_object() && value.members().size() == 1 &&
             value.members().front().value.is_null()) {
    text = value.members().front().key;
  } else {
    body.wrong_type(place, "one of " + listed(names), value);
    return std::nullopt;
  }
  const auto name = std::find(names.begin(), names.end(), text);
  if (name != names.end()) return static_cast<std::size_t>(name - names.begin());
  body.wrong_type(place, "one of " + listed(names), value);
  return std::nullopt;
}

std::string_view read_text(Body& body, const Json& value, const Place& place) {
  if (value.is_string()) return value.text();
  body.wrong_type(place, "a string", value);
  return {};
}

std::span<const Json> read_items(Body& body, const Json& value, const Place& place) {
  if (value.is_array()) return value.items();
  body.wrong_type(place, "an array", value);
  return {};
}

}  // namespace artery::codec::api
