#include "cli/json_lines.h"

#include <fstream>
#include <iostream>

#include "cli/report.h"

namespace artery::cli {
namespace json = boost::json;
namespace {

constexpr std::size_t kDepthMax = 64;

template <typename T>
Result<T> wrong_kind(std::string_view name, std::string_view wanted, const json::value& value) {
  return fail_field(std::string(name), "must be {}, got {}", wanted, kind_name(value));
}

}  // namespace

std::string_view kind_name(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "true or false";
    case json::kind::int64:
    case json::kind::uint64:
      return "a whole number";
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "?";
}

Result<JsonLine> JsonLine::parse(std::string_view text) {
  json::parse_options options;
  options.max_depth = kDepthMax;
  json::stream_parser parser({}, options);
  boost::system::error_code why;
  const std::size_t read = parser.write_some(text.data(), text.size(), why);
  if (!why) parser.finish(why);
  if (why)
    return fail(Code::kInvalidArgument, "not a JSON line: {} at byte {}", why.message(), read);
  if (text.find_first_not_of(" \t\r\n", read) != std::string_view::npos)
    return fail(Code::kInvalidArgument, "not a JSON line: more after the value at byte {}", read);
  json::value value = parser.release();
  if (!value.is_object())
    return fail(Code::kInvalidArgument, "the line is {}, expected an object", kind_name(value));
  JsonLine line;
  line.fields_ = std::move(value.as_object());
  return line;
}

const json::value* JsonLine::find(std::string_view name) const {
  const json::value* value = fields_.if_contains(json::string_view(name.data(), name.size()));
  return value != nullptr && value->is_null() ? nullptr : value;
}

json::value JsonLine::id() const {
  const json::value* value = find("id");
  return value == nullptr ? json::value() : *value;
}

Result<bool> JsonLine::boolean(std::string_view name, bool fallback) const {
  const json::value* value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) return wrong_kind<bool>(name, "true or false", *value);
  return value->get_bool();
}

Result<std::int64_t> JsonLine::integer(std::string_view name, std::int64_t fallback) const {
  const json::value* value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_int64()) return wrong_kind<std::int64_t>(name, "a whole number", *value);
  return value->get_int64();
}

Result<std::string> JsonLine::text(std::string_view name, std::string fallback) const {
  const json::value* value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_string()) return wrong_kind<std::string>(name, "a string", *value);
  return std::string(value->get_string());
}

Result<std::string> JsonLine::text(std::string_view name) const {
  if (find(name) == nullptr) return fail_field(std::string(name), "is missing");
  return text(name, "");
}

Result<std::vector<TokenId>> JsonLine::ids(std::string_view name, std::int64_t vocab_size) const {
  std::vector<TokenId> out;
  const json::value* value = find(name);
  if (value == nullptr) return out;
  if (!value->is_array())
    return wrong_kind<std::vector<TokenId>>(name, "an array of token ids", *value);
  for (const json::value& item : value->get_array()) {
    if (!item.is_int64() || item.get_int64() < 0 || item.get_int64() >= vocab_size)
      return fail_field(
          std::string(name),
          "item {} is {}, expected a token id in 0 .. {}",
          out.size(),
          item.is_int64() ? fmt::format("{}", item.get_int64()) : std::string(kind_name(item)),
          vocab_size - 1
      );
    out.push_back(static_cast<TokenId>(item.get_int64()));
  }
  return out;
}

json::object error_line(const json::value& id, const Error& error) {
  json::object inner;
  inner["message"] = error.message;
  inner["code"] = json::string_view(code_name(error.code).data(), code_name(error.code).size());
  if (!error.field.empty()) inner["param"] = error.field;
  json::object out;
  out["id"] = id;
  out["error"] = std::move(inner);
  return out;
}

Result<> for_each_line(std::istream& in, std::ostream& out, const LineAnswer& answer) {
  std::string text;
  while (std::getline(in, text)) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    json::object reply;
    Result<JsonLine> line = JsonLine::parse(text);
    if (!line) {
      reply = error_line(nullptr, line.error());
    } else if (Result<json::object> result = answer(*line); result) {
      reply["id"] = line->id();
      for (auto& [key, value] : *result) reply[key] = value;
    } else {
      reply = error_line(line->id(), result.error());
    }
    out << json::serialize(reply) << '\n';
    if (!out.flush()) return fail(Code::kIo, "cannot write the output");
  }
  return {};
}

Result<> with_input(const std::string& path, const std::function<Result<>(std::istream&)>& use) {
  if (path.empty() || path == "-") return use(std::cin);
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(Code::kNotFound, "{}: cannot open the input file", path);
  // A folder opens like a file, and then reads as an empty one.
  if (file.peek() == std::ifstream::traits_type::eof() && !file.eof())
    return fail(Code::kIo, "{}: cannot read the input file", path);
  file.clear();
  TRY(use(file));
  if (file.bad()) return fail(Code::kIo, "{}: cannot read the input file to its end", path);
  return {};
}

}  // namespace artery::cli
