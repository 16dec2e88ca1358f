#include "model/format/json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <optional>

#include "model/format/text.h"

namespace artery::model {
namespace {

namespace json = boost::json;

constexpr std::size_t kDepthMax = 64;
// Of one value handed out; config.json has hundreds, a tensor's entry ten, an index 200,000.
constexpr std::size_t kValuesMax = 4'000'000;

// Calls of the parser to values. With `take`, members of the root object are handed out as they
// are complete, and the root stays empty.
class Builder {
 public:
  static constexpr std::size_t max_object_size = std::size_t(-1);
  static constexpr std::size_t max_array_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = std::size_t(-1);
  static constexpr std::size_t max_string_size = std::size_t(-1);

  using Code = json::error_code;
  using Text = json::string_view;

  explicit Builder(const std::function<Result<>(JsonMember&&)>* take) : take_(take) {}

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code& code) { return open(JsonValue{JsonValue::Object()}, code); }
  bool on_array_begin(Code& code) { return open(JsonValue{JsonValue::Array()}, code); }
  bool on_object_end(std::size_t, Code& code) { return close(code); }
  bool on_array_end(std::size_t, Code& code) { return close(code); }
  bool on_key_part(Text part, std::size_t, Code&) {
    key_.append(part.data(), part.size());
    return true;
  }
  bool on_key(Text part, std::size_t, Code&) {
    key_.append(part.data(), part.size());
    keys_.push_back(std::move(key_));
    key_.clear();
    return true;
  }
  bool on_string_part(Text part, std::size_t, Code&) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_string(Text part, std::size_t, Code& code) {
    text_.append(part.data(), part.size());
    const bool kept = add(JsonValue{std::move(text_)}, code);
    text_.clear();
    return kept;
  }
  bool on_number_part(Text, Code&) { return true; }
  bool on_int64(std::int64_t value, Text, Code& code) { return add(JsonValue{value}, code); }
  bool on_uint64(std::uint64_t value, Text, Code& code) {
    return add(JsonValue{static_cast<double>(value)}, code);
  }
  bool on_double(double value, Text, Code& code) { return add(JsonValue{value}, code); }
  bool on_bool(bool value, Code& code) { return add(JsonValue{value}, code); }
  bool on_null(Code& code) { return add(JsonValue{}, code); }
  bool on_comment_part(Text, Code&) { return true; }
  bool on_comment(Text, Code&) { return true; }

  JsonValue root;
  std::optional<Error> refused;

 private:
  bool stop(Code& code, Error error) {
    refused = std::move(error);
    code = json::error::exception;
    return false;
  }

  bool open(JsonValue value, Code& code) {
    if (levels_.empty() && take_ != nullptr && value.object() == nullptr)
      return stop(code, {artery::Code::kBadFile, "is a JSON array, expected an object", {}});
    if (levels_.size() >= kDepthMax) {
      return stop(
          code,
          {artery::Code::kBadFile,
           fmt::format("is JSON nested too deeply (over {} levels)", kDepthMax),
           {}}
      );
    }
    levels_.push_back(std::move(value));
    return true;
  }

  bool close(Code& code) {
    JsonValue value = std::move(levels_.back());
    levels_.pop_back();
    return add(std::move(value), code);
  }

  bool add(JsonValue value, Code& code) {
    if (++values_ > kValuesMax)
      return stop(code, {artery::Code::kBadFile, "is JSON with too many values", {}});
    if (levels_.empty()) {
      if (take_ != nullptr && value.object() == nullptr) {
        return stop(
            code,
            {artery::Code::kBadFile,
             fmt::format("is {} as JSON, expected an object", value.kind()),
             {}}
        );
      }
      root = std::move(value);
      return true;
    }
    if (auto* array = std::get_if<JsonValue::Array>(&levels_.back().value)) {
      array->push_back(std::move(value));
      return true;
    }
    JsonMember member{std::move(keys_.back()), std::move(value)};
    keys_.pop_back();
    if (levels_.size() > 1 || take_ == nullptr) {
      std::get<JsonValue::Object>(levels_.back().value).push_back(std::move(member));
      return true;
    }
    values_ = 0;
    Result<> taken = (*take_)(std::move(member));
    return taken ? true : stop(code, std::move(taken).error());
  }

  const std::function<Result<>(JsonMember&&)>* take_;
  std::vector<JsonValue> levels_;
  std::vector<std::string> keys_;
  std::string key_;
  std::string text_;
  std::size_t values_ = 0;
};

Result<JsonValue> parse(std::string_view text, const std::function<Result<>(JsonMember&&)>* take) {
  if (!is_utf8(text)) return fail(Code::kBadFile, "is not valid UTF-8");
  json::parse_options options;
  options.max_depth = 2 * kDepthMax;  // the builder's own limit comes first
  json::basic_parser<Builder> parser(options, take);
  json::error_code code;
  const std::size_t read = parser.write_some(false, text.data(), text.size(), code);
  Builder& built = parser.handler();
  if (built.refused) return tl::unexpected<Error>(std::move(*built.refused));
  if (!code && read < text.size()) {
    const std::size_t rest = text.find_first_not_of(" \t\r\n", read);
    if (rest != std::string_view::npos)
      return fail(Code::kBadFile, "is not valid JSON: more text after the value at byte {}", rest);
  }
  if (!code && !parser.done()) code = json::error::incomplete;
  if (code) return fail(Code::kBadFile, "is not valid JSON: {} at byte {}", code.message(), read);
  return std::move(built.root);
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  const Object* members = object();
  if (members == nullptr) return nullptr;
  for (const JsonMember& member : *members)
    if (member.name == name) return &member.value;
  return nullptr;
}

std::string_view JsonValue::kind() const {
  switch (value.index()) {
    case 0:
      return "null";
    case 1:
      return "a boolean";
    case 2:
      return "an integer";
    case 3:
      return "a number";
    case 4:
      return "a string";
    case 5:
      return "an array";
    default:
      return "an object";
  }
}

Result<JsonValue> parse_json(std::string_view text) { return parse(text, nullptr); }

Result<> parse_json_members(
    std::string_view text, const std::function<Result<>(JsonMember&& member)>& take
) {
  TRY(parse(text, &take));
  return {};
}

}  // namespace artery::model
