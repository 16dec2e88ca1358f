#pragma once
// The effective value of every flag of one verb: flag, environment, file, default, in this order.
// Everything is checked when built, so the getters cannot fail; asking for a flag the verb does not
// have is a bug. Immutable, any thread.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"

namespace artery::cli {

enum class Source { kDefault, kFile, kEnvironment, kFlag };

class Options {
 public:
  // `given`: what stood on the command line, by flag name. `environment(name)` returns null when
  // unset. kInvalidArgument names the flag, where the value came from and what is allowed; kIo,
  // kNotFound for the file.
  static Result<Options> make(
      const Verb& verb,
      const std::map<std::string, std::string>& given,
      const char* (*environment)(const char* name)
  );

  const Verb& verb() const { return *verb_; }
  const std::string& text(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;  // kInteger, kBytes
  double number(std::string_view name) const;
  bool on(std::string_view name) const;
  std::vector<std::string> list(std::string_view name) const;  // text split at commas
  bool is_set(std::string_view name) const;                    // not the default

  // The value of `name`, or kInvalidArgument (usage) when it is empty.
  Result<std::string> require(std::string_view name) const;

  // The effective values as TOML, keys with _, each under its help text. Secrets are left out.
  std::string as_toml() const;

 private:
  struct Value {
    std::string text;
    Source source = Source::kDefault;
  };
  const Value& value(std::string_view name) const;

  const Verb* verb_ = nullptr;
  std::map<std::string, Value, std::less<>> values_;
};

// "512", "64M", "2GiB": powers of 1024; nullopt: no such text, or negative.
std::optional<std::int64_t> parse_bytes(std::string text);

// "a,b" -> {"a", "b"}; empty text gives an empty list.
std::vector<std::string> split_commas(std::string_view text);

// "1,8,32" -> numbers in [min, max]; kInvalidArgument names `flag`.
Result<std::vector<int>> parse_int_list(
    std::string_view flag, std::string_view text, int min, int max
);

}  // namespace artery::cli
