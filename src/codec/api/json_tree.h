#pragma once
// A request body as a JSON tree, read as serde_json reads it (recipe's manners, see the record's
// README): whole numbers apart from fractions, -0 is -0.0, whole numbers beyond 64 bits become
// doubles, of equal keys the last value at the first place, at most 127 nested levels; no BOM, no
// lone surrogate, no number beyond a double, no invalid UTF-8. Strings without escapes are views
// into the text; everything else lies in one arena. At most about 16 bytes a byte of text. Values
// are read-only: any thread.

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace artery::codec::api {

struct JsonMember;

class Json {
 public:
  enum class Kind : std::uint8_t {
    kNull,
    kBool,
    kWhole,     // 0 to 2^64 - 1
    kNegative,  // -2^63 to -1
    kDouble,
    kString,
    kArray,
    kObject
  };
  Json() = default;
  static Json make_bool(bool value);
  static Json make_whole(std::uint64_t value);
  static Json make_negative(std::int64_t value);
  static Json make_double(double value);
  // Not copied: the text must live as long as the value. So in the two below.
  static Json make_text(std::string_view text);
  static Json make_array(std::span<const Json> items);
  static Json make_object(std::span<const JsonMember> members);

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }
  bool is_number() const { return kind_ >= Kind::kWhole && kind_ <= Kind::kDouble; }

  // Each only of its kind.
  bool boolean() const { return flag_; }
  std::uint64_t whole() const { return whole_; }
  std::int64_t negative() const { return negative_; }
  double real() const { return real_; }
  std::string_view text() const { return {text_, size_}; }
  std::span<const Json> items() const { return {items_, size_}; }
  std::span<const JsonMember> members() const;

  // Any of the three kinds of number.
  double number() const;
  // The member of that name, or null; null also when this is no object. Linear in the members.
  const Json* find(std::string_view key) const;
  // Null when this is no string.
  bool is_text(std::string_view wanted) const { return is_string() && text() == wanted; }

 private:
  Kind kind_ = Kind::kNull;
  std::uint32_t size_ = 0;
  union {
    std::uint64_t whole_ = 0;
    bool flag_;
    std::int64_t negative_;
    double real_;
    const char* text_;
    const Json* items_;
    const JsonMember* members_;
  };
};

struct JsonMember {
  std::string_view key;
  Json value;
};

inline std::span<const JsonMember> Json::members() const { return {members_, size_}; }

// "null", "a boolean", "a string", ...: for messages.
std::string_view kind_name(const Json& value);

class JsonTree {
 public:
  // As many nested levels as serde_json reads.
  static constexpr int kMaxDepth = 127;
  // `text` must live as long as the tree. The error is one sentence with line and column.
  // `max_depth`: more only for texts of our own around a request.
  static tl::expected<JsonTree, std::string> parse(
      std::string_view text, int max_depth = kMaxDepth
  );

  const Json& root() const { return root_; }
  // For values that are made from this tree's; they live as long as the tree.
  std::pmr::memory_resource& memory() { return *memory_; }

 private:
  std::unique_ptr<std::pmr::monotonic_buffer_resource> memory_;
  Json root_;
};

}  // namespace artery::codec::api
