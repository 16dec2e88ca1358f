#pragma once
// config.json of a released checkpoint: typed access with errors that name file, key and what was
// found. Where the file nests the language model under text_config, that part comes first.
// Immutable after parse, any thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/format/json.h"

namespace artery::model {

class HfConfig {
 public:
  // `path`: of the file, for messages. kBadFile: no JSON object.
  static Result<HfConfig> parse(std::string path, std::string_view text);

  const std::string& path() const { return path_; }
  // Null when absent or null.
  const JsonValue* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // An integer in [1, kCountMax]. kBadFile: missing, another kind, outside.
  Result<std::int64_t> count(std::string_view key) const;
  Result<std::int64_t> count_or(std::string_view key, std::int64_t absent) const;
  Result<double> number(std::string_view key) const;  // finite
  Result<double> number_or(std::string_view key, double absent) const;
  Result<bool> flag_or(std::string_view key, bool absent) const;
  Result<std::string> text_or(std::string_view key, std::string_view absent) const;
  // The same of an object inside, named `where` in messages.
  Result<double> number_in(const JsonValue& object, std::string_view where, std::string_view key)
      const;
  Result<double> number_in_or(
      const JsonValue& object, std::string_view where, std::string_view key, double absent
  ) const;

  template <typename... Args>
  tl::unexpected<Error> fail(Code code, fmt::format_string<Args...> text, Args&&... args) const {
    return artery::fail(code, "{}: {}", path_, fmt::format(text, std::forward<Args>(args)...));
  }

  static constexpr std::int64_t kCountMax = std::int64_t{1} << 28;

 private:
  std::string path_;
  JsonValue root_;
  const JsonValue* text_config() const;
};

}  // namespace artery::model
