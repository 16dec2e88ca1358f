#pragma once
// JSON Lines in and out, for the batch verbs: one answer line for each line read, in order, with
// the same id; a bad line gives {"id","error":{...}} and the run goes on. One thread at a time.

#include <boost/json.hpp>

#include <functional>
#include <istream>
#include <ostream>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace artery::cli {

// One parsed line: its fields by name, typed access with errors that name the field.
class JsonLine {
 public:
  // kInvalidArgument: not JSON (with the byte), deeper than 64 levels, or not an object.
  static Result<JsonLine> parse(std::string_view text);

  const boost::json::object& fields() const { return fields_; }
  const boost::json::value* find(std::string_view name) const;  // null: absent or null
  boost::json::value id() const;                                // null when absent

  // The field, or `fallback` when absent. kInvalidArgument names the field and what it is instead.
  Result<bool> boolean(std::string_view name, bool fallback) const;
  Result<std::int64_t> integer(std::string_view name, std::int64_t fallback) const;
  Result<std::string> text(std::string_view name, std::string fallback) const;
  // kInvalidArgument when absent: the field is needed.
  Result<std::string> text(std::string_view name) const;
  // Token ids in [0, vocab_size); an empty list when absent.
  Result<std::vector<TokenId>> ids(std::string_view name, std::int64_t vocab_size) const;

 private:
  boost::json::object fields_;
};

boost::json::object error_line(const boost::json::value& id, const Error& error);

// "a number", "an array" ...
std::string_view kind_name(const boost::json::value& value);

// Calls `answer` for each line that is not blank and writes what it returns; ends at the end of
// input. kIo when the output cannot be written.
using LineAnswer = std::function<Result<boost::json::object>(const JsonLine&)>;
Result<> for_each_line(std::istream& in, std::ostream& out, const LineAnswer& answer);

// The file `path`, or standard input when it is empty or "-". kNotFound.
Result<> with_input(const std::string& path, const std::function<Result<>(std::istream&)>& use);

}  // namespace artery::cli
