#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codec/api/json_style.h"
#include "codec/api/json_tree.h"
#include "codec/api/schema_check.h"
#include "codec/api/uri_text.h"
#include "codec/unicode.h"

namespace artery::codec::api {
namespace {

using enum KeywordRule;
using Error = tl::unexpected<std::string>;

std::string no_resource(std::string_view uri, std::string_view why) {
  return fmt::format(
      "Resource '{}' is not present in a registry and retrieving it failed: {}", uri, why
  );
}

std::string_view text_at(const Json& schema, std::string_view key) {
  const Json* found = schema.find(key);
  return found != nullptr && found->is_string() ? found->text() : std::string_view();
}

bool has_text(const Json& schema, std::string_view key) {
  const Json* found = schema.find(key);
  return found != nullptr && found->is_string();
}

// Members by name where there are many, looked up once for all references.
class MemberIndex {
 public:
  const Json* find(const Json& object, std::string_view key) {
    constexpr std::size_t kFew = 16;
    if (object.members().size() <= kFew) return object.find(key);
    auto& names = names_[&object];
    if (names.empty()) {
      for (const JsonMember& member : object.members()) names.emplace(member.key, &member.value);
    }
    const auto found = names.find(key);
    return found == names.end() ? nullptr : found->second;
  }

 private:
  using Names = std::unordered_map<std::string_view, const Json*>;
  std::unordered_map<const Json*, Names> names_;
};

// The schema behind a JSON pointer (RFC 6901) in a fragment.
Checked<const Json*> at_pointer(const Json& root, std::string_view pointer, MemberIndex& index) {
  const auto is_utf8 = [](std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
      const Utf8Char c = decode_utf8(text, i);
      if (c.state != Utf8State::kValid) return false;
      i += c.bytes;
    }
    return true;
  };
  const std::string decoded = percent_decoded(pointer);
  if (!is_utf8(decoded)) {
    return Error(fmt::format(
        "Invalid percent encoding in pointer '{}': the decoded bytes do not represent valid UTF-8",
        pointer
    ));
  }
  const Json* node = &root;
  for (std::size_t at = 1; at <= decoded.size();) {
    const std::size_t end = std::min(decoded.find('/', at), decoded.size());
    std::string key;
    for (std::size_t i = at; i < end; ++i) {
      const std::string_view escape = std::string_view(decoded).substr(i, 2);
      if (escape == "~0" || escape == "~1") {
        key += escape == "~0" ? '~' : '/';
        ++i;
      } else {
        key += decoded[i];
      }
    }
    at = end + 1;
    const Json* next = node->is_object() ? index.find(*node, key) : nullptr;
    if (node->is_array()) {
      std::size_t place = 0;
      const auto [read, error] = std::from_chars(key.data(), key.data() + key.size(), place);
      if (error != std::errc{} || read != key.data() + key.size())
        return Error(fmt::format("Failed to parse array index '{}' in pointer '{}'", key, pointer));
      next = place < node->items().size() ? &node->items()[place] : nullptr;
    }
    if (next == nullptr) return Error(fmt::format("Pointer '{}' does not exist", pointer));
    node = next;
  }
  return node;
}

// Calls visit(schema) for the schemas in the values of keywords that hold such.
template <class Visit>
void each_inner(const Json& schema, const SchemaDraft& draft, const Visit& visit) {
  const auto each_item = [&](const Json& list) {
    for (const Json& item : list.items()) visit(item);
  };
  for (const JsonMember& member : schema.members()) {
    for (const Vocabulary& vocabulary : draft.vocabularies) {
      const auto keyword = std::ranges::find(vocabulary.keywords, member.key, &Keyword::name);
      if (keyword == vocabulary.keywords.end()) continue;
      const KeywordRule rule = keyword->rule;
      const bool is_left = rule == kDependencies && !draft.is_old();
      if (rule < kSchema || is_left) continue;
      if (member.value.is_array()) {
        each_item(member.value);
      } else if (rule == kSchemasOf || rule == kPatternsOf || rule == kDependencies) {
        for (const JsonMember& inner : member.value.members()) {
          if (!inner.value.is_array()) visit(inner.value);
        }
      } else {
        visit(member.value);
      }
    }
  }
}

// Where the schemas with addresses of their own are.
class Registry {
 public:
  Registry(const Json& root, const SchemaDraft& draft) : root_(root), draft_(draft) {}

  Checked<void> build() {
    if (auto named = name(root_, ""); !named) return named;
    return look_outside(root_, "");
  }

  // The base that counts inside `schema`.
  std::string_view base_of(const Json& schema, std::string_view outer) const {
    const auto own = bases_.find(&schema);
    return own == bases_.end() ? outer : std::string_view(own->second);
  }

  struct Target {
    const Json* schema;
    std::string_view base;
  };
  Checked<Target> find(std::string_view reference, std::string_view base) {
    const UriParts parts = split_uri(reference);
    const Json* root = &root_;
    std::string_view found_base = base;
    if (!base.empty() || parts.scheme) {
      const std::string uri = resolve_uri(base, reference);
      const auto resource = resources_.find(uri);
      if (resource == resources_.end()) {
        return Error(no_resource(
            uri, "Retrieving external resources is not supported once the registry is populated"
        ));
      }
      root = resource->second;
      found_base = resource->first;
    } else if (!is_local(parts)) {
      return Error(no_resource(
          resolve_uri("json-schema:///", reference),
          "Retrieving external resources is not supported once the registry is populated"
      ));
    }
    const std::string_view fragment = parts.fragment.value_or(std::string_view());
    if (fragment.empty()) return Target{root, found_base};
    if (fragment.starts_with('/')) {
      const auto schema = at_pointer(*root, fragment, index_);
      if (!schema) return Error(schema.error());
      return Target{*schema, found_base};
    }
    const auto anchor = anchors_.find(fmt::format("{}#{}", found_base, fragment));
    if (anchor == anchors_.end()) return Error(fmt::format("Anchor '{}' does not exist", fragment));
    return Target{anchor->second, found_base};
  }

 private:
  static bool is_local(const UriParts& parts) {
    const bool bare_host = parts.authority && parts.authority->empty() && parts.path == "/";
    return !parts.scheme && (bare_host || (!parts.authority && parts.path.empty() && !parts.query));
  }

  bool hides_rest(const Json& schema) const { return draft_.is_old() && has_text(schema, "$ref"); }

  Checked<void> fault_of(std::string_view reference) const {
    const auto fault = uri_fault(reference);
    if (!fault) return {};
    return Error(fmt::format("Invalid URI reference '{}': {}", reference, *fault));
  }

  Checked<void> name(const Json& schema, std::string_view base) {
    if (!schema.is_object()) return {};
    const std::string_view id_key = draft_.id == SchemaDraft::Id::k4 ? "id" : "$id";
    const std::string_view id = text_at(schema, id_key);
    if (!id.empty() && !hides_rest(schema)) {
      if (auto fine = fault_of(id); !fine) return fine;
      base = name_one(schema, id, base);
    }
    if (&schema == &root_) resources_.emplace(std::string(base), &root_);
    if (auto fine = fault_of(text_at(schema, "$schema")); !fine) return fine;
    for (const std::string_view key : {"$anchor", "$dynamicAnchor"}) {
      if (!draft_.is_old() && has_text(schema, key))
        anchors_.emplace(fmt::format("{}#{}", base, text_at(schema, key)), &schema);
    }
    Checked<void> done;
    each_inner(schema, draft_, [&](const Json& inner) {
      if (done) done = name(inner, base);
    });
    return done;
  }

  // The new base.
  std::string_view name_one(const Json& schema, std::string_view id, std::string_view base) {
    if (id.starts_with('#')) {
      anchors_.emplace(fmt::format("{}{}", base, id), &schema);
      return base;
    }
    const auto kept = bases_.emplace(&schema, resolve_uri(base, id));
    resources_.emplace(kept.first->second, &schema);
    return kept.first->second;
  }

  // References to schemas that are not here.
  Checked<void> look_outside(const Json& schema, std::string_view base) const {
    if (!schema.is_object()) return {};
    base = base_of(schema, base);
    if (has_text(schema, "$ref")) {
      const std::string_view reference = text_at(schema, "$ref");
      if (auto fine = fault_of(reference); !fine) return fine;
      if (auto fine = is_here(reference, base); !fine) return fine;
    }
    Checked<void> done;
    each_inner(schema, draft_, [&](const Json& inner) {
      if (done) done = look_outside(inner, base);
    });
    return done;
  }

  Checked<void> is_here(std::string_view reference, std::string_view base) const {
    const UriParts parts = split_uri(reference);
    if (is_local(parts)) return {};
    if (base.empty() && !parts.scheme)
      return Error(no_resource(reference, "No base URI is available"));
    const std::string uri = resolve_uri(base, reference);
    if (resources_.contains(uri) || is_known_draft(uri)) return {};
    return Error(no_resource(uri, fmt::format("Retrieval is disabled, cannot fetch {}", uri)));
  }

  const Json& root_;
  const SchemaDraft& draft_;
  std::unordered_map<const Json*, std::string> bases_;
  std::unordered_map<std::string, const Json*> resources_, anchors_;
  MemberIndex index_;
};

// Follows what a validator would compile: every keyword in its order, references to their ends.
class Follower {
 public:
  Follower(Registry& registry, const SchemaDraft& draft) : registry_(registry), draft_(draft) {}

  Checked<void> follow(const Json& root) {
    stack_.push_back({Step::kSchema, &root, {}, {}});
    while (!stack_.empty()) {
      const Item item = stack_.back();
      stack_.pop_back();
      if (auto done = step(item); !done) return done;
      std::ranges::reverse(fresh_);
      stack_.insert(stack_.end(), fresh_.begin(), fresh_.end());
      fresh_.clear();
    }
    return {};
  }

 private:
  enum class Step { kSchema, kReference, kRegex, kText };
  struct Item {
    Step step;
    const Json* value;  // kRegex: what the error shows
    std::string_view text, base;
  };

  void add(const Json& schema, std::string_view base) {
    fresh_.push_back({Step::kSchema, &schema, {}, base});
  }

  Checked<void> step(const Item& item) {
    if (item.step == Step::kRegex) {
      if (is_regex(item.text)) return {};
      return Error(fmt::format("{} is not a \"regex\"", to_json(*item.value)));
    }
    if (item.step == Step::kText)
      return Error(fmt::format("{} is not of type \"string\"", to_json(*item.value)));
    if (item.step == Step::kReference) {
      if (const auto fault = uri_fault(item.text))
        return Error(fmt::format("Invalid URI reference '{}': {}", item.text, *fault));
      const auto target = registry_.find(item.text, item.base);
      if (!target) return Error(target.error());
      add(*target->schema, target->base);
      return {};
    }
    const Json& schema = *item.value;
    if (!seen_.insert(&schema).second || schema.is_bool()) return {};
    if (!schema.is_object())
      return Error(fmt::format("{} is not of types \"boolean\", \"object\"", to_json(schema)));
    open(schema, registry_.base_of(schema, item.base));
    return {};
  }

  void reference(const Json& schema, std::string_view key, std::string_view base) {
    if (has_text(schema, key))
      fresh_.push_back({Step::kReference, nullptr, text_at(schema, key), base});
  }

  void open(const Json& schema, std::string_view base) {
    if (draft_.is_old() && has_text(schema, "$ref")) return reference(schema, "$ref", base);
    const Json* additional = schema.find("additionalProperties");
    const bool together =
        additional != nullptr &&
        (additional->is_object() || (additional->is_bool() && !additional->boolean()));
    for (const JsonMember& member : schema.members()) {
      const std::string_view key = member.key;
      if (together && (key == "properties" || key == "patternProperties")) continue;
      if (together && key == "additionalProperties") {
        patterns(schema.find("patternProperties"), base);
        inner_of(schema.find("properties"), base);
        add(member.value, base);
      } else {
        keyword(schema, member, base);
      }
    }
  }

  void keyword(const Json& schema, const JsonMember& member, std::string_view base) {
    const std::string_view key = member.key;
    const Json& value = member.value;
    if (must_be_text(key) && !value.is_string()) {
      fresh_.push_back({Step::kText, &value, {}, {}});
    } else if (key == "pattern" && value.is_string()) {
      fresh_.push_back({Step::kRegex, &value, value.text(), {}});
    } else if (key == "patternProperties") {
      patterns(&value, base);
    } else if (key == "$ref") {
      reference(schema, key, base);
    } else if ((key == "$dynamicRef" && draft_.id == SchemaDraft::Id::k2020) ||
               (key == "$recursiveRef" && draft_.id == SchemaDraft::Id::k2019 && value.is_text("#")
               )) {
      reference(schema, key, base);
    } else if (key == "if") {
      condition(schema, base);
    } else if (is_followed(key)) {
      if (value.is_array()) {
        for (const Json& item : value.items()) add(item, base);
      } else if (key == "properties" || key == "dependentSchemas" || key == "dependencies") {
        inner_of(&value, base);
      } else {
        add(value, base);
      }
    }
  }

  // What the meta-schema of an old draft does not name and a validator refuses all the same.
  bool must_be_text(std::string_view key) const {
    if (draft_.id == SchemaDraft::Id::k4) return key == "$ref";
    return draft_.id == SchemaDraft::Id::k6 &&
           (key == "contentMediaType" || key == "contentEncoding");
  }

  bool is_followed(std::string_view key) const {
    static const std::unordered_set<std::string_view> kKept = {
        "$defs", "definitions", "contentSchema", "if", "then", "else"
    };
    if (kKept.contains(key)) return false;
    for (const Vocabulary& vocabulary : draft_.vocabularies) {
      const auto keyword = std::ranges::find(vocabulary.keywords, key, &Keyword::name);
      if (keyword != vocabulary.keywords.end()) return keyword->rule >= kSchema;
    }
    return false;
  }

  void condition(const Json& schema, std::string_view base) {
    const Json *then = schema.find("then"), *otherwise = schema.find("else");
    if (then == nullptr && otherwise == nullptr) return;
    add(*schema.find("if"), base);
    if (then != nullptr) add(*then, base);
    if (otherwise != nullptr) add(*otherwise, base);
  }

  void inner_of(const Json* schemas, std::string_view base) {
    if (schemas == nullptr) return;
    for (const JsonMember& member : schemas->members()) {
      if (!member.value.is_array()) add(member.value, base);
    }
  }

  void patterns(const Json* schemas, std::string_view base) {
    if (schemas == nullptr) return;
    for (const JsonMember& member : schemas->members()) {
      fresh_.push_back({Step::kRegex, &member.value, member.key, {}});
      add(member.value, base);
    }
  }

  Registry& registry_;
  const SchemaDraft& draft_;
  std::vector<Item> stack_, fresh_;
  std::unordered_set<const Json*> seen_;
};

}  // namespace

Checked<void> check_references(const Json& schema, const SchemaDraft& draft) {
  Registry registry(schema, draft);
  if (auto built = registry.build(); !built) return built;
  if (const std::string_view uri = text_at(schema, "$schema"); !is_known_draft(uri)) {
    return Error(fmt::format(
        "Unknown meta-schema: '{}'. Custom meta-schemas must be registered in the registry before "
        "use",
        uri
    ));
  }
  return Follower(registry, draft).follow(schema);
}

}  // namespace artery::codec::api
