#pragma once
// One flat JSON object of texts and whole numbers on one line: the form of the store's small files
// (spaces, keys, orders), so that any JSON reader can read them and a damaged line costs only
// itself. Plain values, any thread. Not a JSON library: nested values, floating point, escapes of
// anything but ASCII, a name twice and anything after the object are refused.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace artery::kvstore {

class FlatJson {
 public:
  // nullopt: not such an object.
  static std::optional<FlatJson> parse(std::string_view line);

  // Null when absent or of the other kind.
  const std::string* text(std::string_view name) const;
  const std::int64_t* number(std::string_view name) const;

  FlatJson& add(std::string_view name, std::string value);
  FlatJson& add(std::string_view name, std::int64_t value);
  // In the order of add(), without a line's end. Bytes from 0x80 on are written as they are.
  std::string line() const;

 private:
  using Value = std::variant<std::string, std::int64_t>;
  const Value* find(std::string_view name) const;
  std::vector<std::pair<std::string, Value>> members_;
};

}  // namespace artery::kvstore
