#pragma once
// Typed reading of a request body with serde's manners: a field may be missing, null or of its
// type, unknown fields do not matter, an array may stand for an object (its fields in the order of
// declaration), a name of an enum may be {"name": null}. Sticky: the first thing wrong is kept with
// its place, whatever is read after it is empty; ask ok() before the request is used. Values, one
// thread; views live as long as the text and the Body.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "codec/api/convert.h"
#include "codec/api/json_tree.h"

namespace artery::codec::api {

// Where a value stands: "messages[1].content". Lives on the reader's stack, spelled only in errors.
struct Place {
  static constexpr std::size_t kNoIndex = static_cast<std::size_t>(-1);
  const Place* parent = nullptr;
  std::string_view key = {};
  std::size_t index = kNoIndex;
  Place field(std::string_view name) const { return {this, name, kNoIndex}; }
  Place item(std::size_t i) const { return {this, {}, i}; }
  std::string text() const;
};

class Body {
 public:
  // `text` must outlive it.
  explicit Body(std::string_view text);

  const Json& root() const;
  std::pmr::memory_resource& memory() { return tree_->memory(); }
  bool ok() const { return !error_; }
  // Only when not ok().
  const ConvertError& error() const { return *error_; }

  // Keep the error unless there is one already.
  void refuse(const Place& place, std::string_view what);
  void wrong_type(const Place& place, std::string_view wanted, const Json& found);

 private:
  std::optional<JsonTree> tree_;
  std::optional<ConvertError> error_;
};

// The fields of a struct in the order of its declaration, and how many of them an array that stands
// for it must have at least.
struct Shape {
  std::span<const std::string_view> fields;
  std::size_t least = 0;
};

// How a field is read.
//   need_*   missing or null is an error
//   maybe_*  missing or null is nullopt
// A function for other types takes find() or need() and reads on.
class Fields {
 public:
  // `tag`: the field that named the variant of an internally tagged enum (empty: none); in an array
  // it stands first and is not among the shape's fields.
  Fields(
      Body& body,
      const Json& value,
      const Place& place,
      const Shape& shape,
      std::string_view tag = {}
  );

  Body& body() const { return *body_; }
  const Place& place() const { return *place_; }
  Place place(std::string_view name) const { return place_->field(name); }

  // Null when missing or null.
  const Json* find(std::string_view name) const;
  // As it stands: a null value is a value. Null when missing.
  const Json* raw(std::string_view name) const;
  // A missing one is an error and null is returned; a null value is a value.
  const Json* need(std::string_view name) const;

  std::string_view need_text(std::string_view name) const;
  std::optional<std::string_view> maybe_text(std::string_view name) const;
  std::optional<bool> maybe_bool(std::string_view name) const;
  // Any number, rounded to float first as recipe holds it.
  std::optional<float> maybe_float(std::string_view name) const;
  // A whole number from 0 to `most`.
  std::optional<std::uint64_t> maybe_whole(std::string_view name, std::uint64_t most) const;
  // -2^63 to 2^63 - 1.
  std::optional<std::int64_t> maybe_integer(std::string_view name) const;
  // One of `names`: its index.
  std::optional<std::size_t> maybe_name(
      std::string_view name, std::span<const std::string_view> names
  ) const;
  std::optional<std::size_t> need_name(
      std::string_view name, std::span<const std::string_view> names
  ) const;
  // The items; none when missing or null, or when it is not an array (an error).
  std::span<const Json> maybe_items(std::string_view name) const;
  std::span<const Json> need_items(std::string_view name) const;

 private:
  Body* body_;
  const Json* value_;
  const Place* place_;
  const Shape* shape_;
  std::size_t offset_ = 0;  // of the shape's fields in an array
};

// The variant of an internally tagged enum: the index of value's `tag` in `names`, wherever the tag
// stands (first in an array). Nullopt: an error was kept.
std::optional<std::size_t> read_tag(
    Body& body,
    const Json& value,
    const Place& place,
    std::string_view tag,
    std::span<const std::string_view> names
);

// A string that must be one of `names`, or {"name": null}.
std::optional<std::size_t> read_name(
    Body& body, const Json& value, const Place& place, std::span<const std::string_view> names
);
std::string_view read_text(Body& body, const Json& value, const Place& place);
std::span<const Json> read_items(Body& body, const Json& value, const Place& place);

}  // namespace artery::codec::api
