#include "codec/api/schema_drafts.h"

#include <array>

namespace artery::codec::api {
namespace {

using enum KeywordRule;

constexpr auto kDraft4 = std::to_array<Keyword>({
    {"id", kText},
    {"$schema", kText},
    {"title", kText},
    {"description", kText},
    {"default", kAny},
    {"multipleOf", kPositive},
    {"maximum", kNumber},
    {"exclusiveMaximum", kFlag},
    {"minimum", kNumber},
    {"exclusiveMinimum", kFlag},
    {"maxLength", kCount},
    {"minLength", kCount},
    {"pattern", kRegex},
    {"additionalItems", kFlagOrSchema},
    {"items", kItems},
    {"maxItems", kCount},
    {"minItems", kCount},
    {"uniqueItems", kFlag},
    {"maxProperties", kCount},
    {"minProperties", kCount},
    {"required", kSomeNames},
    {"additionalProperties", kFlagOrSchema},
    {"definitions", kSchemasOf},
    {"properties", kSchemasOf},
    {"patternProperties", kSchemasOf},
    {"dependencies", kDependencies},
    {"enum", kList},
    {"type", kType},
    {"format", kText},
    {"allOf", kSchemas},
    {"anyOf", kSchemas},
    {"oneOf", kSchemas},
    {"not", kSchema},
});

constexpr auto kDraft6 = std::to_array<Keyword>({
    {"$id", kText},
    {"$schema", kText},
    {"$ref", kText},
    {"title", kText},
    {"description", kText},
    {"default", kAny},
    {"examples", kList},
    {"multipleOf", kPositive},
    {"maximum", kNumber},
    {"exclusiveMaximum", kNumber},
    {"minimum", kNumber},
    {"exclusiveMinimum", kNumber},
    {"maxLength", kCount},
    {"minLength", kCount},
    {"pattern", kRegex},
    {"additionalItems", kSchema},
    {"items", kItems},
    {"maxItems", kCount},
    {"minItems", kCount},
    {"uniqueItems", kFlag},
    {"contains", kSchema},
    {"maxProperties", kCount},
    {"minProperties", kCount},
    {"required", kNames},
    {"additionalProperties", kSchema},
    {"definitions", kSchemasOf},
    {"properties", kSchemasOf},
    {"patternProperties", kPatternsOf},
    {"dependencies", kDependencies},
    {"propertyNames", kSchema},
    {"const", kAny},
    {"enum", kList},
    {"type", kType},
    {"format", kText},
    {"allOf", kSchemas},
    {"anyOf", kSchemas},
    {"oneOf", kSchemas},
    {"not", kSchema},
});

constexpr auto kDraft7More = std::to_array<Keyword>({
    {"$comment", kText},
    {"readOnly", kFlag},
    {"writeOnly", kFlag},
    {"contentMediaType", kText},
    {"contentEncoding", kText},
    {"if", kSchema},
    {"then", kSchema},
    {"else", kSchema},
});

// All keywords of draft 7 are checked in one go.
constexpr auto kDraft7 = [] {
  std::array<Keyword, kDraft6.size() + kDraft7More.size()> all{};
  for (std::size_t i = 0; i < kDraft6.size(); ++i) all[i] = kDraft6[i];
  for (std::size_t i = 0; i < kDraft7More.size(); ++i) all[kDraft6.size() + i] = kDraft7More[i];
  return all;
}();

constexpr auto kValidation = std::to_array<Keyword>({
    {"type", kType},           {"const", kAny},
    {"enum", kList},           {"multipleOf", kPositive},
    {"maximum", kNumber},      {"exclusiveMaximum", kNumber},
    {"minimum", kNumber},      {"exclusiveMinimum", kNumber},
    {"maxLength", kCount},     {"minLength", kCount},
    {"pattern", kText},        {"maxItems", kCount},
    {"minItems", kCount},      {"uniqueItems", kFlag},
    {"maxContains", kCount},   {"minContains", kCount},
    {"maxProperties", kCount}, {"minProperties", kCount},
    {"required", kNames},      {"dependentRequired", kNamesOf},
});
constexpr auto kMetaData = std::to_array<Keyword>({
    {"title", kText},
    {"description", kText},
    {"default", kAny},
    {"deprecated", kFlag},
    {"readOnly", kFlag},
    {"writeOnly", kFlag},
    {"examples", kList},
});
constexpr auto kFormat = std::to_array<Keyword>({{"format", kText}});

constexpr auto kCore19 = std::to_array<Keyword>({
    {"$id", kId},
    {"$schema", kText},
    {"$anchor", kOldAnchor},
    {"$ref", kText},
    {"$recursiveRef", kText},
    {"$recursiveAnchor", kFlag},
    {"$vocabulary", kFlagsOf},
    {"$comment", kText},
    {"$defs", kSchemasOf},
});
constexpr auto kApplicator19 = std::to_array<Keyword>({
    {"additionalItems", kSchema},
    {"unevaluatedItems", kSchema},
    {"items", kItems},
    {"contains", kSchema},
    {"additionalProperties", kSchema},
    {"unevaluatedProperties", kSchema},
    {"properties", kSchemasOf},
    {"patternProperties", kSchemasOf},
    {"dependentSchemas", kSchemasOf},
    {"propertyNames", kSchema},
    {"if", kSchema},
    {"then", kSchema},
    {"else", kSchema},
    {"allOf", kSchemas},
    {"anyOf", kSchemas},
    {"oneOf", kSchemas},
    {"not", kSchema},
});
constexpr auto kContent19 = std::to_array<Keyword>({
    {"contentMediaType", kText},
    {"contentEncoding", kText},
    {"contentSchema", kSchema},
});
constexpr auto kLeft19 = std::to_array<Keyword>({
    {"definitions", kSchemasOf},
    {"dependencies", kDependencies},
});

constexpr auto kCore20 = std::to_array<Keyword>({
    {"$id", kId},
    {"$schema", kText},
    {"$ref", kText},
    {"$anchor", kAnchor},
    {"$dynamicRef", kText},
    {"$dynamicAnchor", kAnchor},
    {"$vocabulary", kFlagsOf},
    {"$comment", kText},
    {"$defs", kSchemasOf},
});
constexpr auto kApplicator20 = std::to_array<Keyword>({
    {"prefixItems", kSchemas},
    {"items", kSchema},
    {"contains", kSchema},
    {"additionalProperties", kSchema},
    {"properties", kSchemasOf},
    {"patternProperties", kSchemasOf},
    {"dependentSchemas", kSchemasOf},
    {"propertyNames", kSchema},
    {"if", kSchema},
    {"then", kSchema},
    {"else", kSchema},
    {"allOf", kSchemas},
    {"anyOf", kSchemas},
    {"oneOf", kSchemas},
    {"not", kSchema},
});
constexpr auto kUnevaluated20 = std::to_array<Keyword>({
    {"unevaluatedItems", kSchema},
    {"unevaluatedProperties", kSchema},
});
constexpr auto kContent20 = std::to_array<Keyword>({
    {"contentEncoding", kText},
    {"contentMediaType", kText},
    {"contentSchema", kSchema},
});
constexpr auto kLeft20 = std::to_array<Keyword>({
    {"definitions", kSchemasOf},
    {"dependencies", kDependencies},
    {"$recursiveAnchor", kAnchor},
    {"$recursiveRef", kText},
});

constexpr auto kVocabularies4 = std::to_array<Vocabulary>({{kDraft4}});
constexpr auto kVocabularies6 = std::to_array<Vocabulary>({{kDraft6}});
constexpr auto kVocabularies7 = std::to_array<Vocabulary>({{kDraft7}});
constexpr auto kVocabularies19 = std::to_array<Vocabulary>({
    {kLeft19, false},
    {kCore19, false},
    {kApplicator19},
    {kValidation},
    {kMetaData, false},
    {kFormat},
    {kContent19, false},
});
constexpr auto kVocabularies20 = std::to_array<Vocabulary>({
    {kLeft20, false},
    {kCore20, false},
    {kApplicator20},
    {kUnevaluated20, false},
    {kValidation},
    {kMetaData, false},
    {kFormat},
    {kContent20, false},
});

constexpr std::array<SchemaDraft, 5> kDrafts = {
    SchemaDraft{SchemaDraft::Id::k4, kVocabularies4},
    SchemaDraft{SchemaDraft::Id::k6, kVocabularies6},
    SchemaDraft{SchemaDraft::Id::k7, kVocabularies7},
    SchemaDraft{SchemaDraft::Id::k2019, kVocabularies19},
    SchemaDraft{SchemaDraft::Id::k2020, kVocabularies20}
};

struct NamedDraft {
  std::string_view path;
  SchemaDraft::Id id;
};
constexpr std::array<NamedDraft, 5> kDraftNames = {
    NamedDraft{"draft-04/schema", SchemaDraft::Id::k4},
    NamedDraft{"draft-06/schema", SchemaDraft::Id::k6},
    NamedDraft{"draft-07/schema", SchemaDraft::Id::k7},
    NamedDraft{"draft/2019-09/schema", SchemaDraft::Id::k2019},
    NamedDraft{"draft/2020-12/schema", SchemaDraft::Id::k2020}
};

const NamedDraft* find_draft(std::string_view uri) {
  while (uri.ends_with('#')) uri.remove_suffix(1);
  constexpr std::array<std::string_view, 2> kHosts = {
      "http://json-schema.org/", "https://json-schema.org/"
  };
  for (const std::string_view host : kHosts) {
    if (!uri.starts_with(host)) continue;
    for (const NamedDraft& draft : kDraftNames) {
      if (uri.substr(host.size()) == draft.path) return &draft;
    }
  }
  return nullptr;
}

}  // namespace

const SchemaDraft& schema_draft(SchemaDraft::Id id) {
  return kDrafts[static_cast<std::size_t>(id)];
}

const SchemaDraft& schema_draft_named(std::string_view uri) {
  const NamedDraft* draft = find_draft(uri);
  return schema_draft(draft == nullptr ? SchemaDraft::Id::k2020 : draft->id);
}

bool is_known_draft(std::string_view uri) {
  std::string_view bare = uri;
  if (bare.ends_with('#')) bare.remove_suffix(1);
  return bare.empty() || bare.starts_with('#') || bare == "http://json-schema.org/schema" ||
         bare == "https://json-schema.org/schema" || bare == "json-schema:///" ||
         find_draft(uri) != nullptr;
}

}  // namespace artery::codec::api
