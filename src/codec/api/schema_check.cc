#include "codec/api/schema_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "codec/api/json_out.h"
#include "codec/api/json_style.h"
#include "codec/api/json_tree.h"
#include "codec/api/uri_text.h"

namespace artery::codec::api {
namespace {

using enum KeywordRule;

// What is wrong with a value; shown only when it wins, for values may be large and nested.
struct Fault {
  const Json* value = nullptr;  // null: `what` says it all
  std::string what;
};
using Verdict = tl::expected<void, Fault>;

Verdict refuse(const Json& value, std::string_view what) {
  return tl::unexpected(Fault{&value, std::string(what)});
}

Verdict any_of(const Json& value, bool fits) {
  if (fits) return {};
  return refuse(value, "is not valid under any of the schemas listed in the 'anyOf' keyword");
}

Verdict of_type(const Json& value, bool fits, std::string_view type) {
  if (fits) return {};
  return refuse(value, fmt::format("is not of type \"{}\"", type));
}

bool is_type_name(const Json& value) {
  static const std::unordered_set<std::string_view> kTypes = {
      "array", "boolean", "integer", "null", "number", "object", "string"
  };
  return value.is_string() && kTypes.contains(value.text());
}

// Different as JSON Schema compares: whole numbers and fractions by value. Only names and types
// are compared, so other values may stand for themselves.
bool all_different(std::span<const Json> items) {
  std::unordered_set<std::string> seen;
  return std::ranges::all_of(items, [&](const Json& item) {
    return seen.insert(to_json(item)).second;
  });
}

bool is_type_list(const Json& value) {
  return value.is_array() && !value.items().empty() &&
         std::ranges::all_of(value.items(), is_type_name) && all_different(value.items());
}

// Draft 4 goes by the spelling, later ones by the value.
bool is_whole(const Json& value, bool by_spelling) {
  if (!value.is_number()) return false;
  if (value.kind() != Json::Kind::kDouble) return true;
  return !by_spelling && std::trunc(value.real()) == value.real();
}

Verdict check_count(const Json& value, bool by_spelling) {
  if (!is_whole(value, by_spelling)) return of_type(value, false, "integer");
  if (value.number() < 0) return refuse(value, "is less than the minimum of 0");
  return {};
}

Verdict check_names(const Json& value, bool some) {
  if (!value.is_array()) return of_type(value, false, "array");
  if (some && value.items().empty()) return refuse(value, "has less than 1 item");
  for (const Json& item : value.items()) {
    if (!item.is_string()) return of_type(item, false, "string");
  }
  if (!all_different(value.items())) return refuse(value, "has non-unique elements");
  return {};
}

bool is_name_byte(char c, std::string_view more) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || more.find(c) != more.npos;
}

// `first` and `later`: which other characters may begin and continue it.
bool is_anchor(std::string_view text, std::string_view first, std::string_view later) {
  return !text.empty() && is_name_byte(text.front(), first) &&
         std::ranges::all_of(text.substr(1), [&](char c) { return is_name_byte(c, later); });
}

Verdict check_pattern(const Json& value, bool fits, std::string_view pattern) {
  if (!value.is_string()) return of_type(value, false, "string");
  if (fits) return {};
  std::string what = "does not match ";
  put_json_string(what, pattern);
  return refuse(value, what);
}

class Checker {
 public:
  explicit Checker(const SchemaDraft& draft) : draft_(draft) {}

  Verdict schema(const Json& value) const {
    const bool flags_too = draft_.id != SchemaDraft::Id::k4;
    if (value.is_bool() && flags_too) return {};
    if (!value.is_object()) {
      return flags_too ? refuse(value, "is not of types \"boolean\", \"object\"")
                       : of_type(value, false, "object");
    }
    for (const Vocabulary& vocabulary : draft_.vocabularies) {
      if (auto checked = keywords(value, vocabulary); !checked) return checked;
    }
    if (draft_.id != SchemaDraft::Id::k4) return {};
    if (value.find("exclusiveMaximum") != nullptr && value.find("maximum") == nullptr)
      return tl::unexpected(Fault{nullptr, "\"maximum\" is a required property"});
    if (value.find("exclusiveMinimum") != nullptr && value.find("minimum") == nullptr)
      return tl::unexpected(Fault{nullptr, "\"minimum\" is a required property"});
    return {};
  }

 private:
  Verdict keywords(const Json& value, const Vocabulary& vocabulary) const {
    if (!vocabulary.by_value && value.members().size() > vocabulary.keywords.size()) {
      for (const Keyword& keyword : vocabulary.keywords) {
        const Json* found = value.find(keyword.name);
        if (found == nullptr) continue;
        if (auto checked = rule(keyword, *found); !checked) return checked;
      }
      return {};
    }
    for (const JsonMember& member : value.members()) {
      const auto keyword = std::ranges::find(vocabulary.keywords, member.key, &Keyword::name);
      if (keyword == vocabulary.keywords.end()) continue;
      if (auto checked = rule(*keyword, member.value); !checked) return checked;
    }
    return {};
  }

  Verdict rule(const Keyword& keyword, const Json& value) const {
    switch (keyword.rule) {
      case kAny:
        return {};
      case kText:
      case kRegex:
        return text(keyword, value);
      case kFlag:
        return of_type(value, value.is_bool(), "boolean");
      case kNumber:
        return of_type(value, value.is_number(), "number");
      case kPositive:
        if (!value.is_number()) return of_type(value, false, "number");
        if (value.number() > 0) return {};
        return refuse(value, "is less than or equal to the minimum of 0");
      case kCount:
        return check_count(value, draft_.id == SchemaDraft::Id::k4);
      case kList:
        return of_type(value, value.is_array(), "array");
      case kNames:
      case kSomeNames:
        return check_names(value, keyword.rule == kSomeNames);
      case kType:
        return any_of(value, is_type_name(value) || is_type_list(value));
      case kId:
        return check_pattern(value, value.is_string() && is_id(value.text()), "^[^#]*#?$");
      case kAnchor:
        return check_pattern(
            value,
            value.is_string() && is_anchor(value.text(), "_", "_-.0123456789"),
            "^[A-Za-z_][-A-Za-z0-9._]*$"
        );
      case kOldAnchor:
        return check_pattern(
            value,
            value.is_string() && is_anchor(value.text(), "", "-.:_0123456789"),
            "^[A-Za-z][-A-Za-z0-9.:_]*$"
        );
      default:
        return schemas_rule(keyword.rule, value);
    }
  }

  Verdict schemas_rule(KeywordRule rule, const Json& value) const {
    switch (rule) {
      case kSchema:
        return schema(value);
      case kSchemas:
        return schemas(value);
      case kFlagOrSchema:
        return any_of(value, value.is_bool() || schema(value).has_value());
      case kItems:
        return any_of(value, schema(value).has_value() || schemas(value).has_value());
      default:
        return members(rule, value);
    }
  }

  Verdict members(KeywordRule rule, const Json& value) const {
    if (!value.is_object()) return of_type(value, false, "object");
    for (const JsonMember& member : value.members()) {
      if (auto checked = member_rule(rule, member); !checked) return checked;
    }
    if (rule != kPatternsOf) return {};
    for (const JsonMember& member : value.members()) {
      if (is_regex(member.key)) continue;
      std::string key;
      put_json_string(key, member.key);
      return tl::unexpected(Fault{nullptr, key + " is not a \"regex\""});
    }
    return {};
  }

  Verdict member_rule(KeywordRule rule, const JsonMember& member) const {
    const Json& value = member.value;
    if (rule == kNamesOf) return check_names(value, false);
    if (rule == kFlagsOf) return of_type(value, value.is_bool(), "boolean");
    if (rule != kDependencies) return schema(value);
    const bool some = draft_.id == SchemaDraft::Id::k4;
    return any_of(value, schema(value).has_value() || check_names(value, some).has_value());
  }

  Verdict schemas(const Json& value) const {
    if (!value.is_array()) return of_type(value, false, "array");
    if (value.items().empty()) return refuse(value, "has less than 1 item");
    for (const Json& item : value.items()) {
      if (auto checked = schema(item); !checked) return checked;
    }
    return {};
  }

  Verdict text(const Keyword& keyword, const Json& value) const {
    if (!value.is_string()) return of_type(value, false, "string");
    if (!draft_.is_old()) return {};
    if (keyword.rule == kRegex && !is_regex(value.text()))
      return refuse(value, "is not a \"regex\"");
    if (draft_.id == SchemaDraft::Id::k4) return {};
    const bool is_reference = keyword.name == "$id" || keyword.name == "$ref";
    if (is_reference && uri_fault(value.text())) return refuse(value, "is not a \"uri-reference\"");
    if (keyword.name == "$schema" && !is_uri(value.text()))
      return refuse(value, "is not a \"uri\"");
    return {};
  }

  static bool is_uri(std::string_view text) {
    const std::size_t colon = text.find_first_of(":/?#");
    return colon != text.npos && colon > 0 && text[colon] == ':' && !uri_fault(text);
  }

  static bool is_id(std::string_view text) {
    return text.substr(0, text.empty() ? 0 : text.size() - 1).find('#') == text.npos;
  }

  const SchemaDraft& draft_;
};

}  // namespace

Checked<void> check_keywords(const Json& schema, const SchemaDraft& draft) {
  const Verdict verdict = Checker(draft).schema(schema);
  if (verdict) return {};
  const Fault& fault = verdict.error();
  if (fault.value == nullptr) return tl::unexpected(fault.what);
  return tl::unexpected(fmt::format("{} {}", to_json(*fault.value), fault.what));
}

}  // namespace artery::codec::api
