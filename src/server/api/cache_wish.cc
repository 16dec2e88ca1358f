#include "server/api/cache_wish.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <charconv>
#include <cstdint>
#include <string_view>

namespace artery::server::api {
namespace {

namespace json = boost::json;
using kvstore::TtlClass;
using Wish = std::optional<TtlClass>;

constexpr std::string_view kControl = "cache_control";
constexpr std::string_view kControlTtl = "5m";  // Anthropic's default

// "5m", "1h", "7d", "300s", "300"; nullopt: not a time.
std::optional<std::int64_t> seconds_of(std::string_view text) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  constexpr std::int64_t kMost = 1'000'000'000'000;
  if (error != std::errc() || count < 0 || count > kMost) return {};
  if (unit.empty() || unit == "s") return count;
  if (unit == "m") return count * 60;
  if (unit == "h") return count * 3600;
  if (unit == "d") return count * 86400;
  return {};
}

Result<TtlClass> class_of(std::optional<std::int64_t> seconds, const std::string& path) {
  const Wish found = seconds ? kvstore::ttl_class_for(*seconds) : std::nullopt;
  if (found && *found != TtlClass::kPinned) return *found;
  return fail_field(
      path,
      "{} must be a time of at most 7 days: \"5m\", \"1h\", \"24h\", \"72h\", \"7d\" or a number "
      "of seconds",
      path
  );
}

Wish longer(Wish a, Wish b) { return a && (!b || *b < *a) ? a : b; }

Result<Wish> read_control(const Fields& owner) {
  const json::value* value = owner.find(kControl);
  if (value == nullptr) return Wish();
  const std::string path = owner.path(kControl);
  const Fields control = TRY(Fields::of(*value, path));
  if (TRY(control.text("type")).value_or("") != "ephemeral") {
    return fail_field(path + ".type", "{}.type must be \"ephemeral\"", path);
  }
  const std::string ttl = TRY(control.text("ttl")).value_or(std::string(kControlTtl));
  return Wish(TRY(class_of(seconds_of(ttl), path + ".ttl")));
}

// Of the objects of an array; what is no object is the reader's matter, who says so better.
Result<Wish> read_controls(const json::array& values, const std::string& path) {
  Wish found;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i].is_object()) continue;
    const std::string at = path + "[" + std::to_string(i) + "]";
    const Fields fields = TRY(Fields::of(values[i], at));
    found = longer(found, TRY(read_control(fields)));
    const json::value* content = fields.find("content");
    if (content == nullptr || !content->is_array()) continue;
    found = longer(found, TRY(read_controls(content->get_array(), at + ".content")));
  }
  return found;
}

Result<Wish> read_ttl(const Fields& body) {
  const json::value* value = body.find("cache_ttl");
  if (value == nullptr) return Wish();
  if (value->is_string()) {
    const json::string& text = value->get_string();
    return Wish(TRY(class_of(seconds_of({text.data(), text.size()}), "cache_ttl")));
  }
  return Wish(TRY(class_of(as_integer(*value), "cache_ttl")));
}

}  // namespace

Result<Wish> read_cache_wish(const Fields& body) {
  Wish found = longer(TRY(read_ttl(body)), TRY(read_control(body)));
  for (const char* list : {"messages", "tools"}) {
    const json::value* value = body.find(list);
    if (value == nullptr || !value->is_array()) continue;
    found = longer(found, TRY(read_controls(value->get_array(), list)));
  }
  return found;
}

TtlClass observed_class(const codec::ChatInput& input) {
  const auto turns_of = [&](std::string_view role) {
    return std::count_if(input.messages.begin(), input.messages.end(), [&](const auto& message) {
      return message.role == role;
    });
  };
  const auto answers = turns_of("assistant");
  if (!input.tools_json.empty() || turns_of("tool") > 0 || answers >= 2) return TtlClass::kAgent;
  return answers > 0 ? TtlClass::kChat : TtlClass::kHour;
}

}  // namespace artery::server::api
